/* Tensor views: the caller's buffers after validation, strides resolved, in elements. */
#ifndef GDN2_BASE_VIEW_H
#define GDN2_BASE_VIEW_H
#include <stddef.h>
#include <stdint.h>

/* A token tensor [batch, time, head, channel] or a state [batch, head, key, value]; data == NULL: absent. */
typedef struct gdn2_view {
  const float *data;
  int64_t stride[4];
} gdn2_view;

typedef struct gdn2_view_out {
  float *data;
  int64_t stride[4];
} gdn2_view_out;

/* The rows of one (batch, head) of a token tensor: channel c of token t is at[t * step + c * channel], channel 0 or 1.
 * at == NULL: every element is `absent` (the neutral value of a gate). */
typedef struct gdn2_rows {
  const float *at;
  int64_t step;
  int channel;
  float absent;
} gdn2_rows;

/* The same for an output; channel == 0: the sum over the channels is stored. at == NULL: not wanted. */
typedef struct gdn2_rows_out {
  float *at;
  int64_t step;
  int channel;
} gdn2_rows_out;

/* The state of one (batch, head): element (key, value) is at[key * key_step + value * value_step]. at == NULL: zeros. */
typedef struct gdn2_state {
  const float *at;
  int64_t key_step, value_step;
} gdn2_state;

typedef struct gdn2_state_out {
  float *at;
  int64_t key_step, value_step;
} gdn2_state_out;

static inline gdn2_rows gdn2_view_rows(const gdn2_view *x, int64_t batch, int64_t head, float absent) {
  if (!x->data) return (gdn2_rows){NULL, 0, 0, absent};
  return (gdn2_rows){x->data + batch * x->stride[0] + head * x->stride[2], x->stride[1], (int)x->stride[3], absent};
}

static inline gdn2_rows_out gdn2_view_rows_out(const gdn2_view_out *x, int64_t batch, int64_t head) {
  if (!x->data) return (gdn2_rows_out){NULL, 0, 0};
  return (gdn2_rows_out){x->data + batch * x->stride[0] + head * x->stride[2], x->stride[1], (int)x->stride[3]};
}

static inline gdn2_state gdn2_view_state(const gdn2_view *x, int64_t batch, int64_t head) {
  if (!x->data) return (gdn2_state){NULL, 0, 0};
  return (gdn2_state){x->data + batch * x->stride[0] + head * x->stride[1], x->stride[2], x->stride[3]};
}

static inline gdn2_state_out gdn2_view_state_out(const gdn2_view_out *x, int64_t batch, int64_t head) {
  if (!x->data) return (gdn2_state_out){NULL, 0, 0};
  return (gdn2_state_out){x->data + batch * x->stride[0] + head * x->stride[1], x->stride[2], x->stride[3]};
}
#endif
