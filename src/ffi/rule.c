/* The exact rule as custom calls of XLA. Shapes come from the buffers, options from attributes: scale, qk_l2norm, threads. */
#include "ffi/rows.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT XLA_FFI_Error *gdn2_xla_forward(XLA_FFI_CallFrame *frame);
EXPORT XLA_FFI_Error *gdn2_xla_backward(XLA_FFI_CallFrame *frame);

/* A gate with H of HV heads is read through the map, as q and k are. */
static int has_key_heads(const gdn2_ffi_rows *rows, int which, int64_t H, int64_t HV) {
  const XLA_FFI_Buffer *x = rows->in[which];
  return x && HV != H && x->dims[rows->leads + 2] == H;
}

static gdn2_problem problem(const XLA_FFI_CallFrame *frame, const gdn2_ffi_rows *rows, const double *scale, int64_t n) {
  const int64_t *q = rows->in[GDN2_FFI_Q]->dims + rows->leads, *v = rows->in[GDN2_FFI_V]->dims + rows->leads;
  gdn2_problem p = {
      .B = q[0] * rows->folded,
      .T = q[1],
      .H = q[2],
      .K = q[3],
      .V = v[3],
      .HV = v[2],
      .q = gdn2_ffi_input(rows, GDN2_FFI_Q, n),
      .k = gdn2_ffi_input(rows, GDN2_FFI_K, n),
      .v = gdn2_ffi_input(rows, GDN2_FFI_V, n),
      .g = gdn2_ffi_input(rows, GDN2_FFI_G, n),
      .b = gdn2_ffi_input(rows, GDN2_FFI_B, n),
      .w = gdn2_ffi_input(rows, GDN2_FFI_W, n),
      .h0 = gdn2_ffi_input(rows, GDN2_FFI_H0, n),
      .scale = scale,
      .g_key_heads = has_key_heads(rows, GDN2_FFI_G, q[2], v[2]),
      .b_key_heads = has_key_heads(rows, GDN2_FFI_B, q[2], v[2]),
      .qk_l2norm = (int)gdn2_ffi_integer(frame, "qk_l2norm", 0),
  };
  const XLA_FFI_Buffer *offsets = rows->in[GDN2_FFI_CU_SEQLENS];
  if (offsets) {
    p.cu_seqlens = gdn2_ffi_integers(rows, GDN2_FFI_CU_SEQLENS, n);
    p.cu_seqlens_type = offsets->dtype == XLA_FFI_DataType_S64 ? GDN2_I64 : GDN2_I32;
    p.N = offsets->dims[rows->leads] - 1;
  }
  return p;
}

static gdn2_exec execution(const XLA_FFI_CallFrame *frame) {
  return (gdn2_exec){.threads = (int)gdn2_ffi_integer(frame, "threads", 0)};
}

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
        .problem = problem(frame, &rows, &scale, n),
        .o = gdn2_ffi_output(&rows, GDN2_FFI_O, n),
        .h_final = gdn2_ffi_output(&rows, GDN2_FFI_H_FINAL, n),
        .exec = execution(frame),
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
        .problem = problem(frame, &rows, &scale, n),
        .d_o = gdn2_ffi_input(&rows, GDN2_FFI_D_O, n),
        .dh_final = gdn2_ffi_input(&rows, GDN2_FFI_DH_FINAL, n),
        .dq = gdn2_ffi_output(&rows, GDN2_FFI_DQ, n),
        .dk = gdn2_ffi_output(&rows, GDN2_FFI_DK, n),
        .dv = gdn2_ffi_output(&rows, GDN2_FFI_DV, n),
        .dg = gdn2_ffi_output(&rows, GDN2_FFI_DG, n),
        .db = gdn2_ffi_output(&rows, GDN2_FFI_DB, n),
        .dw = gdn2_ffi_output(&rows, GDN2_FFI_DW, n),
        .dh0 = gdn2_ffi_output(&rows, GDN2_FFI_DH0, n),
        .exec = execution(frame),
    };
    status = gdn2_backward(&args);
  }
  return gdn2_ffi_result(frame, status);
}
