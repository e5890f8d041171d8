/* The whole backward, in the order B2, B1, B3, B4, B5. After B1 the chunks are independent of each other: one task takes a chunk
 * through B3, B4, B5 and the final clip in the memory of its thread. */
#include "base/arena.h"
#include "base/error.h"
#include "base/par_for.h"
#include "base/profile.h"
#include "staged/arrays.h"
#include "staged/kernels.h"
#include <stdlib.h>
#include <string.h>

/* The final clip of every gradient, whatever config.clip is. */
#define FINAL_CLIP 1e4f

/* What passes between the kernels. */
typedef struct between {
  float *d_o;         /* [B, H, NC, bt, V] */
  float *dAqk;        /* [B, H, NC, bt, bt] */
  float *dv;          /* [B, H, NC, bt, V]: of B2, then of B1 */
  float *dh_all;      /* [B, H, NC, K, V] */
  float *zeros;       /* [K, V] */
  float *o, *h_final; /* results of a forward made for its residuals only */
} between;

typedef struct gradient_job {
  const gdn2_seed_frame *frame;
  const gdn2_seed_inputs *in;
  const gdn2_seed_residuals *made;
  const gdn2_seed_gradients *out;
  const float *d_o_tokens, *dh_final;
  between x;
} gradient_job;

static between lay(const gdn2_seed_frame *f, int with_forward, gdn2_arena *arena) {
  const int64_t tasks = gdn2_seed_tasks(f);
  between x = {.d_o = gdn2_arena_floats(arena, (size_t)(tasks * gdn2_seed_values(f))),
               .dAqk = gdn2_arena_floats(arena, (size_t)(tasks * gdn2_seed_scores_size(f))),
               .dv = gdn2_arena_floats(arena, (size_t)(tasks * gdn2_seed_values(f))),
               .dh_all = gdn2_arena_floats(arena, (size_t)(tasks * gdn2_seed_state(f))),
               .zeros = gdn2_arena_floats(arena, (size_t)gdn2_seed_state(f))};
  if (with_forward) {
    x.o = gdn2_arena_floats(arena, (size_t)(f->B * f->L * f->H * f->dims.V));
    x.h_final = gdn2_arena_floats(arena, (size_t)(gdn2_seed_heads(f) * gdn2_seed_state(f)));
  }
  return x;
}

static void d_o_task(void *context, int64_t task, int slot) {
  const gradient_job *job = context;
  (void)slot;
  gdn2_seed_gather(job->frame, task, job->frame->dims.V, job->d_o_tokens, job->x.d_o + task * gdn2_seed_values(job->frame));
}

/* The gradient of the state behind a chunk: the next chunk's, or the caller's, as given. */
static const float *dh_next(const gradient_job *job, int64_t task) {
  const gdn2_seed_frame *f = job->frame;
  const int64_t state = gdn2_seed_state(f);
  if (task % f->chunks + 1 < f->chunks) return job->x.dh_all + (task + 1) * state;
  return job->dh_final ? job->dh_final + task / f->chunks * state : job->x.zeros;
}

static gdn2_seed_wy_chunk wy_inputs(const gradient_job *job, int64_t task, const gdn2_seed_scratch *s) {
  const gdn2_seed_frame *f = job->frame;
  const int64_t values = task * gdn2_seed_values(f);
  return (gdn2_seed_wy_chunk){.q = s->q,
                              .k = s->k,
                              .b = s->b,
                              .gc = s->gc,
                              .w = s->w,
                              .v = s->v,
                              .v_new = job->made->v_new_all + values,
                              .d_o = job->x.d_o + values,
                              .dv = job->x.dv + values,
                              .A = job->made->A + task * gdn2_seed_scores_size(f),
                              .h_pre = job->made->h_pre_all + task * gdn2_seed_state(f),
                              .dh_next = dh_next(job, task)};
}

static void chunk_task(void *context, int64_t task, int slot) {
  const gradient_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_stages *stage = &f->table->seed;
  const gdn2_seed_gradients *out = job->out;
  const int64_t K = f->dims.K, V = f->dims.V;
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  const gdn2_seed_wy_grads wy = {s.wy_keys[0], s.wy_keys[1], s.wy_keys[2], s.wy_keys[3], s.wy_values[0], s.wy_values[1], s.dAkk};
  const gdn2_seed_intra_grads intra = {s.intra[0], s.intra[1], s.intra[2], s.intra[3]};
  gdn2_seed_gather_keys(f, task, job->in, &s);
  gdn2_seed_gather_values(f, task, job->in, &s);
  stage->sums(f->dims.C, f->dims.K, s.g, s.gc);
  const gdn2_seed_wy_chunk x = wy_inputs(job, task, &s);
  uint64_t since = gdn2_profile_now(f->call->profile);
  stage->wy(&f->dims, &x, &wy, &s);
  since = gdn2_profile_lap(f->call->profile, GDN2_STAGE_SEED_B3, since);
  stage->intra(&f->dims, job->x.dAqk + task * gdn2_seed_scores_size(f), wy.dAkk, &intra, &s);
  since = gdn2_profile_lap(f->call->profile, GDN2_STAGE_SEED_B4, since);
  stage->assemble(&f->dims, &wy, &intra, &s);
  (void)gdn2_profile_lap(f->call->profile, GDN2_STAGE_SEED_B5, since);
  gdn2_seed_scatter(f, task, K, wy.dq, out->dq);
  gdn2_seed_scatter(f, task, K, wy.dk, out->dk);
  gdn2_seed_scatter(f, task, V, wy.dv_raw, out->dv);
  gdn2_seed_scatter(f, task, V, wy.dw, out->dw);
  gdn2_seed_scatter(f, task, K, wy.db, out->db);
  gdn2_seed_scatter(f, task, K, wy.dgc, out->dg);
}

