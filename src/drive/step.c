/* Decode: a unit is a head of a row, or a panel of its value channels where heads are fewer than threads. A task is a run of
 * units, so that one may fetch the state of the next. */
#include "drive/step.h"
#include <limits.h>
#include "base/flush.h"
#include "base/par_for.h"
#include "chunk/layout.h"
#include "drive/chunks.h"

/* Numbers of states, times tokens, that are worth a thread: a few microseconds. */
#define WORTH_A_THREAD 65536
/* Channels of a panel: whole tiles of every instruction set. */
#define PANEL 64
/* Runs per thread: neighbours on the machine do not stop a thread for ever. */
#define RUNS 16
/* Units of a run, where a thread has so many: a run's first is not fetched ahead. */
#define RUN_LEAST 8

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }

typedef struct {
  const gdn2_step_call *call;
  int64_t units, panels, width; /* of each head; channels of a panel */
  int64_t run;                  /* units of a task */
} step_schedule;

/* A unit: what its walk gets, and where that came from. */
typedef struct {
  gdn2_head head;
  gdn2_step_work work;
  int64_t key_head, from_step; /* from_step: bytes from the state it reads to the next head's */
} step_unit;

/* Fills, and does not return, records: they are a good part of the time where heads are small. */
static void begin_unit(const step_schedule *plan, const gdn2_step_row *row, int64_t j, int64_t panel, step_unit *unit) {
  const gdn2_step_call *call = plan->call;
  const gdn2_call *in = &call->in;
  const gdn2_states_view *from = row->accepted > 0 ? &call->history : &call->from;
  const int64_t value = panel * plan->width;
  gdn2_step_work *w = &unit->work;
  unit->head = gdn2_head_of(in, row->at, j);
  gdn2_head_skip(&unit->head, value);
  unit->key_head = gdn2_key_head(in, j);
  unit->from_step = from->stride[2] * gdn2_dtype_size(from->dtype);
  w->s = gdn2_shape_of(in->K, at_most(plan->width, in->V - value));
  w->head = &unit->head;
  w->tokens = row->at.length;
  w->from = gdn2_step_from(call, row, j, value);
  w->to = gdn2_states_at(&call->to, row->slot, 0, j, value);
  w->each = gdn2_states_at(&call->each, gdn2_step_drafts(call, row), 0, j, value);
  w->each_step = call->each.stride[1];
  w->o = gdn2_view_rows_out(&call->o, row->at.batch, row->at.start, j);
  gdn2_rows_out_skip(&w->o, value);
}

static void move_rows(gdn2_rows *rows, int64_t elements) {
  if (rows->at) rows->at += elements * gdn2_dtype_size(rows->dtype);
}

static void move_state(gdn2_state_at *state, int64_t elements) {
  if (state->at) state->at += elements * gdn2_dtype_size(state->dtype);
}

/* From a whole head to the next of the row, j: pointers move by a stride, which is less work than to begin anew. */
static void next_head(const step_schedule *plan, int64_t j, step_unit *unit) {
  const gdn2_step_call *call = plan->call;
  const gdn2_call *in = &call->in;
  const int64_t i = gdn2_key_head(in, j), keys = i - unit->key_head;
  gdn2_head *head = &unit->head;
  gdn2_step_work *w = &unit->work;
  unit->key_head = i;
  move_rows(&head->q, keys * in->q.stride[2]);
  move_rows(&head->k, keys * in->k.stride[2]);
  move_rows(&head->v, in->v.stride[2]);
  move_rows(&head->g, (in->g_key_heads ? keys : 1) * in->g.stride[2]);
  move_rows(&head->b, (in->b_key_heads ? keys : 1) * in->b.stride[2]);
  move_rows(&head->w, in->w.stride[2]);
  if (in->decay != GDN2_DECAY_LOG) head->rule = gdn2_gate_rule_of(in, in->g_key_heads ? i : j);
  if (w->from.at) w->from.at += unit->from_step;
  move_state(&w->to, call->to.stride[2]);
  move_state(&w->each, call->each.stride[2]);
  if (w->o.at) w->o.at += call->o.stride[2] * gdn2_dtype_size(w->o.dtype);
}

