/* Backward: one task per (block of sequences, group of units of heads); see backward_plan.h. The state at the start of every
 * segment of a sequence comes from the forward's snapshots, or else from a first pass. Then, from the last segment to the first,
 * the forward of the segment is replayed with a state per chunk, and its chunks are walked in reverse. The heads of a task take
 * turns at each segment: their rows lie side by side in memory, so that pages are used while they are at hand; and the rows of
 * gradients that value heads of one key head add to are finished when the last of them is through. */
#include "base/flush.h"
#include "base/par_for.h"
#include "drive/backward_plan.h"
#include "drive/step.h"

typedef struct {
  const gdn2_backward_call *call;
  gdn2_backward_plan plan;
  double *parts; /* [blocks][heads of g][plan.parts] */
  char *slots;
  size_t slot_bytes;
} backward_work;

/* Some units of heads of one sequence on their way through the backward. A head's place is its number among all their heads. */
typedef struct {
  const gdn2_backward_call *call;
  const backward_work *work;
  gdn2_shape s;
  gdn2_span at;
  gdn2_segments segments;
  gdn2_backward_slot slot;
  int64_t block, first, places; /* first: of the units */
} sequence_walk;

/* One of the value heads, at one segment: chunks first .. first+count-1. */
typedef struct {
  const sequence_walk *w;
  gdn2_head head;
  gdn2_rows d_o, R; /* R: the forward's, or absent */
  gdn2_head_grad out;
  float *dS; /* behind the chunk at hand */
  int64_t first, count;
  gdn2_ahead forward, reverse; /* the rows that a chunk's replay reads; that its way back reads and writes */
  int wants_keys;              /* any of dq dk dg db */
} segment_walk;

static float *replay_record(const sequence_walk *w, int64_t index, gdn2_chunk *c) {
  gdn2_arena arena = {w->slot.replay + w->slot.replay_bytes * (size_t)index, 0};
  float *S0 = gdn2_backward_lay_record(&arena, w->s, c);
  c->X = w->slot.passing.X;
  return S0;
}

static float *state_gradient(const sequence_walk *w, int64_t place) {
  return w->slot.dS + (size_t)place * (size_t)w->s.Kp * (size_t)w->s.Sp;
}

/* Of a segment that is not the first. */
static gdn2_state_out checkpoint(const sequence_walk *w, int64_t place, int64_t segment) {
  const size_t state = (size_t)w->s.K * (size_t)w->s.V;
  return (gdn2_state_out){w->slot.checkpoints + (size_t)(place * (w->segments.count - 1) + segment - 1) * state, w->s.V, 1};
}

static int64_t unit_head(const backward_work *work, int64_t unit, int64_t i) {
  return work->plan.heads == 1 ? unit : gdn2_value_head(&work->call->in, unit, i);
}

static int64_t value_head(const sequence_walk *w, int64_t place) {
  return unit_head(w->work, w->first + place / w->work->plan.heads, place % w->work->plan.heads);
}

static int64_t g_head(const backward_work *work, int64_t j) {
  return work->call->in.g_key_heads ? gdn2_key_head(&work->call->in, j) : j;
}

/* ---- The forward: kept states, and a segment again ---- */

/* The state before a segment: a checkpoint, or a snapshot, or h0; in the first record's place. */
static float *state_before(const sequence_walk *w, int64_t place, int64_t segment) {
  const gdn2_backward_call *call = w->call;
  const int64_t j = value_head(w, place);
  gdn2_chunk unused;
  float *S = replay_record(w, 0, &unused);
  gdn2_state from;
  if (segment == 0) {
    from = gdn2_view_state(&call->in.h0, w->at.sequence, j);
  } else if (call->snapshots.data) {
    from = gdn2_snapshot_state(&call->snapshots, call->snapshot_every, w->at, segment - 1, j);
  } else {
    const gdn2_state_out kept = checkpoint(w, place, segment);
    from = (gdn2_state){kept.at, kept.key_step, kept.value_step};
  }
  call->in.table->exact.state_load(w->s, from, S);
  return S;
}

/* The chunk of a head at t0 again, up to R. */
static void chunk_again(const sequence_walk *w, const gdn2_head *head, gdn2_rows R, int64_t t0, const float *S0, gdn2_ahead *next,
                        gdn2_chunk *c) {
  const gdn2_call *in = &w->call->in;
  if (R.at) {
    gdn2_chunk_again(in, w->s, head, R, w->at.length, t0, c);
  } else {
    gdn2_chunk_scores(in, w->s, head, w->at.length, t0, c);
    (void)gdn2_chunk_values(in, w->s, head, t0, 0, S0, NULL, next, c);
  }
}

