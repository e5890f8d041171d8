/* Forward: one task per (sequence, group of heads), or per (sequence, head, panel of value channels) where heads are fewer than
 * threads: the columns of the state do not see each other, so a panel is a head with fewer values. A task walks the heads of its
 * group over a block of tokens at a time: the rows of neighbouring heads lie side by side in memory, so that pages and cache
 * lines are used while they are at hand. */
#include "base/par_for.h"
#include "chunk/layout.h"
#include "drive/chunks.h"

/* Tokens that a head is walked before the next one: a few chunks, a few kilobytes of each input. */
#define BLOCK GDN2_CHUNK
/* The states of a group must stay in the second-level cache beside the records of a chunk. */
#define GROUP_BYTES (512 * 1024)

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }
static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

/* How the work is cut into tasks. Results do not depend on it. */
typedef struct {
  int64_t group;  /* heads of a task */
  int64_t panels; /* of each head */
  int width;      /* value channels of a panel */
} task_split;

/* Heads per task: of the groupings that keep all threads equally busy the largest. */
static int64_t group_of(const gdn2_call *call) {
  const gdn2_shape s = gdn2_shape_of(call->K, call->V);
  const int64_t state = (int64_t)sizeof(float) * s.Kp * s.Vp,
                most = at_most(call->HV, state < GROUP_BYTES ? GROUP_BYTES / state : 1);
  int64_t best = 1, best_rounds = INT64_MAX;
  for (int64_t group = 1; group <= most; group++) {
    const int64_t rounds = ceil_div(call->N * ceil_div(call->HV, group), call->threads) * group;
    if (rounds <= best_rounds) best = group, best_rounds = rounds;
  }
  return best;
}

static task_split split_of(const gdn2_call *call) {
  const int64_t heads = call->N * call->HV;
  if (heads == 0 || heads >= call->threads) return (task_split){group_of(call), 1, (int)call->V};
  const int64_t wanted = ceil_div(call->V, ceil_div(call->threads, heads));
  const int64_t width = ceil_div(wanted, GDN2_NARROWEST) * GDN2_NARROWEST;
  return (task_split){1, ceil_div(call->V, width), (int)at_most(width, call->V)};
}

/* A worker's part of the workspace. */
typedef struct {
  gdn2_chunk chunk;
  float *S;     /* [group][Kp][Vp] */
  size_t state; /* floats from one head's state to the next */
} forward_slot;

