/* Decode as a custom call of XLA: h0 is the state before, h_final the state after the tokens. They may be one buffer. */
#include "ffi/rows.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT XLA_FFI_Error *gdn2_xla_step(XLA_FFI_CallFrame *frame);

XLA_FFI_Error *gdn2_xla_step(XLA_FFI_CallFrame *frame) {
  if (gdn2_ffi_asks_version(frame)) return NULL;
  gdn2_ffi_rows rows;
  const char *wrong = gdn2_ffi_read_rows(frame, &rows);
  if (wrong) return gdn2_ffi_error(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, wrong);
  const double scale = gdn2_ffi_number(frame, "scale", 1);
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < rows.count && status == GDN2_OK; n++) {
    gdn2_step_args args = {
        .struct_size = sizeof args,
        .problem = gdn2_ffi_problem(frame, &rows, &scale, n),
        .o = gdn2_ffi_output(&rows, GDN2_FFI_O, n),
        .to = gdn2_ffi_output(&rows, GDN2_FFI_H_FINAL, n),
        .reset = gdn2_ffi_integers(&rows, GDN2_FFI_RESET, n),
        .exec = gdn2_ffi_execution(frame),
    };
    args.from = args.problem.h0;
    args.problem.h0 = (gdn2_input){0};
    status = gdn2_step(&args);
  }
  return gdn2_ffi_result(frame, status);
}
