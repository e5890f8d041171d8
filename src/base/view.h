/* Tensor views: the caller's buffers after validation, strides resolved, in elements. */
#ifndef GDN2_BASE_VIEW_H
#define GDN2_BASE_VIEW_H
#include "base/half.h"
#include "gdn2.h"
#include <stddef.h>
#include <stdint.h>

/* A token tensor [batch, time, head, channel] or a state [batch, head, key, value]; data == NULL: absent. */
typedef struct gdn2_view {
  const char *data;
  gdn2_dtype dtype;
  int64_t stride[4];
} gdn2_view;

typedef struct gdn2_view_out {
  char *data;
  gdn2_dtype dtype;
  int64_t stride[4];
} gdn2_view_out;

/* States [row, moment, head, key, value]. */
typedef struct gdn2_states_view {
  char *data;
  gdn2_dtype dtype;
  int64_t stride[5];
} gdn2_states_view;

/* The rows of one head of one sequence of a token tensor: channel c of token t is element t * step + c * channel behind at,
 * channel 0 or 1. at == NULL: every element is `absent` (the neutral value of a gate). */
typedef struct gdn2_rows {
  const char *at;
  gdn2_dtype dtype;
  int channel;
  int64_t step;
  float absent;
} gdn2_rows;

/* The same for an output; channel == 0: the sum over the channels is stored. at == NULL: not wanted. */
typedef struct gdn2_rows_out {
  char *at;
  gdn2_dtype dtype;
  int channel;
  int64_t step;
} gdn2_rows_out;

/* The state of one head: element (key, value) is at[key * key_step + value * value_step]. at == NULL: zeros. */
typedef struct gdn2_state {
  const float *at;
  int64_t key_step, value_step;
} gdn2_state;

typedef struct gdn2_state_out {
  float *at;
  int64_t key_step, value_step;
} gdn2_state_out;

static inline int64_t gdn2_dtype_size(gdn2_dtype dtype) { return dtype == GDN2_F32 ? 4 : dtype == GDN2_F64 ? 8 : 2; }

/* Tokens are counted from `start`, the first token of the sequence. */
static inline gdn2_rows gdn2_view_rows(const gdn2_view *x, int64_t batch, int64_t start, int64_t head, float absent) {
  if (!x->data) return (gdn2_rows){.at = NULL, .absent = absent};
  const int64_t first = batch * x->stride[0] + start * x->stride[1] + head * x->stride[2];
  return (gdn2_rows){x->data + first * gdn2_dtype_size(x->dtype), x->dtype, (int)x->stride[3], x->stride[1], absent};
}

static inline gdn2_rows_out gdn2_view_rows_out(const gdn2_view_out *x, int64_t batch, int64_t start, int64_t head) {
  if (!x->data) return (gdn2_rows_out){.at = NULL};
  const int64_t first = batch * x->stride[0] + start * x->stride[1] + head * x->stride[2];
  return (gdn2_rows_out){x->data + first * gdn2_dtype_size(x->dtype), x->dtype, (int)x->stride[3], x->stride[1]};
}

static inline gdn2_state gdn2_view_state(const gdn2_view *x, int64_t sequence, int64_t head) {
  if (!x->data) return (gdn2_state){NULL, 0, 0};
  const float *data = (const float *)(const void *)x->data;
  return (gdn2_state){data + sequence * x->stride[0] + head * x->stride[1], x->stride[2], x->stride[3]};
}

static inline gdn2_state_out gdn2_view_state_out(const gdn2_view_out *x, int64_t sequence, int64_t head) {
  if (!x->data) return (gdn2_state_out){NULL, 0, 0};
  float *data = (float *)(void *)x->data;
  return (gdn2_state_out){data + sequence * x->stride[0] + head * x->stride[1], x->stride[2], x->stride[3]};
}

/* Leaves out the first channels. */
static inline void gdn2_rows_skip(gdn2_rows *rows, int64_t channels) {
  if (rows->at && rows->channel) rows->at += channels * gdn2_dtype_size(rows->dtype);
}
static inline void gdn2_rows_out_skip(gdn2_rows_out *rows, int64_t channels) {
  if (rows->at) rows->at += channels * gdn2_dtype_size(rows->dtype);
}

/* One number, as a gate that is one per head is stored. */
static inline float gdn2_number_at(const char *at, gdn2_dtype dtype) {
  float x;
  uint16_t h;
  if (dtype == GDN2_F32) {
    memcpy(&x, at, sizeof x);
    return x;
  }
  memcpy(&h, at, sizeof h);
  return dtype == GDN2_BF16 ? gdn2_from_bf16(h) : gdn2_from_f16(h);
}

static inline void gdn2_number_to(char *at, gdn2_dtype dtype, float x) {
  if (dtype == GDN2_F32) {
    memcpy(at, &x, sizeof x);
    return;
  }
  const uint16_t h = dtype == GDN2_BF16 ? gdn2_to_bf16(x) : gdn2_to_f16(x);
  memcpy(at, &h, sizeof h);
}
#endif