static forward_slot lay_slot(gdn2_arena *arena, gdn2_shape s, int64_t group) {
  forward_slot slot;
  slot.chunk = gdn2_layout_chunk(arena, s, 0);
  slot.state = (size_t)s.Kp * (size_t)s.Vp;
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

/* A task on its way: heads first .. first+heads-1 of one sequence, value channels from `value` on. */
typedef struct {
  const gdn2_forward_call *call;
  gdn2_shape s;
  gdn2_span at;
  int64_t first, heads, value;
  forward_slot slot;
} group_walk;

/* Head i of the task: its inputs, and its place in o. */
static gdn2_head inputs_of(const group_walk *w, int64_t i) {
  gdn2_head head = gdn2_head_of(&w->call->in, w->at, w->first + i);
  gdn2_rows_skip(&head.v, w->value);
  gdn2_rows_skip(&head.w, w->value);
  return head;
}

static gdn2_rows_out output_of(const group_walk *w, int64_t i) {
  gdn2_rows_out o = gdn2_view_rows_out(&w->call->o, w->at.batch, w->at.start, w->first + i);
  if (o.at) o.at += w->value * gdn2_dtype_size(o.dtype);
  return o;
}

static float *state_of(const group_walk *w, int64_t i) { return w->slot.S + w->slot.state * (size_t)i; }

/* The chunk after (i, t0) in the order of the walk; 0 if there is none. */
static int next_chunk(const group_walk *w, int64_t *i, int64_t *t0) {
  const int64_t block = *t0 / BLOCK * BLOCK, T = w->at.length;
  *t0 += GDN2_CHUNK;
  if (*t0 < T && *t0 < block + BLOCK) return 1;
  *t0 = block;
  if (++*i < w->heads) return 1;
  *i = 0;
  *t0 += BLOCK;
  return *t0 < T;
}

static void walk_chunk(group_walk *w, int64_t i, int64_t t0, gdn2_ahead *ahead) {
  const gdn2_table *table = w->call->in.table;
  const gdn2_head head = inputs_of(w, i);
  const gdn2_rows_out o = output_of(w, i);
  gdn2_chunk *c = &w->slot.chunk;
  float *S = state_of(w, i);
  gdn2_chunk_forward(table, w->s, &head, w->at.length, t0, o.at != NULL, S, ahead, c);
  if (o.at) table->exact.output(w->s, t0, c->n, &c->scores, c->X + (ptrdiff_t)c->n * w->s.Vp, c->R, o);
  gdn2_chunk_state(table, w->s, c, S, S, ahead);
}

static void walk(group_walk *w) {
  int64_t i = 0, t0 = 0, more = w->at.length > 0;
  while (more) {
    int64_t next_i = i, next_t0 = t0;
    more = next_chunk(w, &next_i, &next_t0);
    gdn2_ahead ahead = {.at = NULL};
    if (more) {
      const gdn2_head head = inputs_of(w, next_i);
      ahead = gdn2_ahead_of(w->s, &head, output_of(w, next_i), w->at.length, next_t0);
    }
    walk_chunk(w, i, t0, &ahead);
    i = next_i, t0 = next_t0;
  }
}

static void forward_task(void *context, int64_t task, int worker) {
  const forward_work *work = context;
  const gdn2_forward_call *call = work->call;
  const gdn2_call *in = &call->in;
  const gdn2_exact_stages *stage = &in->table->exact;
  const task_split split = work->split;
  const int64_t groups = ceil_div(in->HV, split.group), unit = task / split.panels, value = task % split.panels * split.width;
  gdn2_arena arena = {work->workspace + work->bytes * (size_t)worker, 0};
  group_walk w = {.call = call, .at = gdn2_span_of(in, unit / groups), .first = unit % groups * split.group, .value = value};
  w.s = gdn2_shape_of(in->K, at_most(split.width, in->V - value));
  w.heads = at_most(in->HV - w.first, split.group);
  w.slot = lay_slot(&arena, w.s, split.group);

  for (int64_t i = 0; i < w.heads; i++) {
    gdn2_state from = gdn2_view_state(&in->h0, w.at.sequence, w.first + i);
    if (from.at) from.at += value * from.value_step;
    stage->state_load(w.s, from, state_of(&w, i));
  }
  walk(&w);
  for (int64_t i = 0; call->h_final.data && i < w.heads; i++) {
    gdn2_state_out to = gdn2_view_state_out(&call->h_final, w.at.sequence, w.first + i);
    to.at += value * to.value_step;
    stage->state_store(w.s, state_of(&w, i), to);
  }
}

/* Rows of o that belong to no sequence. */
static void clear_rest(const gdn2_forward_call *call) {
  const gdn2_call *in = &call->in;
  if (!in->cu_seqlens || !call->o.data) return;
  const int64_t start = gdn2_offset(in, in->N);
  for (int64_t h = 0; h < in->HV; h++)
    in->table->exact.clear(gdn2_shape_of(in->K, in->V), in->T - start, gdn2_view_rows_out(&call->o, 0, start, h));
}

void gdn2_drive_forward(const gdn2_forward_call *call, void *workspace) {
  const gdn2_call *in = &call->in;
  forward_work work = {call, workspace, slot_bytes(in), split_of(in)};
  if (in->HV > 0) gdn2_par_for(in->threads, in->N * ceil_div(in->HV, work.split.group) * work.split.panels, forward_task, &work);
  clear_rest(call);
}