static gdn2_rows residual_of(const sequence_walk *w, int64_t j) {
  return gdn2_view_rows(&w->call->residual, w->at.batch, w->at.start, j, 0.0f);
}

/* One segment of the head at a place, to the next one's checkpoint. */
static void pass_segment(const sequence_walk *w, int64_t place, int64_t segment) {
  const gdn2_call *in = &w->call->in;
  const gdn2_head head = gdn2_head_of(in, w->at, value_head(w, place));
  const gdn2_rows R = residual_of(w, value_head(w, place));
  const gdn2_ahead rows = gdn2_ahead_of_replay(w->s, &head, R);
  gdn2_chunk c = w->slot.passing;
  float *S = state_before(w, place, segment);
  for (int64_t x = 0; x < w->segments.length; x++) {
    const int64_t t0 = (segment * w->segments.length + x) * GDN2_CHUNK;
    gdn2_ahead next = gdn2_ahead_from(rows, w->at.length, t0 + GDN2_CHUNK);
    chunk_again(w, &head, R, t0, S, &next, &c);
    gdn2_chunk_state(in, w->s, &c, S, S, &next);
  }
  in->table->exact.state_store(w->s, S, checkpoint(w, place, segment + 1));
}

/* The states at the start of every segment but the first, where the forward has not kept them. */
static void keep_checkpoints(const sequence_walk *w) {
  for (int64_t segment = 0; segment + 1 < w->segments.count; segment++)
    for (int64_t place = 0; place < w->places; place++) pass_segment(w, place, segment);
}

/* Chunk `first + x` of the sequence into record x, with the state before each; that before the first is there. */
static void replay(const segment_walk *g) {
  const sequence_walk *w = g->w;
  const gdn2_call *in = &w->call->in;
  gdn2_chunk c, unused;
  float *S0 = replay_record(w, 0, &unused);
  for (int64_t x = 0; x < g->count; x++) {
    const int64_t t0 = (g->first + x) * GDN2_CHUNK;
    const int last = x + 1 == g->count;
    gdn2_ahead next = gdn2_ahead_from(last ? g->reverse : g->forward, w->at.length, last ? t0 : t0 + GDN2_CHUNK);
    float *S1 = replay_record(w, x + 1, &unused);
    (void)replay_record(w, x, &c);
    chunk_again(w, &g->head, g->R, t0, S0, &next, &c);
    if (!last) gdn2_chunk_state(in, w->s, &c, S0, S1, &next);
    S0 = S1;
  }
}

/* ---- One chunk in reverse ---- */

/* The rows that wait, from the chunk's or the segment's first token on. */
static gdn2_wait rows_from(gdn2_wait wait, ptrdiff_t offset) {
  return (gdn2_wait){wait.dq ? wait.dq + offset : NULL, wait.dk ? wait.dk + offset : NULL, wait.dg ? wait.dg + offset : NULL,
                     wait.db ? wait.db + offset : NULL};
}

/* Gradients of the keys' side: everything that needs S0^T and dS1^T. */
static void keys_adjoint(segment_walk *g, int64_t x, const gdn2_chunk *c, const float *S0, gdn2_ahead *next) {
  const gdn2_call *in = &g->w->call->in;
  const gdn2_matrix_stages *matrix = &in->table->matrix;
  const gdn2_shape s = g->w->s;
  const gdn2_grad *grad = &g->w->slot.grad;
  gdn2_head_grad out = g->out;
  const int n = c->n;
  uint64_t since = gdn2_profile_now(in->profile);
  matrix->transpose(n, s.V, c->R, s.Vp, grad->Rt, GDN2_CHUNK);
  matrix->mul_set(2 * n, n, s.V, grad->DY, s.Vp, 1, grad->Rt, GDN2_CHUNK, grad->dTP, GDN2_CHUNK);
  in->table->exact.back_project(s, c, S0, g->dS, grad, next);
  since = gdn2_profile_lap(in->profile, GDN2_STAGE_BACK_PROJECT, since);
  out.wait = rows_from(out.wait, (ptrdiff_t)x * GDN2_CHUNK * s.Kp);
  in->table->exact.gates(s, &g->head, (g->first + x) * GDN2_CHUNK, c, grad, &out);
  (void)gdn2_profile_lap(in->profile, GDN2_STAGE_GATES, since);
}