/* Nothing happens to a state that stays where it is. */
static int is_idle(const gdn2_step_work *w) { return w->tokens == 0 && (!w->to.at || w->to.at == w->from.at); }

/* ---- Several tokens ------------------------------------------------------------------------------------------------------- */

/* From so many tokens on a row is taken chunk by chunk, as the forward takes it, which costs less: on a float32 state in the
 * caller's memory that lies as the engine's own do, unless the state after every token is wanted. */
#define CHUNKS_FROM 4
static int by_chunks(const gdn2_call *in, const gdn2_step_work *w) {
  return w->tokens >= CHUNKS_FROM && !w->each.at && w->to.at && w->to.dtype == GDN2_F32 && w->to.value_step == 1 &&
         w->to.key_step > 0 && w->to.key_step <= INT_MAX && in->V % GDN2_PAD == 0;
}

/* Value channels that go through a chunk together; room for its records. */
#define CHUNK_VALUES 64
enum {
  CHUNK_FLOATS = GDN2_CHUNK * (3 * GDN2_MAX_DIM + 3 * CHUNK_VALUES + 2 * GDN2_CHUNK + 2) + 3 * GDN2_MAX_DIM,
  CHUNK_ARRAYS = 10
};

/* The state of the next head. */
static gdn2_ahead ahead_to_next(const gdn2_step_work *w) {
  gdn2_ahead ahead = gdn2_ahead_new(w->s, 0, 4);
  gdn2_ahead_add(&ahead, (gdn2_rows){w->next, GDN2_F32, 1, w->to.key_step, 0.0f}, w->s.V);
  ahead.tokens = ahead.tensors > 0 ? w->s.K : 0;
  gdn2_ahead_row(&ahead);
  return ahead;
}

/* Value channels from `value` on of the chunk at t0, whose scores are there. */
static void walk_values(const gdn2_call *in, const gdn2_step_work *w, int64_t t0, int value, gdn2_ahead *ahead, gdn2_chunk *c) {
  gdn2_shape s = gdn2_shape_of(w->s.K, at_most(CHUNK_VALUES, w->s.V - value));
  gdn2_head head = *w->head;
  gdn2_rows_out o = w->o;
  float *S = (float *)(void *)w->to.at + value;
  s.Sp = (int)w->to.key_step;
  gdn2_head_skip(&head, value);
  gdn2_rows_out_skip(&o, value);
  (void)gdn2_chunk_values(in, s, &head, t0, o.at != NULL, S, NULL, ahead, c);
  gdn2_chunk_output(in, s, c, t0, o);
  gdn2_chunk_state(in, s, c, S, S, ahead);
}

static void walk_chunks(const gdn2_call *in, const gdn2_step_work *w) {
  _Alignas(GDN2_ALIGN) char room[CHUNK_FLOATS * sizeof(float) + CHUNK_ARRAYS * (GDN2_STAGGER + GDN2_ALIGN)];
  gdn2_arena arena = {room, 0};
  gdn2_chunk c = gdn2_layout_chunk(&arena, gdn2_shape_of(w->s.K, at_most(CHUNK_VALUES, w->s.V)), 0);
  const gdn2_ahead rows = gdn2_ahead_of(w->s, w->head, w->o);
  gdn2_step_work moved = *w;
  moved.tokens = 0;
  if (!is_idle(&moved)) in->table->step->walk(&moved);
  for (int64_t t0 = 0; t0 < w->tokens; t0 += GDN2_CHUNK) {
    const int64_t then = t0 + GDN2_CHUNK;
    gdn2_ahead ahead = then < w->tokens ? gdn2_ahead_from(rows, w->tokens, then) : ahead_to_next(w);
    gdn2_chunk_scores(in, w->s, w->head, w->tokens, t0, &c);
    for (int value = 0; value < w->s.V; value += CHUNK_VALUES) walk_values(in, w, t0, value, &ahead, &c);
  }
}

