/* Backward: one task per (batch, head). A first pass keeps the state at the start of every segment of N chunks; then, from the
 * last segment to the first, the forward of the segment is replayed with a state per chunk, and its chunks are walked in reverse.
 * N grows with the square root of the length, and so does the memory. */
#include "base/par_for.h"
#include "chunk/layout.h"
#include "drive/chunks.h"

#define SHORTEST_SEGMENT 8

/* About half the square root of the number of chunks: a replayed chunk takes about four times a checkpoint's memory. */
static int64_t segment_length(int64_t chunks) {
  int64_t n = SHORTEST_SEGMENT;
  while (4 * n * n < chunks) n++;
  return n;
}

typedef struct {
  int64_t chunks, segment, segments;
} backward_plan;

static backward_plan plan_of(int64_t T) {
  const int64_t chunks = gdn2_chunk_count(T), segment = segment_length(chunks);
  return (backward_plan){chunks, segment, (chunks + segment - 1) / segment};
}

/* A worker's part of the workspace. */
typedef struct {
  gdn2_grad grad;
  float *dS;          /* [Kp][Vp] gradient of the state behind the chunk at hand */
  float *checkpoints; /* [segments][Kp][Vp] */
  char *replay;       /* segment records, each of replay_bytes: a chunk and the state before it */
  size_t replay_bytes;
} backward_slot;

static float *lay_replay(gdn2_arena *arena, gdn2_shape s, gdn2_chunk *c) {
  *c = gdn2_layout_chunk(arena, s, 1);
  return gdn2_arena_floats(arena, (size_t)s.Kp * (size_t)s.Vp);
}

static backward_slot lay_slot(gdn2_arena *arena, gdn2_shape s, backward_plan plan) {
  const size_t state = (size_t)s.Kp * (size_t)s.Vp;
  backward_slot slot;
  gdn2_arena measure = {NULL, 0};
  gdn2_chunk unused;
  (void)lay_replay(&measure, s, &unused);
  slot.grad = gdn2_layout_grad(arena, s);
  slot.dS = gdn2_arena_floats(arena, state);
  slot.checkpoints = gdn2_arena_floats(arena, state * (size_t)plan.segments);
  slot.replay_bytes = measure.used;
  slot.replay = arena->base ? arena->base + arena->used : NULL;
  /* One record more than chunks: the state behind the last chunk of a segment needs a place. */
  arena->used += measure.used * (size_t)(plan.segment + 1);
  return slot;
}

static size_t slot_bytes(const gdn2_call *call) {
  gdn2_arena measure = {NULL, 0};
  (void)lay_slot(&measure, gdn2_shape_of(call->K, call->V), plan_of(call->T));
  return measure.used;
}

size_t gdn2_backward_bytes(const gdn2_call *call) { return slot_bytes(call) * (size_t)call->threads; }

typedef struct {
  const gdn2_backward_call *call;
  char *workspace;
  size_t bytes; /* per worker */
} backward_work;

/* One head on its way through the backward. */
typedef struct {
  const gdn2_call *in;
  gdn2_shape s;
  backward_plan plan;
  backward_slot slot;
  gdn2_head head;
  gdn2_rows d_o;
  gdn2_head_grad out;
  int want_keys; /* any of dq dk dg db */
} head_work;

static float *replay_record(const head_work *w, int64_t index, gdn2_chunk *c) {
  gdn2_arena arena = {w->slot.replay + w->slot.replay_bytes * (size_t)index, 0};
  return lay_replay(&arena, w->s, c);
}

static float *checkpoint(const head_work *w, int64_t segment) {
  return w->slot.checkpoints + (size_t)segment * (size_t)w->s.Kp * (size_t)w->s.Vp;
}

/* The states at the start of every segment; checkpoint 0 holds the initial state already. */
static void keep_checkpoints(const head_work *w) {
  gdn2_chunk c;
  float *S = replay_record(w, 0, &c);
  for (int64_t segment = 1; segment < w->plan.segments; segment++) {
    const float *from = checkpoint(w, segment - 1);
    for (int64_t i = 0; i < w->plan.segment; i++) {
      const int64_t t0 = ((segment - 1) * w->plan.segment + i) * GDN2_CHUNK;
      gdn2_chunk_forward(w->in->table, w->s, &w->head, w->in->T, t0, 0, from, NULL, &c);
      float *to = i == w->plan.segment - 1 ? checkpoint(w, segment) : S;
      gdn2_chunk_state(w->in->table, w->s, &c, from, to, NULL);
      from = to;
    }
  }
}

/* Chunk `first + i` of the sequence into record i, for i = 0 .. count-1, with the state before each. */
static void replay_segment(const head_work *w, int64_t segment, int64_t first, int64_t count) {
  const float *S0 = checkpoint(w, segment);
  gdn2_chunk c, next;
  for (int64_t i = 0; i < count; i++) {
    float *S1 = replay_record(w, i + 1, &next);
    (void)replay_record(w, i, &c);
    gdn2_chunk_forward(w->in->table, w->s, &w->head, w->in->T, (first + i) * GDN2_CHUNK, 0, S0, NULL, &c);
    if (i + 1 < count) gdn2_chunk_state(w->in->table, w->s, &c, S0, S1, NULL);
    S0 = S1;
  }
}

