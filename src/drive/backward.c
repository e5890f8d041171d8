/* Backward: one task per (block of sequences, unit of heads); see backward_plan.h. Of each sequence a first pass keeps the state
 * at the start of every segment; then, from the last segment to the first, the forward of the segment is replayed with a state
 * per chunk, and its chunks are walked in reverse. Value heads of one key head take turns at each segment, and the rows of the
 * gradients that they add to are finished when the last of them is through. */
#include "base/par_for.h"
#include "drive/backward_plan.h"

typedef struct {
  const gdn2_backward_call *call;
  gdn2_backward_plan plan;
  double *parts; /* [blocks][heads of g][plan.parts] */
  char *slots;
  size_t slot_bytes;
} backward_work;

/* A unit of heads of one sequence on its way through the backward. */
typedef struct {
  const gdn2_backward_call *call;
  const backward_work *work;
  gdn2_shape s;
  gdn2_span at;
  gdn2_segments segments;
  gdn2_backward_slot slot;
  int64_t block, unit;
} sequence_walk;

/* One of its value heads, at one segment: chunks first .. first+count-1. */
typedef struct {
  const sequence_walk *w;
  gdn2_head head;
  gdn2_rows d_o;
  gdn2_head_grad out;
  float *dS, *S0; /* behind the chunk at hand; before the segment */
  int64_t first, count;
  int wants_keys; /* any of dq dk dg db */
} segment_walk;

static float *replay_record(const sequence_walk *w, int64_t index, gdn2_chunk *c) {
  gdn2_arena arena = {w->slot.replay + w->slot.replay_bytes * (size_t)index, 0};
  float *S0 = gdn2_backward_lay_record(&arena, w->s, c);
  c->X = w->slot.passing.X;
  return S0;
}

static size_t state_size(const sequence_walk *w) { return (size_t)w->s.Kp * (size_t)w->s.Vp; }

static float *state_gradient(const sequence_walk *w, int64_t i) { return w->slot.dS + (size_t)i * state_size(w); }

static float *checkpoint(const sequence_walk *w, int64_t i, int64_t segment) {
  return w->slot.checkpoints + (size_t)(i * w->segments.count + segment) * state_size(w);
}

static int64_t value_head(const backward_work *work, int64_t unit, int64_t i) {
  return work->plan.heads == 1 ? unit : gdn2_value_head(&work->call->in, unit, i);
}

static int64_t g_head(const backward_work *work, int64_t j) {
  return work->call->in.g_key_heads ? gdn2_key_head(&work->call->in, j) : j;
}

/* ---- The forward: kept states, and a segment again ---- */

/* The states of value head i at the start of every segment; checkpoint 0 holds the initial state already. */
static void keep_checkpoints(const sequence_walk *w, int64_t i) {
  const gdn2_call *in = &w->call->in;
  const gdn2_head head = gdn2_head_of(in, w->at, value_head(w->work, w->unit, i));
  gdn2_chunk c = w->slot.passing, unused;
  float *S = replay_record(w, 0, &unused);
  for (int64_t segment = 1; segment < w->segments.count; segment++) {
    const float *from = checkpoint(w, i, segment - 1);
    for (int64_t x = 0; x < w->segments.length; x++) {
      const int64_t t0 = ((segment - 1) * w->segments.length + x) * GDN2_CHUNK;
      (void)gdn2_chunk_forward(in, w->s, &head, w->at.length, t0, 0, from, NULL, NULL, &c);
      float *to = x == w->segments.length - 1 ? checkpoint(w, i, segment) : S;
      gdn2_chunk_state(in, w->s, &c, from, to, NULL);
      from = to;
    }
  }
}

/* Chunk `first + x` of the sequence into record x, with the state before each. */
static void replay(const segment_walk *g) {
  const sequence_walk *w = g->w;
  const gdn2_call *in = &w->call->in;
  const float *S0 = g->S0;
  gdn2_chunk c, next;
  for (int64_t x = 0; x < g->count; x++) {
    float *S1 = replay_record(w, x + 1, &next);
    (void)replay_record(w, x, &c);
    (void)gdn2_chunk_forward(in, w->s, &g->head, w->at.length, (g->first + x) * GDN2_CHUNK, 0, S0, NULL, NULL, &c);
    if (x + 1 < g->count) gdn2_chunk_state(in, w->s, &c, S0, S1, NULL);
    S0 = S1;
  }
}

