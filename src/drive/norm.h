/* Validated calls of the norm. */
#ifndef GDN2_DRIVE_NORM_H
#define GDN2_DRIVE_NORM_H
#include "base/view.h"
#include "isa/table.h"

typedef struct gdn2_norm_call {
  int64_t B, T, H, D;
  int f64; /* every tensor is float64, and so is the arithmetic */
  gdn2_view x, z, weight;
  gdn2_norm_gate gate;
  int plus_one;
  double eps;
  const gdn2_table *table;
  int threads;
} gdn2_norm_call;

typedef struct gdn2_norm_forward_call {
  gdn2_norm_call in;
  gdn2_view_out y;
} gdn2_norm_forward_call;

typedef struct gdn2_norm_backward_call {
  gdn2_norm_call in;
  gdn2_view dy;
  gdn2_view_out dx, dz, dweight;
} gdn2_norm_backward_call;

void gdn2_drive_norm_forward(const gdn2_norm_forward_call *call);
size_t gdn2_norm_backward_bytes(const gdn2_norm_backward_call *call);
void gdn2_drive_norm_backward(const gdn2_norm_backward_call *call, void *workspace);
#endif