static void run(gradient_job *job) {
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_residuals *r = job->made;
  const gdn2_seed_chunk made = {.w_pseudo = r->w_pseudo, .kg = r->kg, .qg = r->qg, .gc_last = r->gc_last};
  memset(job->x.zeros, 0, (size_t)gdn2_seed_state(f) * sizeof(float));
  gdn2_par_for(f->threads, gdn2_seed_tasks(f), d_o_task, job);
  uint64_t since = gdn2_profile_now(f->call->profile);
  gdn2_seed_run_dav(f, r->Aqk, r->v_new_all, job->x.d_o, job->x.dAqk, job->x.dv);
  since = gdn2_profile_lap(f->call->profile, GDN2_STAGE_SEED_B2, since);
  gdn2_seed_run_dhu(f, &made, job->x.d_o, job->x.dv, job->dh_final, job->x.dh_all, job->out->dh0, job->x.dv);
  (void)gdn2_profile_lap(f->call->profile, GDN2_STAGE_SEED_B1, since);
  gdn2_par_for(f->threads, gdn2_seed_tasks(f), chunk_task, job);
  const int64_t states = gdn2_seed_heads(f) * gdn2_seed_state(f);
  (void)f->table->seed.sanitize((ptrdiff_t)states, FINAL_CLIP, job->out->dh0, job->out->dh0);
}

/* The residuals that the caller did not give are made in `own`. */
static gdn2_status allocate_and_run(gradient_job *job, const gdn2_seed_residuals *residuals) {
  const gdn2_seed_frame *f = job->frame;
  gdn2_seed_residuals own;
  void *block = residuals ? NULL : gdn2_seed_residuals_allocate(f, 1, &own);
  if (!residuals && !block) return GDN2_ERR_MEMORY;
  gdn2_arena arena = {NULL, 0};
  (void)lay(f, !residuals, &arena);
  void *memory = gdn2_seed_allocate(arena.used);
  gdn2_status status = GDN2_OK;
  if (memory) {
    arena = (gdn2_arena){memory, 0};
    job->x = lay(f, !residuals, &arena);
    if (!residuals) gdn2_seed_run_forward(f, job->in, &own, job->x.o, job->x.h_final);
    job->made = residuals ? residuals : &own;
    run(job);
  } else
    status = gdn2_fail(GDN2_ERR_MEMORY, "no memory for %zu bytes between the backward's kernels", arena.used);
  free(memory);
  free(block);
  return status;
}

/* residuals: those of the forward, or all NULL. */
static gdn2_status open_backward(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_inputs *inputs,
                                 const gdn2_seed_residuals *residuals, const float *d_o, const float *dh_final,
                                 const gdn2_seed_gradients *gradients) {
  const gdn2_seed_array arrays[] = {
      GDN2_SEED_OF_INPUTS(inputs),
      GDN2_SEED_OF_RESIDUALS(GDN2_SEED_MAY, residuals),
      GDN2_SEED_IN(d_o, VALUE_TOKENS),
      GDN2_SEED_MAY(dh_final, STATE),
      GDN2_SEED_OUT(gradients->dq, KEY_TOKENS),
      GDN2_SEED_OUT(gradients->dk, KEY_TOKENS),
      GDN2_SEED_OUT(gradients->dv, VALUE_TOKENS),
      GDN2_SEED_OUT(gradients->dw, VALUE_TOKENS),
      GDN2_SEED_OUT(gradients->db, KEY_TOKENS),
      GDN2_SEED_OUT(gradients->dg, KEY_TOKENS),
      GDN2_SEED_OUT(gradients->dh0, STATE),
  };
  return GDN2_SEED_OPEN(frame, call, arrays);
}

gdn2_status gdn2_seed_backward(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, const gdn2_seed_residuals *residuals,
                               const float *d_o, const float *dh_final, const gdn2_seed_gradients *gradients) {
  gdn2_seed_frame frame;
  gdn2_status status = GDN2_SEED_NEED(call, inputs, gradients);
  if (status == GDN2_OK && residuals) status = gdn2_seed_check_residuals(residuals);
  if (status == GDN2_OK)
    status = open_backward(&frame, call, inputs, residuals ? residuals : &(gdn2_seed_residuals){0}, d_o, dh_final, gradients);
  if (status != GDN2_OK) return status;
  gradient_job job = {.frame = &frame, .in = inputs, .out = gradients, .d_o_tokens = d_o, .dh_final = dh_final};
  status = allocate_and_run(&job, residuals);
  gdn2_seed_frame_close(&frame);
  return status;
}
