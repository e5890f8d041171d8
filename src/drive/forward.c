/* Forward: one task per (sequence, group of heads), or per (sequence, head, panel of value channels) where heads are fewer than
 * threads: the columns of the state do not see each other, so a panel is a head with fewer values. A task walks the heads of its
 * group chunk by chunk: the rows of neighbouring heads lie side by side in memory, so that pages and cache lines are used while
 * they are at hand. */
#include "base/flush.h"
#include "base/par_for.h"
#include "chunk/layout.h"
#include "drive/chunks.h"
#include "drive/step.h"

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }

/* How the work is cut into tasks. Results do not depend on it. */
typedef struct {
  int64_t group;  /* heads of a task */
  int64_t panels; /* of each head */
  int width;      /* value channels of a panel */
} task_split;

static task_split split_of(const gdn2_call *call) {
  const int64_t heads = call->N * call->HV;
  if (heads == 0 || heads >= call->threads) return (task_split){gdn2_group_of(call, call->N, call->HV, 1), 1, (int)call->V};
  const int64_t wanted = gdn2_ceil_div(call->V, gdn2_ceil_div(call->threads, heads));
  const int64_t width = gdn2_ceil_div(wanted, GDN2_NARROWEST) * GDN2_NARROWEST;
  return (task_split){1, gdn2_ceil_div(call->V, width), (int)at_most(width, call->V)};
}

/* A worker's part of the workspace. */
typedef struct {
  gdn2_chunk chunk;
  float *S;     /* [group][Kp][Sp] */
  size_t state; /* floats from one head's state to the next */
} forward_slot;

static forward_slot lay_slot(gdn2_arena *arena, gdn2_shape s, int64_t group) {
  forward_slot slot;
  slot.chunk = gdn2_layout_chunk(arena, s, 0);
  slot.state = (size_t)s.Kp * (size_t)s.Sp;
  slot.S = gdn2_arena_floats(arena, slot.state * (size_t)group);
  return slot;
}

static size_t slot_bytes(const gdn2_call *call) {
  gdn2_arena measure = {NULL, 0};
  const task_split split = split_of(call);
  (void)lay_slot(&measure, gdn2_shape_of(call->K, split.width), split.group);
  return measure.used;
}

size_t gdn2_forward_bytes(const gdn2_call *call) { return slot_bytes(call) * (size_t)call->threads; }

typedef struct {
  const gdn2_forward_call *call;
  char *workspace;
  size_t bytes; /* per worker */
  task_split split;
} forward_work;

/* One head of a task. */
typedef struct {
  gdn2_head in;
  gdn2_rows_out o, residual;
  gdn2_ahead ahead; /* of the first chunk */
  float *S;         /* [K][Sp] */
  int zero;         /* S is 0 and has not been written yet */
  int64_t j;        /* which value head */
} head_walk;

/* A task on its way: some heads of one sequence, or some value channels of one head. */
typedef struct {
  const gdn2_forward_call *call;
  gdn2_shape s;
  gdn2_span at;
  int64_t first, heads, value; /* the first head; how many; the first value channel */
  gdn2_chunk chunk;
  head_walk head[GDN2_GROUP_HEADS];
} group_walk;

/* A short sequence's states are kept in the caller's h_final, if they lie there as the engine wants them: copying them would cost
 * more than rows that crowd into some sets of the cache. */
#define SHORT_TOKENS 64
static int in_place(const gdn2_forward_call *call, gdn2_shape s, int64_t tokens) {
  const gdn2_view_out *to = &call->h_final;
  return tokens <= SHORT_TOKENS && to->data && call->in.V == s.Vp && to->stride[2] == s.Vp && to->stride[3] == 1 &&
         (uintptr_t)to->data % GDN2_ALIGN == 0 && to->stride[0] % GDN2_PAD == 0 && to->stride[1] % GDN2_PAD == 0;
}

/* own: where the state is kept; NULL: in the caller's h_final. */
static void start_head(group_walk *w, int64_t i, float *own) {
  const gdn2_forward_call *call = w->call;
  const gdn2_call *in = &call->in;
  const int64_t j = w->first + i;
  head_walk *head = &w->head[i];
  head->j = j;
  head->in = gdn2_head_of(in, w->at, j);
  gdn2_head_skip(&head->in, w->value);
  head->o = gdn2_view_rows_out(&call->o, w->at.batch, w->at.start, j);
  gdn2_rows_out_skip(&head->o, w->value);
  head->residual = gdn2_view_rows_out(&call->residual, w->at.batch, w->at.start, j);
  gdn2_rows_out_skip(&head->residual, w->value);
  head->ahead = gdn2_ahead_of(w->s, &head->in, head->o);
  gdn2_ahead_add_out(&head->ahead, head->residual, w->s.V);
  head->S = own ? own : gdn2_view_state_out(&call->h_final, w->at.sequence, j).at;
  gdn2_state from = gdn2_view_state(&in->h0, w->at.sequence, j);
  head->zero = !from.at;
  if (head->zero) return;
  from.at += w->value * from.value_step;
  if (from.at != head->S) in->table->exact.state_load(w->s, from, head->S);
}

