/* The schedule: validated calls of the exact engine, ready to be driven over batch, heads and chunks. */
#ifndef GDN2_DRIVE_DRIVE_H
#define GDN2_DRIVE_DRIVE_H
#include "base/view.h"
#include "isa/table.h"

/* A validated call: every view fits the sizes. */
typedef struct gdn2_call {
  int64_t B, T, H, K, V;
  gdn2_view q, k, v, g, b, w, h0;
  float scale;
  const gdn2_table *table;
  int threads; /* workers, at least 1 and at most B H */
} gdn2_call;

typedef struct gdn2_forward_call {
  gdn2_call in;
  gdn2_view_out o, h_final;
} gdn2_forward_call;

typedef struct gdn2_backward_call {
  gdn2_call in;
  gdn2_view d_o, dh_final;
  gdn2_view_out dq, dk, dv, dg, db, dw, dh0;
} gdn2_backward_call;

/* Bytes of workspace, a multiple of the alignment. */
size_t gdn2_forward_bytes(const gdn2_call *call);
size_t gdn2_backward_bytes(const gdn2_call *call);

/* workspace: GDN2_ALIGN-aligned, of that many bytes. */
void gdn2_drive_forward(const gdn2_forward_call *call, void *workspace);
void gdn2_drive_backward(const gdn2_backward_call *call, void *workspace);
#endif