/* Chunk x of the segment; next: what to fetch meanwhile. */
static void chunk_backward(segment_walk *g, int64_t x, const gdn2_chunk *c, const float *S0, gdn2_ahead *next) {
  const gdn2_call *in = &g->w->call->in;
  const gdn2_exact_stages *stage = &in->table->exact;
  const gdn2_shape s = g->w->s;
  const int64_t t0 = (g->first + x) * GDN2_CHUNK;
  float *DY = g->w->slot.grad.DY;
  const int n = c->n;
  uint64_t since = gdn2_profile_now(in->profile);
  stage->rows_load(s, g->d_o, t0, n, DY + (ptrdiff_t)n * s.Vp);
  stage->project(s, n, c->scores.Ktail, g->dS, DY, next);
  stage->adjoint_solve(s, n, &c->scores, DY);
  (void)gdn2_profile_lap(in->profile, GDN2_STAGE_ADJOINT, since);
  if (g->wants_keys) keys_adjoint(g, x, c, S0, next);
  since = gdn2_profile_now(in->profile);
  stage->values(s, &g->head, t0, n, DY, &g->out);
  since = gdn2_profile_lap(in->profile, GDN2_STAGE_VALUES, since);
  stage->update(s, 2 * n, c->keys.EQ, DY, c->keys.gamma_n, g->dS, g->dS, next); /* (33) */
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

/* The rows that a chunk's way back reads and writes; those that wait are at hand. */
static gdn2_ahead reverse_rows(gdn2_shape s, const segment_walk *g) {
  const gdn2_wait wait = g->out.wait;
  gdn2_ahead ahead = gdn2_ahead_new(s, 4, 12);
  gdn2_ahead_add(&ahead, g->d_o, s.V);
  gdn2_ahead_add(&ahead, g->head.b, s.K);
  if (!wait.dq) gdn2_ahead_add_out(&ahead, g->out.dq, s.K);
  if (!wait.dk) gdn2_ahead_add_out(&ahead, g->out.dk, s.K);
  if (!wait.dg) gdn2_ahead_add_out(&ahead, g->out.dg, s.K);
  if (!wait.db) gdn2_ahead_add_out(&ahead, g->out.db, s.K);
  gdn2_ahead_add(&ahead, g->head.v, s.V);
  gdn2_ahead_add(&ahead, g->head.w, s.V);
  gdn2_ahead_add_out(&ahead, g->out.dv, s.V);
  gdn2_ahead_add_out(&ahead, g->out.dw, s.V);
  return ahead;
}

/* What the head at a place reads and writes. */
static segment_walk walk_of(const sequence_walk *w, int64_t place, int64_t segment) {
  const gdn2_backward_call *call = w->call;
  const gdn2_call *in = &call->in;
  const int64_t j = value_head(w, place), key = gdn2_key_head(in, j), batch = w->at.batch, start = w->at.start;
  const int64_t first = segment * w->segments.length, left = w->segments.chunks - first;
  segment_walk g = {.w = w,
                    .head = gdn2_head_of(in, w->at, j),
                    .d_o = gdn2_view_rows(&call->d_o, batch, start, j, 0.0f),
                    .R = residual_of(w, j),
                    .dS = state_gradient(w, place),
                    .first = first,
                    .count = left < w->segments.length ? left : w->segments.length};
  g.out = (gdn2_head_grad){.dq = gdn2_view_rows_out(&call->dq, batch, start, key),
                           .dk = gdn2_view_rows_out(&call->dk, batch, start, key),
                           .dv = gdn2_view_rows_out(&call->dv, batch, start, j),
                           .dg = gdn2_view_rows_out(&call->dg, batch, start, in->g_key_heads ? key : j),
                           .db = gdn2_view_rows_out(&call->db, batch, start, in->b_key_heads ? key : j),
                           .dw = gdn2_view_rows_out(&call->dw, batch, start, j),
                           .wait = w->slot.wait};
  g.forward = gdn2_ahead_of_replay(w->s, &g.head, g.R);
  g.reverse = reverse_rows(w->s, &g);
  g.wants_keys = g.out.dq.at || g.out.dk.at || g.out.dg.at || g.out.db.at || g.out.wait.dg;
  return g;
}

/* The first rows of the replay that follows on that of a place at a segment. */
static gdn2_ahead next_replay(const sequence_walk *w, int64_t place, int64_t segment) {
  const int last = place + 1 == w->places;
  if (last && segment == 0) return (gdn2_ahead){.at = NULL};
  const int64_t j = value_head(w, last ? 0 : place + 1);
  const gdn2_head head = gdn2_head_of(&w->call->in, w->at, j);
  return gdn2_ahead_from(gdn2_ahead_of_replay(w->s, &head, residual_of(w, j)), w->at.length,
                         (last ? segment - 1 : segment) * w->segments.length * GDN2_CHUNK);
}

static void walk_segment(const sequence_walk *w, int64_t place, int64_t segment) {
  const int64_t heads = w->work->plan.heads, t0 = segment * w->segments.length * GDN2_CHUNK;
  segment_walk g = walk_of(w, place, segment);
  clear_rows(w, rows_of(w, place % heads, 0));
  (void)state_before(w, place, segment);
  replay(&g);
  for (int64_t x = g.count - 1; x >= 0; x--) {
    gdn2_chunk c;
    const float *S0 = replay_record(w, x, &c);
    c.n = gdn2_chunk_length(w->at.length, t0 + x * GDN2_CHUNK);
    const int64_t before = t0 + (x - 1) * GDN2_CHUNK;
    gdn2_ahead next = x > 0 ? gdn2_ahead_from(g.reverse, w->at.length, before) : next_replay(w, place, segment);
    chunk_backward(&g, x, &c, S0, &next);
  }
  const int64_t left = w->at.length - t0, tokens = left < g.count * GDN2_CHUNK ? left : g.count * GDN2_CHUNK;
  const uint64_t since = gdn2_profile_now(w->call->in.profile);
  g.out.wait = rows_of(w, place % heads, heads - 1);
  w->call->in.table->exact.chain(w->s, &g.head, t0, tokens, &g.out,
                                 sums_of(w->work, w->block, g_head(w->work, value_head(w, place))));
  (void)gdn2_profile_lap(w->call->in.profile, GDN2_STAGE_CHAIN, since);
}

static void walk_sequence(const sequence_walk *w) {
  const gdn2_backward_call *call = w->call;
  const gdn2_exact_stages *stage = &call->in.table->exact;
  for (int64_t place = 0; place < w->places; place++)
    stage->state_load(w->s, gdn2_view_state(&call->dh_final, w->at.sequence, value_head(w, place)), state_gradient(w, place));
  if (!call->snapshots.data) keep_checkpoints(w);
  for (int64_t segment = w->segments.count - 1; segment >= 0; segment--)
    for (int64_t place = 0; place < w->places; place++) walk_segment(w, place, segment);
  for (int64_t place = 0; call->dh0.data && place < w->places; place++)
    stage->state_store(w->s, state_gradient(w, place), gdn2_view_state_out(&call->dh0, w->at.sequence, value_head(w, place)));
}

static void start_sums(const backward_work *work, int64_t block, int64_t unit) {
  const gdn2_call *in = &work->call->in;
  const int64_t parts = work->plan.parts, heads = gdn2_g_heads(in);
  for (int64_t i = 0; parts > 0 && i < work->plan.heads; i++)
    memset(work->parts + (block * heads + g_head(work, unit_head(work, unit, i))) * parts, 0, (size_t)parts * sizeof(double));
}

static void backward_task(void *context, int64_t task, int worker) {
  const backward_work *work = context;
  const gdn2_backward_call *call = work->call;
  const gdn2_backward_plan *plan = &work->plan;
  const int64_t block = task / plan->groups, first = task % plan->groups * plan->group, left = plan->units - first,
                units = left < plan->group ? left : plan->group;
  const uint64_t mode = gdn2_flush_begin(1);
  for (int64_t unit = first; unit < first + units; unit++) start_sums(work, block, unit);
  for (int64_t n = block * plan->block; n < (block + 1) * plan->block && n < call->in.N; n++) {
    gdn2_arena arena = {work->slots + work->slot_bytes * (size_t)worker, 0};
    sequence_walk w = {.call = call, .work = work, .s = gdn2_shape_of(call->in.K, call->in.V), .block = block, .first = first};
    w.places = units * plan->heads;
    w.at = gdn2_span_of(&call->in, n);
    w.segments = gdn2_segments_of(call, w.at.length);
    w.slot = gdn2_backward_lay(&arena, call, w.s, plan, w.segments);
    walk_sequence(&w);
  }
  gdn2_flush_end(mode);
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
  return (double)plan->workers * ((double)(plan->heads * plan->group) + 1) * chunks > (double)((int64_t)1 << 42);
}

size_t gdn2_backward_bytes(const gdn2_backward_call *call) {
  const gdn2_backward_plan plan = gdn2_backward_plan_of(call);
  if (!call->snapshots.data && beyond_memory(call, &plan)) return SIZE_MAX;
  return gdn2_backward_sum_bytes(call, &plan) + gdn2_backward_slot_bytes(call, &plan) * (size_t)plan.workers;
}

void gdn2_drive_backward(const gdn2_backward_call *call, void *workspace) {
  backward_work work = {.call = call, .plan = gdn2_backward_plan_of(call), .parts = workspace};
  work.slots = (char *)workspace + gdn2_backward_sum_bytes(call, &work.plan);
  work.slot_bytes = gdn2_backward_slot_bytes(call, &work.plan);
  gdn2_par_for(work.plan.workers, work.plan.groups * work.plan.blocks, backward_task, &work);
  collect(&work);
  clear_rest(call);
}
