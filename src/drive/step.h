/* Validated calls of decode, and the snapshots of prefill that decode starts from. */
#ifndef GDN2_DRIVE_STEP_H
#define GDN2_DRIVE_STEP_H
#include "drive/drive.h"

/* in.N rows. */
typedef struct gdn2_step_call {
  gdn2_call in;
  gdn2_view_out o;
  gdn2_states_view from, to;   /* of one moment; from is only read */
  const void *slot, *accepted; /* NULL: row n has slot n; 0 */
  gdn2_index slot_type, accepted_type;
  const uint8_t *reset; /* NULL: none */
  gdn2_states_view each, history;
  int by_slot; /* rows of each and history are slots */
} gdn2_step_call;

void gdn2_drive_step(const gdn2_step_call *call);

/* One head's state out of many; value: the first of its channels that is wanted. */
static inline gdn2_state_at gdn2_states_at(const gdn2_states_view *x, int64_t row, int64_t moment, int64_t head, int64_t value) {
  if (!x->data) return (gdn2_state_at){.at = NULL};
  const int64_t first = row * x->stride[0] + moment * x->stride[1] + head * x->stride[2] + value * x->stride[4];
  return (gdn2_state_at){x->data + first * gdn2_dtype_size(x->dtype), x->dtype, x->stride[3], x->stride[4]};
}

/* A row, and where its state comes from. */
typedef struct gdn2_step_row {
  gdn2_span at;
  int64_t slot; /* -1: skipped */
  int64_t accepted;
  int fresh;
} gdn2_step_row;

static inline gdn2_step_row gdn2_step_row_of(const gdn2_step_call *call, int64_t n) {
  return (gdn2_step_row){.at = gdn2_span_of(&call->in, n),
                         .slot = call->slot ? gdn2_index_at(call->slot, call->slot_type, n) : n,
                         .accepted = call->accepted ? gdn2_index_at(call->accepted, call->accepted_type, n) : 0,
                         .fresh = call->reset && call->reset[n]};
}

/* The row of each and history that belongs to a row. */
static inline int64_t gdn2_step_drafts(const gdn2_step_call *call, const gdn2_step_row *row) {
  return call->by_slot ? row->slot : row->at.sequence;
}

static inline gdn2_state_at gdn2_step_from(const gdn2_step_call *call, const gdn2_step_row *row, int64_t head, int64_t value) {
  if (row->fresh || row->slot < 0) return (gdn2_state_at){.at = NULL};
  if (row->accepted > 0) return gdn2_states_at(&call->history, gdn2_step_drafts(call, row), row->accepted - 1, head, value);
  return gdn2_states_at(&call->from, row->slot, 0, head, value);
}

/* Where the state after (moment + 1) `every` tokens of a sequence is kept. Packed sequences share the moments of a row: a
 * sequence of n tokens has n / every of them and begins that many places, or more, before the next one. */
static inline gdn2_state_at gdn2_snapshot_at(const gdn2_states_view *x, int64_t every, gdn2_span at, int64_t moment, int64_t head,
                                             int64_t value) {
  return gdn2_states_at(x, at.batch, at.start / every + moment, head, value);
}

/* A snapshot, of float32. */
static inline gdn2_state gdn2_snapshot_state(const gdn2_states_view *x, int64_t every, gdn2_span at, int64_t moment,
                                             int64_t head) {
  const gdn2_state_at from = gdn2_snapshot_at(x, every, at, moment, head, 0);
  return (gdn2_state){(const float *)(const void *)from.at, from.key_step, from.value_step};
}

/* The state after `tokens` tokens of a sequence, if a snapshot of it is wanted. */
static inline void gdn2_snapshot_keep(const gdn2_forward_call *call, gdn2_shape s, gdn2_span at, int64_t tokens, int64_t head,
                                      int64_t value, const float *S) {
  const int64_t every = call->snapshot_every;
  if (!call->snapshots.data || tokens % every != 0) return;
  call->in.table->step->keep(s, S, gdn2_snapshot_at(&call->snapshots, every, at, tokens / every - 1, head, value));
}
#endif
