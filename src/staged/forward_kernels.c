/* The drivers of kernels A to D. A, B and C run chunk by chunk; D panel by panel, over the chunks in order. */
#include "base/par_for.h"
#include "staged/kernels.h"
#include <stdatomic.h>
#include <string.h>

typedef struct forward_job {
  const gdn2_seed_frame *frame;
  const gdn2_seed_inputs *in;
  const float *Akk_in, *A_in;
  const gdn2_seed_chunk *made;
  gdn2_seed_residuals out;
  gdn2_seed_combine_out end;
  _Atomic int64_t replaced[4];
} forward_job;

static void count(forward_job *job, int n, const int64_t replaced[]) {
  for (int i = 0; i < n; i++) atomic_fetch_add(&job->replaced[i], replaced[i]);
}

/* Runs the tasks and hands back the counts. */
static void run(forward_job *job, int64_t tasks, gdn2_task *task, int n, int64_t replaced[]) {
  gdn2_par_for(job->frame->threads, tasks, task, job);
  for (int i = 0; i < n; i++) replaced[i] = atomic_load(&job->replaced[i]);
}

static void scores_task(void *context, int64_t task, int slot) {
  forward_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const int64_t at = task * gdn2_seed_scores_size(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  int64_t replaced[2];
  gdn2_seed_gather_keys(f, task, job->in, &s);
  f->table->seed.scores(&f->dims, s.q, s.k, s.b, s.g, job->out.Aqk + at, job->out.Akk + at, &s, replaced);
  count(job, 2, replaced);
}

void gdn2_seed_run_scores(const gdn2_seed_frame *frame, const gdn2_seed_inputs *in, float *Aqk, float *Akk, int64_t replaced[2]) {
  forward_job job = {.frame = frame, .in = in, .out = {.Aqk = Aqk, .Akk = Akk}};
  run(&job, gdn2_seed_tasks(frame), scores_task, 2, replaced);
}

static void solve_task(void *context, int64_t task, int slot) {
  forward_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const int64_t at = task * gdn2_seed_scores_size(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  const int64_t replaced = f->table->seed.solve(&f->dims, job->Akk_in + at, job->out.A + at, &s);
  count(job, 1, &replaced);
}

void gdn2_seed_run_solve(const gdn2_seed_frame *frame, const float *Akk, float *A, int64_t replaced[1]) {
  forward_job job = {.frame = frame, .Akk_in = Akk, .out = {.A = A}};
  run(&job, gdn2_seed_tasks(frame), solve_task, 1, replaced);
}

static void rebuild_task(void *context, int64_t task, int slot) {
  forward_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_residuals *out = &job->out;
  const int64_t keys = task * gdn2_seed_keys(f), values = task * gdn2_seed_values(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  int64_t replaced[4];
  gdn2_seed_gather_keys(f, task, job->in, &s);
  gdn2_seed_gather_values(f, task, job->in, &s);
  f->table->seed.rebuild(&f->dims, job->A_in + task * gdn2_seed_scores_size(f), out->w_pseudo + keys, out->u + values,
                         out->kg + keys, out->qg + keys, out->gc_last + task * f->dims.K, &s, replaced);
  count(job, 4, replaced);
}

void gdn2_seed_run_rebuild(const gdn2_seed_frame *frame, const gdn2_seed_inputs *in, const float *A,
                           const gdn2_seed_residuals *out, int64_t replaced[4]) {
  forward_job job = {.frame = frame, .in = in, .A_in = A, .out = *out};
  run(&job, gdn2_seed_tasks(frame), rebuild_task, 4, replaced);
}

/* One chunk of a panel; the state is carried in h_final. */
static void combine_chunk(forward_job *job, const gdn2_seed_panel *panel, int64_t c, gdn2_seed_scratch *s) {
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_combine_out *end = &job->end;
  const int64_t task = panel->head * f->chunks + c, V = f->dims.V, values = task * gdn2_seed_values(f) + panel->first;
  const gdn2_seed_chunk x = gdn2_seed_chunk_of(f, job->made, task, panel->first);
  float *h = end->h_final + panel->head * gdn2_seed_state(f) + panel->first;
  float *v_new = end->v_new_all ? end->v_new_all + values : s->v_new + panel->first;
  float *o = end->o + (end->o_in_tokens ? gdn2_seed_first_row(f, task, V) + panel->first : values);
  int64_t replaced[2];
  if (end->h_pre_all) gdn2_seed_copy_panel(f, panel, h, end->h_pre_all + task * gdn2_seed_state(f) + panel->first);
  f->table->seed.combine(&f->dims, panel->width, &x, h, v_new, end->o_in_tokens ? gdn2_seed_rows(f, task) : f->dims.C, o,
                         end->o_in_tokens ? f->H * V : V, s, replaced);
  count(job, 2, replaced);
}

static void combine_task(void *context, int64_t task, int slot) {
  forward_job *job = context;
  const gdn2_seed_panel panel = gdn2_seed_panel_of(job->frame, task);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(job->frame, slot);
  for (int64_t c = 0; c < job->frame->chunks; c++) combine_chunk(job, &panel, c, &s);
}

void gdn2_seed_start_state(const gdn2_seed_frame *frame, const float *h0, float *h) {
  const int64_t n = gdn2_seed_heads(frame) * gdn2_seed_state(frame);
  if (h0)
    (void)frame->table->seed.sanitize((ptrdiff_t)n, frame->dims.clip, h0, h);
  else
    memset(h, 0, (size_t)n * sizeof *h);
}

void gdn2_seed_run_combine(const gdn2_seed_frame *frame, const gdn2_seed_chunk *made, const float *h0,
                           const gdn2_seed_combine_out *out, int64_t replaced[2]) {
  forward_job job = {.frame = frame, .made = made, .end = *out};
  gdn2_seed_start_state(frame, h0, out->h_final);
  run(&job, gdn2_seed_panels(frame), combine_task, 2, replaced);
}