/* ---- One chunk in reverse ---- */

/* dS0 = diag(gamma_n) dS1 + Qg^T dO - E^T dX, in place                                                                     (33)
 */
static void state_adjoint(const segment_walk *g, const gdn2_chunk *c) {
  const gdn2_shape s = g->w->s;
  g->w->call->in.table->matrix.mul_decay(s.K, s.Vp, 2 * c->n, c->keys.EQ, 1, s.Kp, g->w->slot.grad.DY, s.Vp, c->keys.gamma_n,
                                         g->dS, s.Vp, g->dS, s.Vp);
}

/* The rows that wait, from the chunk's or the segment's first token on. */
static gdn2_wait rows_from(gdn2_wait wait, ptrdiff_t offset) {
  return (gdn2_wait){wait.dq ? wait.dq + offset : NULL, wait.dk ? wait.dk + offset : NULL, wait.dg ? wait.dg + offset : NULL,
                     wait.db ? wait.db + offset : NULL};
}

/* Gradients of the keys' side: everything that needs S0^T and dS1^T. */
static void keys_adjoint(segment_walk *g, int64_t x, const gdn2_chunk *c, const float *S0) {
  const gdn2_call *in = &g->w->call->in;
  const gdn2_matrix_stages *matrix = &in->table->matrix;
  const gdn2_shape s = g->w->s;
  const gdn2_grad *grad = &g->w->slot.grad;
  gdn2_head_grad out = g->out;
  const int n = c->n;
  uint64_t since = gdn2_profile_now(in->profile);
  matrix->transpose(n, s.V, c->R, s.Vp, grad->Rt, GDN2_CHUNK);
  matrix->mul_set(2 * n, n, s.V, grad->DY, s.Vp, 1, grad->Rt, GDN2_CHUNK, grad->dTP, GDN2_CHUNK);
  in->table->exact.back_project(s, c, S0, g->dS, grad);
  since = gdn2_profile_lap(in->profile, GDN2_STAGE_BACK_PROJECT, since);
  out.wait = rows_from(out.wait, (ptrdiff_t)x * GDN2_CHUNK * s.Kp);
  in->table->exact.gates(s, &g->head, (g->first + x) * GDN2_CHUNK, c, grad, &out);
  (void)gdn2_profile_lap(in->profile, GDN2_STAGE_GATES, since);
}

/* Chunk x of the segment. */
static void chunk_backward(segment_walk *g, int64_t x, const gdn2_chunk *c, const float *S0) {
  const gdn2_call *in = &g->w->call->in;
  const gdn2_exact_stages *stage = &in->table->exact;
  const gdn2_shape s = g->w->s;
  const int64_t t0 = (g->first + x) * GDN2_CHUNK;
  float *DY = g->w->slot.grad.DY;
  const int n = c->n;
  uint64_t since = gdn2_profile_now(in->profile);
  stage->load_do(s, g->d_o, t0, n, DY + (ptrdiff_t)n * s.Vp);
  in->table->matrix.mul_set(n, s.Vp, s.K, c->scores.Ktail, s.Kp, 1, g->dS, s.Vp, DY, s.Vp);
  stage->adjoint_solve(s, n, &c->scores, DY);
  (void)gdn2_profile_lap(in->profile, GDN2_STAGE_ADJOINT, since);
  if (g->wants_keys) keys_adjoint(g, x, c, S0);
  since = gdn2_profile_now(in->profile);
  stage->values(s, &g->head, t0, n, DY, &g->out);
  since = gdn2_profile_lap(in->profile, GDN2_STAGE_VALUES, since);
  state_adjoint(g, c);
  (void)gdn2_profile_lap(in->profile, GDN2_STAGE_STATE_ADJOINT, since);
}

/* ---- A segment, a sequence, a task ---- */

/* The rows that belong to value head i, `edge` being the first or last one of a task: those of all its heads only there. */
static gdn2_wait rows_of(const sequence_walk *w, int64_t i, int64_t edge) {
  const gdn2_wait all = w->slot.wait;
  if (i == edge) return all;
  return (gdn2_wait){.dg = w->work->plan.g_shared ? NULL : all.dg};
}