static void run_unit(const step_schedule *plan, const gdn2_step_row *row, const gdn2_step_work *w) {
  const gdn2_table *table = plan->call->in.table;
  if (row->slot < 0) {
    if (w->o.at) table->exact.clear(w->s, w->tokens, w->o);
  } else if (by_chunks(&plan->call->in, w)) {
    walk_chunks(&plan->call->in, w);
  } else if (!is_idle(w)) {
    table->step->walk(w);
  }
}

/* A place among the units. */
typedef struct {
  int64_t n, j, panel;
} step_place;

static step_place place_after(const step_schedule *plan, step_place at) {
  if (++at.panel < plan->panels) return at;
  if (++at.j < plan->call->in.HV) return (step_place){at.n, at.j, 0};
  return (step_place){at.n + 1, 0, 0};
}

static void run_task(void *context, int64_t task, int worker) {
  const step_schedule *plan = context;
  const gdn2_step_call *call = plan->call;
  const int64_t first = task * plan->run, count = at_most(plan->run, plan->units - first), heads = first / plan->panels;
  const uint64_t mode = gdn2_flush_begin(1);
  step_place at = {heads / call->in.HV, heads % call->in.HV, first % plan->panels};
  gdn2_step_row rows[2]; /* of the unit, and of the next */
  step_unit unit;
  rows[at.n & 1] = gdn2_step_row_of(call, at.n);
  (void)worker;
  begin_unit(plan, &rows[at.n & 1], at.j, at.panel, &unit);
  for (int64_t i = 0; i < count; i++) {
    const step_place then = place_after(plan, at);
    const gdn2_step_row *row = &rows[at.n & 1], *next_row = &rows[then.n & 1];
    const int moves = then.n == at.n && plan->panels == 1;
    unit.work.next = NULL;
    if (i + 1 < count && moves) {
      if (unit.work.from.at) unit.work.next = unit.work.from.at + unit.from_step;
    } else if (i + 1 < count) {
      if (then.n != at.n) rows[then.n & 1] = gdn2_step_row_of(call, then.n);
      unit.work.next = gdn2_step_from(call, next_row, then.j, then.panel * plan->width).at;
    }
    run_unit(plan, row, &unit.work);
    at = then;
    if (i + 1 == count) break;
    if (moves)
      next_head(plan, at.j, &unit);
    else
      begin_unit(plan, next_row, at.j, at.panel, &unit);
  }
  gdn2_flush_end(mode);
}

static int64_t run_of(int64_t units, int threads) {
  const int64_t share = gdn2_ceil_div(units, threads), run = gdn2_ceil_div(share, RUNS);
  return run < RUN_LEAST ? at_most(RUN_LEAST, share) : run;
}

void gdn2_drive_step(const gdn2_step_call *call) {
  const gdn2_call *in = &call->in;
  const int64_t heads = in->N * in->HV, tokens = in->cu_seqlens ? in->T : in->N * in->T;
  const double numbers = (double)in->HV * (double)(tokens > in->N ? tokens : in->N) * (double)(in->K * in->V);
  const int threads = numbers < (double)WORTH_A_THREAD * in->threads ? (int)(numbers / WORTH_A_THREAD) : in->threads;
  step_schedule plan = {.call = call, .units = heads, .panels = 1, .width = in->V, .run = 1};
  if (heads > 0) {
    if (heads < threads && in->V > PANEL) plan.panels = gdn2_ceil_div(in->V, PANEL), plan.width = PANEL;
    plan.units = heads * plan.panels;
    plan.run = threads > 1 ? run_of(plan.units, threads) : plan.units;
    gdn2_par_for(threads > 1 ? threads : 1, gdn2_ceil_div(plan.units, plan.run), run_task, &plan);
  }
  gdn2_clear_rest(in, &call->o, in->HV, in->V);
}
