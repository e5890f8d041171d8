/* Validated calls of the convolution. */
#ifndef GDN2_DRIVE_CONV_H
#define GDN2_DRIVE_CONV_H
#include "drive/drive.h"

typedef struct gdn2_conv_call {
  gdn2_call in; /* B, T, N, cu_seqlens: where the sequences lie; f64, table, threads */
  int64_t D;
  int W, silu;
  gdn2_view x, weight, bias, state;
  const void *slots; /* NULL: sequence n has state n */
  gdn2_index slots_type;
  const unsigned char *fresh;
} gdn2_conv_call;

typedef struct gdn2_conv_forward_call {
  gdn2_conv_call in;
  gdn2_view_out y, state_final;
} gdn2_conv_forward_call;

typedef struct gdn2_conv_backward_call {
  gdn2_conv_call in;
  gdn2_view dy, dstate_final;
  gdn2_view_out dx, dweight, dbias, dstate;
} gdn2_conv_backward_call;

static inline int64_t gdn2_conv_slot(const gdn2_conv_call *call, int64_t n) {
  return call->slots ? gdn2_index_at(call->slots, call->slots_type, n) : n;
}

void gdn2_drive_conv_forward(const gdn2_conv_forward_call *call);
size_t gdn2_conv_backward_bytes(const gdn2_conv_backward_call *call);
void gdn2_drive_conv_backward(const gdn2_conv_backward_call *call, void *workspace);
#endif