static void clear_rows(const sequence_walk *w, gdn2_wait rows) {
  const size_t bytes = (size_t)w->segments.length * GDN2_CHUNK * (size_t)w->s.Kp * sizeof(float);
  float *const each[] = {rows.dq, rows.dk, rows.dg, rows.db};
  for (int x = 0; x < GDN2_WAITS; x++)
    if (each[x]) memset(each[x], 0, bytes);
}

static gdn2_decay_sums sums_of(const backward_work *work, int64_t block, int64_t head) {
  const gdn2_backward_call *call = work->call;
  double *parts = work->parts + (block * gdn2_g_heads(&call->in) + head) * work->plan.parts;
  return (gdn2_decay_sums){call->dA_log.data ? parts : NULL, call->ddt_bias.data ? parts + (call->dA_log.data ? 1 : 0) : NULL};
}

/* What value head i of the unit reads and writes. */
static segment_walk walk_of(const sequence_walk *w, int64_t i, int64_t segment) {
  const gdn2_backward_call *call = w->call;
  const gdn2_call *in = &call->in;
  const int64_t j = value_head(w->work, w->unit, i), key = gdn2_key_head(in, j), batch = w->at.batch, start = w->at.start;
  const int64_t first = segment * w->segments.length, left = w->segments.chunks - first;
  segment_walk g = {.w = w,
                    .head = gdn2_head_of(in, w->at, j),
                    .d_o = gdn2_view_rows(&call->d_o, batch, start, j, 0.0f),
                    .dS = state_gradient(w, i),
                    .S0 = checkpoint(w, i, segment),
                    .first = first,
                    .count = left < w->segments.length ? left : w->segments.length};
  g.out = (gdn2_head_grad){.dq = gdn2_view_rows_out(&call->dq, batch, start, key),
                           .dk = gdn2_view_rows_out(&call->dk, batch, start, key),
                           .dv = gdn2_view_rows_out(&call->dv, batch, start, j),
                           .dg = gdn2_view_rows_out(&call->dg, batch, start, in->g_key_heads ? key : j),
                           .db = gdn2_view_rows_out(&call->db, batch, start, in->b_key_heads ? key : j),
                           .dw = gdn2_view_rows_out(&call->dw, batch, start, j),
                           .wait = w->slot.wait};
  g.wants_keys = g.out.dq.at || g.out.dk.at || g.out.dg.at || g.out.db.at || g.out.wait.dg;
  return g;
}

static void walk_segment(const sequence_walk *w, int64_t segment) {
  const int64_t heads = w->work->plan.heads, t0 = segment * w->segments.length * GDN2_CHUNK;
  for (int64_t i = 0; i < heads; i++) {
    segment_walk g = walk_of(w, i, segment);
    clear_rows(w, rows_of(w, i, 0));
    replay(&g);
    for (int64_t x = g.count - 1; x >= 0; x--) {
      gdn2_chunk c;
      const float *S0 = replay_record(w, x, &c);
      c.n = gdn2_chunk_length(w->at.length, t0 + x * GDN2_CHUNK);
      chunk_backward(&g, x, &c, x == 0 ? g.S0 : S0);
    }
    const int64_t left = w->at.length - t0, tokens = left < g.count * GDN2_CHUNK ? left : g.count * GDN2_CHUNK;
    const int64_t j = value_head(w->work, w->unit, i);
    const uint64_t since = gdn2_profile_now(w->call->in.profile);
    g.out.wait = rows_of(w, i, heads - 1);
    w->call->in.table->exact.chain(w->s, &g.head, t0, tokens, &g.out, sums_of(w->work, w->block, g_head(w->work, j)));
    (void)gdn2_profile_lap(w->call->in.profile, GDN2_STAGE_CHAIN, since);
  }
}

static void walk_sequence(const sequence_walk *w) {
  const gdn2_backward_call *call = w->call;
  const gdn2_exact_stages *stage = &call->in.table->exact;
  for (int64_t i = 0; i < w->work->plan.heads; i++) {
    const int64_t j = value_head(w->work, w->unit, i);
    stage->state_load(w->s, gdn2_view_state(&call->dh_final, w->at.sequence, j), state_gradient(w, i));
    if (w->segments.count == 0) continue;
    stage->state_load(w->s, gdn2_view_state(&call->in.h0, w->at.sequence, j), checkpoint(w, i, 0));
    keep_checkpoints(w, i);
  }
  for (int64_t segment = w->segments.count - 1; segment >= 0; segment--) walk_segment(w, segment);
  for (int64_t i = 0; call->dh0.data && i < w->work->plan.heads; i++)
    stage->state_store(w->s, state_gradient(w, i),
                       gdn2_view_state_out(&call->dh0, w->at.sequence, value_head(w->work, w->unit, i)));
}