static void finish_head(group_walk *w, int64_t i) {
  if (!w->call->h_final.data) return;
  gdn2_state_out to = gdn2_view_state_out(&w->call->h_final, w->at.sequence, w->first + i);
  to.at += w->value * to.value_step;
  if (w->head[i].zero) w->call->in.table->exact.state_load(w->s, (gdn2_state){.at = NULL}, w->head[i].S); /* no tokens */
  if (to.at != w->head[i].S) w->call->in.table->exact.state_store(w->s, w->head[i].S, to);
}

/* A chunk of one head, from records to o and the new state; `ahead`: what to fetch meanwhile. */
static void walk_chunk(group_walk *w, head_walk *head, int64_t t0, gdn2_ahead *ahead) {
  const gdn2_call *in = &w->call->in;
  gdn2_chunk *c = &w->chunk;
  gdn2_chunk_scores(in, w->s, &head->in, w->at.length, t0, c);
  const float *S0 =
      gdn2_chunk_values(in, w->s, &head->in, t0, head->o.at != NULL, head->zero ? NULL : head->S, head->S, ahead, c);
  gdn2_chunk_output(in, w->s, c, t0, head->o);
  if (head->residual.at) in->table->exact.rows_store(w->s, c->R, t0, c->n, head->residual);
  gdn2_chunk_state(in, w->s, c, S0, head->S, ahead);
  head->zero = 0;
  gdn2_snapshot_keep(w->call, w->s, w->at, t0 + c->n, head->j, w->value, head->S);
}

/* The chunks of all heads, head after head and then on in time. */
static void walk(group_walk *w) {
  const int64_t T = w->at.length;
  for (int64_t t0 = 0; t0 < T; t0 += GDN2_CHUNK)
    for (int64_t i = 0; i < w->heads; i++) {
      const int last = i + 1 == w->heads;
      gdn2_ahead ahead = gdn2_ahead_from(w->head[last ? 0 : i + 1].ahead, T, last ? t0 + GDN2_CHUNK : t0);
      walk_chunk(w, &w->head[i], t0, &ahead);
    }
}

static void forward_task(void *context, int64_t task, int worker) {
  const forward_work *work = context;
  const gdn2_call *in = &work->call->in;
  const task_split split = work->split;
  const int64_t groups = gdn2_ceil_div(in->HV, split.group), unit = task / split.panels;
  gdn2_arena arena = {work->workspace + work->bytes * (size_t)worker, 0};
  group_walk w = {.call = work->call, .at = gdn2_span_of(in, unit / groups), .first = unit % groups * split.group};
  w.value = task % split.panels * split.width;
  w.s = gdn2_shape_of(in->K, at_most(split.width, in->V - w.value));
  w.heads = at_most(in->HV - w.first, split.group);
  const forward_slot slot = lay_slot(&arena, w.s, split.group);
  w.chunk = slot.chunk;

  const uint64_t mode = gdn2_flush_begin(1);
  const int here = in_place(w.call, w.s, w.at.length);
  if (here) w.s.Sp = w.s.Vp;
  for (int64_t i = 0; i < w.heads; i++) start_head(&w, i, here ? NULL : slot.S + slot.state * (size_t)i);
  walk(&w);
  for (int64_t i = 0; i < w.heads; i++) finish_head(&w, i);
  gdn2_flush_end(mode);
}

void gdn2_drive_forward(const gdn2_forward_call *call, void *workspace) {
  const gdn2_call *in = &call->in;
  forward_work work = {call, workspace, slot_bytes(in), split_of(in)};
  if (in->HV > 0)
    gdn2_par_for(in->threads, in->N * gdn2_ceil_div(in->HV, work.split.group) * work.split.panels, forward_task, &work);
  gdn2_clear_rest(in, &call->o, in->HV, in->V);
  gdn2_clear_rest(in, &call->residual, in->HV, in->V);
}
