/* Forward in float64: one task per (sequence, value head). */
#include "base/par_for.h"
#include "double/double.h"
#include "double/head.h"

/* A worker's part of the workspace. */
typedef struct {
  gdn2_double_token token;
  double *S, *u; /* [K][V], [V] */
} forward_slot;

static forward_slot lay_slot(gdn2_arena *arena, const gdn2_call *call) {
  forward_slot slot;
  slot.token = gdn2_double_lay_token(arena, call->K, call->V);
  slot.S = gdn2_double_room(arena, call->K * call->V);
  slot.u = gdn2_double_room(arena, call->V);
  return slot;
}

static size_t slot_bytes(const gdn2_call *call) {
  gdn2_arena measure = {NULL, 0};
  (void)lay_slot(&measure, call);
  return measure.used;
}

/* The engine's tasks may be more than the heads: it cuts a head into panels. */
static int workers_of(const gdn2_call *call) {
  const int64_t heads = call->N * call->HV;
  return heads < call->threads ? (int)heads : call->threads;
}

size_t gdn2_double_forward_bytes(const gdn2_call *call) { return slot_bytes(call) * (size_t)workers_of(call); }

typedef struct {
  const gdn2_forward_call *call;
  char *workspace;
  size_t bytes; /* per worker */
} forward_work;

static void forward_task(void *context, int64_t task, int worker) {
  const forward_work *work = context;
  const gdn2_forward_call *call = work->call;
  const gdn2_call *in = &call->in;
  const int64_t n = task / in->HV, j = task % in->HV;
  const gdn2_span at = gdn2_span_of(in, n);
  gdn2_arena arena = {work->workspace + work->bytes * (size_t)worker, 0};
  forward_slot slot = lay_slot(&arena, in);
  const gdn2_double_head head = gdn2_double_head_of(in, at, j);
  const gdn2_rows_out o = gdn2_view_rows_out(&call->o, at.batch, at.start, j);
  gdn2_double_state_load(&in->h0, n, j, in->K, in->V, slot.S);
  for (int64_t t = 0; t < at.length; t++) {
    gdn2_double_load(&head, t, &slot.token);
    gdn2_double_step(&head, &slot.token, slot.S, slot.S, slot.u, o.at ? (double *)(void *)o.at + t * o.step : NULL);
    if (call->snapshots.data && (t + 1) % call->snapshot_every == 0)
      gdn2_double_state_put(
          slot.S, in->K, in->V,
          gdn2_snapshot_at(&call->snapshots, call->snapshot_every, at, (t + 1) / call->snapshot_every - 1, j, 0));
  }
  gdn2_double_state_store(slot.S, in->K, in->V, &call->h_final, n, j);
}

void gdn2_double_forward(const gdn2_forward_call *call, void *workspace) {
  const gdn2_call *in = &call->in;
  forward_work work = {call, workspace, slot_bytes(in)};
  if (call->o.data || call->h_final.data || call->snapshots.data)
    gdn2_par_for(workers_of(in), in->N * in->HV, forward_task, &work);
  if (in->cu_seqlens) gdn2_double_clear(&call->o, gdn2_offset(in, in->N), in->T, in->HV, in->V);
}
