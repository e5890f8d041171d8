/* Forward: one task per (batch, head), chunk after chunk. */
#include "base/par_for.h"
#include "chunk/layout.h"
#include "drive/chunks.h"

/* A worker's part of the workspace. */
typedef struct {
  gdn2_chunk chunk;
  float *S; /* [Kp][Vp] */
} forward_slot;

static forward_slot lay_slot(gdn2_arena *arena, gdn2_shape s) {
  forward_slot slot;
  slot.chunk = gdn2_layout_chunk(arena, s);
  slot.S = gdn2_arena_floats(arena, (size_t)s.Kp * (size_t)s.Vp);
  return slot;
}

static size_t slot_bytes(const gdn2_call *call) {
  gdn2_arena measure = {NULL, 0};
  (void)lay_slot(&measure, gdn2_shape_of(call->K, call->V));
  return measure.used;
}

size_t gdn2_forward_bytes(const gdn2_call *call) { return slot_bytes(call) * (size_t)call->threads; }

typedef struct {
  const gdn2_forward_call *call;
  char *workspace;
  size_t bytes; /* per worker */
} forward_work;

static void forward_task(void *context, int64_t task, int worker) {
  const forward_work *work = context;
  const gdn2_forward_call *call = work->call;
  const gdn2_call *in = &call->in;
  const int64_t batch = task / in->H, h = task % in->H;
  const gdn2_shape s = gdn2_shape_of(in->K, in->V);
  const gdn2_exact_stages *stage = &in->table->exact;
  gdn2_arena arena = {work->workspace + work->bytes * (size_t)worker, 0};
  forward_slot slot = lay_slot(&arena, s);
  gdn2_chunk *c = &slot.chunk;

  const gdn2_head head = gdn2_head_of(in, batch, h);
  const gdn2_rows_out o = gdn2_view_rows_out(&call->o, batch, h);
  stage->state_load(s, gdn2_view_state(&in->h0, batch, h), slot.S);
  for (int64_t t0 = 0; t0 < in->T; t0 += GDN2_CHUNK) {
    gdn2_chunk_forward(in->table, s, &head, in->T, t0, o.at != NULL, slot.S, c);
    if (o.at) stage->output(s, t0, c->n, &c->scores, c->X + (ptrdiff_t)c->n * s.Vp, c->R, o);
    gdn2_chunk_state(in->table, s, c, slot.S, slot.S);
  }
  if (call->h_final.data) stage->state_store(s, slot.S, gdn2_view_state_out(&call->h_final, batch, h));
}

void gdn2_drive_forward(const gdn2_forward_call *call, void *workspace) {
  forward_work work = {call, workspace, slot_bytes(&call->in)};
  gdn2_par_for(call->in.threads, call->in.B * call->in.H, forward_task, &work);
}