static void start_sums(const backward_work *work, int64_t block, int64_t unit) {
  const gdn2_call *in = &work->call->in;
  const int64_t parts = work->plan.parts, heads = gdn2_g_heads(in);
  for (int64_t i = 0; parts > 0 && i < work->plan.heads; i++)
    memset(work->parts + (block * heads + g_head(work, value_head(work, unit, i))) * parts, 0, (size_t)parts * sizeof(double));
}

static void backward_task(void *context, int64_t task, int worker) {
  const backward_work *work = context;
  const gdn2_backward_call *call = work->call;
  const int64_t block = task / work->plan.units, unit = task % work->plan.units, first = block * work->plan.block;
  start_sums(work, block, unit);
  for (int64_t n = first; n < first + work->plan.block && n < call->in.N; n++) {
    gdn2_arena arena = {work->slots + work->slot_bytes * (size_t)worker, 0};
    sequence_walk w = {.call = call, .work = work, .s = gdn2_shape_of(call->in.K, call->in.V), .block = block, .unit = unit};
    w.at = gdn2_span_of(&call->in, n);
    w.segments = gdn2_segments_of(call, w.at.length);
    w.slot = gdn2_backward_lay(&arena, w.s, &work->plan, w.segments);
    walk_sequence(&w);
  }
}

/* ---- A call ---- */

/* Zeros for the tokens that belong to no sequence. */
static void clear_rest(const gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  gdn2_clear_rest(in, &call->dq, in->H, in->K);
  gdn2_clear_rest(in, &call->dk, in->H, in->K);
  gdn2_clear_rest(in, &call->dv, in->HV, in->V);
  gdn2_clear_rest(in, &call->dg, gdn2_g_heads(in), in->K);
  gdn2_clear_rest(in, &call->db, gdn2_b_heads(in), in->K);
  gdn2_clear_rest(in, &call->dw, in->HV, in->V);
}

/* dA_log and ddt_bias: the blocks' sums, in their order. */
static void collect(const backward_work *work) {
  const gdn2_backward_call *call = work->call;
  const int64_t heads = gdn2_g_heads(&call->in), step = heads * work->plan.parts;
  for (int64_t h = 0; work->plan.parts > 0 && h < heads; h++) {
    const gdn2_decay_sums sums = sums_of(work, 0, h);
    if (sums.A_log)
      call->in.table->exact.collect(work->plan.blocks, step, sums.A_log, 1, gdn2_view_rows_out(&call->dA_log, 0, 0, h));
    if (sums.dt_bias)
      call->in.table->exact.collect(work->plan.blocks, step, sums.dt_bias, (int)call->in.K,
                                    gdn2_view_rows_out(&call->ddt_bias, 0, 0, h));
  }
}

/* Every state and record is less than a MiB; with many of them, the sum could leave 64 bits. */
static int beyond_memory(const gdn2_backward_call *call, const gdn2_backward_plan *plan) {
  const double chunks = (double)gdn2_chunk_count(call->in.T) + 2;
  return (double)plan->workers * ((double)plan->heads + 1) * chunks > (double)((int64_t)1 << 42);
}

size_t gdn2_backward_bytes(const gdn2_backward_call *call) {
  const gdn2_backward_plan plan = gdn2_backward_plan_of(call);
  if (call->checkpoint_every > 0 && beyond_memory(call, &plan)) return SIZE_MAX;
  return gdn2_backward_sum_bytes(call, &plan) + gdn2_backward_slot_bytes(call, &plan) * (size_t)plan.workers;
}

void gdn2_drive_backward(const gdn2_backward_call *call, void *workspace) {
  backward_work work = {.call = call, .plan = gdn2_backward_plan_of(call), .parts = workspace};
  work.slots = (char *)workspace + gdn2_backward_sum_bytes(call, &work.plan);
  work.slot_bytes = gdn2_backward_slot_bytes(call, &work.plan);
  gdn2_par_for(work.plan.workers, work.plan.units * work.plan.blocks, backward_task, &work);
  collect(&work);
  clear_rest(call);
}
