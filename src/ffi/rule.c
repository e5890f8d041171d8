/* The exact rule as custom calls of XLA. Shapes come from the buffers, options from attributes: scale, qk_l2norm, threads,
 * snapshot_every. */
#include "ffi/rows.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT XLA_FFI_Error *gdn2_xla_forward(XLA_FFI_CallFrame *frame);
EXPORT XLA_FFI_Error *gdn2_xla_backward(XLA_FFI_CallFrame *frame);

XLA_FFI_Error *gdn2_xla_forward(XLA_FFI_CallFrame *frame) {
  if (gdn2_ffi_asks_version(frame)) return NULL;
  gdn2_ffi_rows rows;
  const char *wrong = gdn2_ffi_read_rows(frame, &rows);
  if (wrong) return gdn2_ffi_error(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, wrong);
  const double scale = gdn2_ffi_number(frame, "scale", 1);
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < rows.count && status == GDN2_OK; n++) {
    const gdn2_forward_args args = {
        .struct_size = sizeof args,
        .problem = gdn2_ffi_problem(frame, &rows, &scale, n),
        .o = gdn2_ffi_output(&rows, GDN2_FFI_O, n),
        .h_final = gdn2_ffi_output(&rows, GDN2_FFI_H_FINAL, n),
        .residual = gdn2_ffi_output(&rows, GDN2_FFI_RESIDUAL_OUT, n),
        .snapshots = gdn2_ffi_snapshots(&rows, n),
        .snapshot_every = gdn2_ffi_snapshot_every(frame, &rows),
        .exec = gdn2_ffi_execution(frame),
    };
    status = gdn2_forward(&args);
  }
  return gdn2_ffi_result(frame, status);
}

XLA_FFI_Error *gdn2_xla_backward(XLA_FFI_CallFrame *frame) {
  if (gdn2_ffi_asks_version(frame)) return NULL;
  gdn2_ffi_rows rows;
  const char *wrong = gdn2_ffi_read_rows(frame, &rows);
  if (wrong) return gdn2_ffi_error(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, wrong);
  const double scale = gdn2_ffi_number(frame, "scale", 1);
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < rows.count && status == GDN2_OK; n++) {
    const gdn2_backward_args args = {
        .struct_size = sizeof args,
        .problem = gdn2_ffi_problem(frame, &rows, &scale, n),
        .d_o = gdn2_ffi_input(&rows, GDN2_FFI_D_O, n),
        .dh_final = gdn2_ffi_input(&rows, GDN2_FFI_DH_FINAL, n),
        .dq = gdn2_ffi_output(&rows, GDN2_FFI_DQ, n),
        .dk = gdn2_ffi_output(&rows, GDN2_FFI_DK, n),
        .dv = gdn2_ffi_output(&rows, GDN2_FFI_DV, n),
        .dg = gdn2_ffi_output(&rows, GDN2_FFI_DG, n),
        .db = gdn2_ffi_output(&rows, GDN2_FFI_DB, n),
        .dw = gdn2_ffi_output(&rows, GDN2_FFI_DW, n),
        .dh0 = gdn2_ffi_output(&rows, GDN2_FFI_DH0, n),
        .residual = gdn2_ffi_input(&rows, GDN2_FFI_RESIDUAL, n),
        .snapshots = gdn2_ffi_snapshots(&rows, n),
        .snapshot_every = gdn2_ffi_snapshot_every(frame, &rows),
        .exec = gdn2_ffi_execution(frame),
    };
    status = gdn2_backward(&args);
  }
  return gdn2_ffi_result(frame, status);
}
