/* The tensors of a call by name, and the axes that jax.vmap puts in front of them. */
#ifndef GDN2_FFI_ROWS_H
#define GDN2_FFI_ROWS_H

#include "ffi/frame.h"

enum {
  GDN2_FFI_Q,
  GDN2_FFI_K,
  GDN2_FFI_V,
  GDN2_FFI_G,
  GDN2_FFI_B,
  GDN2_FFI_W,
  GDN2_FFI_H0,
  GDN2_FFI_D_O,
  GDN2_FFI_DH_FINAL,
  GDN2_FFI_RESIDUAL,
  GDN2_FFI_SNAPSHOTS,  /* of five axes */
  GDN2_FFI_CU_SEQLENS, /* from here on integers, of one axis */
  GDN2_FFI_RESET,
  GDN2_FFI_INPUTS
};
enum {
  GDN2_FFI_O,
  GDN2_FFI_H_FINAL,
  GDN2_FFI_DQ,
  GDN2_FFI_DK,
  GDN2_FFI_DV,
  GDN2_FFI_DG,
  GDN2_FFI_DB,
  GDN2_FFI_DW,
  GDN2_FFI_DH0,
  GDN2_FFI_RESIDUAL_OUT,
  GDN2_FFI_SNAPSHOTS_OUT, /* of five axes */
  GDN2_FFI_OUTPUTS
};

/* The attributes "inputs" and "outputs" name the buffers in their order, with blanks between. Every buffer has `leads` axes in
 * front; those of an input are 1 where it is the same for all rows. */
typedef struct gdn2_ffi_rows {
  const XLA_FFI_Buffer *in[GDN2_FFI_INPUTS], *out[GDN2_FFI_OUTPUTS]; /* NULL: absent */
  const XLA_FFI_Buffer *whole;                                       /* an output: has all rows */
  int64_t leads;
  int64_t count;  /* calls to make */
  int64_t folded; /* rows that one call takes as its batch: then count is 1 */
} gdn2_ffi_rows;

/* NULL, or what is wrong. */
const char *gdn2_ffi_read_rows(const XLA_FFI_CallFrame *frame, gdn2_ffi_rows *rows);

/* Row n of a tensor; absent if it is absent. A gate without a channel axis is one number per head. */
gdn2_input gdn2_ffi_input(const gdn2_ffi_rows *rows, int which, int64_t n);
gdn2_output gdn2_ffi_output(const gdn2_ffi_rows *rows, int which, int64_t n);

/* Snapshots of row n that the forward writes and the backward reads, and the attribute snapshot_every; absent, and 0. */
gdn2_states gdn2_ffi_snapshots(const gdn2_ffi_rows *rows, int64_t n);
int64_t gdn2_ffi_snapshot_every(const XLA_FFI_CallFrame *frame, const gdn2_ffi_rows *rows);

/* The problem of row n, from the shapes of the buffers and the attributes qk_l2norm and threads. */
gdn2_problem gdn2_ffi_problem(const XLA_FFI_CallFrame *frame, const gdn2_ffi_rows *rows, const double *scale, int64_t n);
gdn2_exec gdn2_ffi_execution(const XLA_FFI_CallFrame *frame);

/* Where row n of an integer input begins; NULL if it is absent. */
const void *gdn2_ffi_integers(const gdn2_ffi_rows *rows, int which, int64_t n);

#endif