/* dS0 = diag(gamma_n) dS1 + Qg^T dO - E^T dX, in place                                                                     (33)
 */
static void state_adjoint(const head_work *w, const gdn2_chunk *c, float *dS) {
  const gdn2_shape s = w->s;
  w->in->table->matrix.mul_decay(s.K, s.Vp, 2 * c->n, c->keys.EQ, 1, s.Kp, w->slot.grad.DY, s.Vp, c->keys.gamma_n, dS, s.Vp, dS,
                                 s.Vp);
}

/* Gradients of the keys' side: everything that needs S0^T and dS1^T. */
static void keys_adjoint(head_work *w, int64_t t0, const gdn2_chunk *c, const float *S0) {
  const gdn2_matrix_stages *matrix = &w->in->table->matrix;
  const gdn2_exact_stages *stage = &w->in->table->exact;
  const gdn2_shape s = w->s;
  gdn2_grad *grad = &w->slot.grad;
  const int n = c->n;
  matrix->transpose(n, s.V, c->R, s.Vp, grad->Rt, GDN2_CHUNK);
  matrix->mul_set(2 * n, n, s.V, grad->DY, s.Vp, 1, grad->Rt, GDN2_CHUNK, grad->dTP, GDN2_CHUNK);
  stage->back_project(s, c, S0, w->slot.dS, grad);
  stage->intra(s, n, &c->keys, grad);
  stage->gates(s, &w->head, t0, c, grad, &w->out);
}

static void chunk_backward(head_work *w, int64_t t0, const gdn2_chunk *c, const float *S0) {
  const gdn2_matrix_stages *matrix = &w->in->table->matrix;
  const gdn2_exact_stages *stage = &w->in->table->exact;
  const gdn2_shape s = w->s;
  gdn2_grad *grad = &w->slot.grad;
  const int n = c->n;
  stage->load_do(s, w->d_o, t0, n, grad->DY + (ptrdiff_t)n * s.Vp);
  matrix->mul_set(n, s.Vp, s.K, c->scores.Ktail, s.Kp, 1, w->slot.dS, s.Vp, grad->DY, s.Vp);
  stage->adjoint_solve(s, n, &c->scores, grad->DY);
  if (w->want_keys) keys_adjoint(w, t0, c, S0);
  stage->values(s, &w->head, t0, n, grad->DY, &w->out);
  state_adjoint(w, c, w->slot.dS);
}

static void walk_back(head_work *w) {
  for (int64_t segment = w->plan.segments - 1; segment >= 0; segment--) {
    const int64_t first = segment * w->plan.segment, left = w->plan.chunks - first;
    const int64_t count = left < w->plan.segment ? left : w->plan.segment;
    replay_segment(w, segment, first, count);
    for (int64_t i = count - 1; i >= 0; i--) {
      gdn2_chunk c;
      const float *S0 = replay_record(w, i, &c);
      c.n = gdn2_chunk_length(w->in->T, (first + i) * GDN2_CHUNK);
      chunk_backward(w, (first + i) * GDN2_CHUNK, &c, i == 0 ? checkpoint(w, segment) : S0);
    }
  }
}

static void backward_task(void *context, int64_t task, int worker) {
  const backward_work *work = context;
  const gdn2_backward_call *call = work->call;
  const gdn2_call *in = &call->in;
  const int64_t batch = task / in->H, h = task % in->H;
  const gdn2_exact_stages *stage = &in->table->exact;
  gdn2_arena arena = {work->workspace + work->bytes * (size_t)worker, 0};
  head_work w = {.in = in, .s = gdn2_shape_of(in->K, in->V), .plan = plan_of(in->T)};
  w.slot = lay_slot(&arena, w.s, w.plan);
  w.head = gdn2_head_of(in, gdn2_span_of(in, batch), h);
  w.d_o = gdn2_view_rows(&call->d_o, batch, 0, h, 0.0f);
  w.out = (gdn2_head_grad){gdn2_view_rows_out(&call->dq, batch, 0, h), gdn2_view_rows_out(&call->dk, batch, 0, h),
                           gdn2_view_rows_out(&call->dv, batch, 0, h), gdn2_view_rows_out(&call->dg, batch, 0, h),
                           gdn2_view_rows_out(&call->db, batch, 0, h), gdn2_view_rows_out(&call->dw, batch, 0, h)};
  w.want_keys = w.out.dq.at || w.out.dk.at || w.out.dg.at || w.out.db.at;

  stage->state_load(w.s, gdn2_view_state(&call->dh_final, batch, h), w.slot.dS);
  if (in->T > 0) {
    stage->state_load(w.s, gdn2_view_state(&in->h0, batch, h), checkpoint(&w, 0));
    keep_checkpoints(&w);
    walk_back(&w);
  }
  if (call->dh0.data) stage->state_store(w.s, w.slot.dS, gdn2_view_state_out(&call->dh0, batch, h));
}

void gdn2_drive_backward(const gdn2_backward_call *call, void *workspace) {
  backward_work work = {call, workspace, slot_bytes(&call->in)};
  gdn2_par_for(call->in.threads, call->in.B * call->in.H, backward_task, &work);
}
