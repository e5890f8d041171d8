/* The seed's pipeline as one custom call of XLA: the attribute "kernel" says which of its functions, bt, bc, mb, clip, wy_eps and
 * scale are its configuration, L, H, K, V its sizes. Arguments and results are those of the C function, in its order. The batch
 * is what is left of the first argument: jax.vmap puts axes in front of every argument alike. */
#include "ffi/frame.h"
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 20

EXPORT XLA_FFI_Error *gdn2_xla_seed(XLA_FFI_CallFrame *frame);

typedef struct arrays {
  float *in[MOST]; /* only read */
  float *out[MOST];
} arrays;

typedef gdn2_status kernel_fn(const gdn2_seed_call *call, const arrays *a);

typedef struct kernel {
  const char *name;
  int arguments, results;
  int axes; /* of the first argument: 4 of tokens, 5 of chunks; the first of them is the batch */
  kernel_fn *run;
} kernel;

static gdn2_status scores(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_scores(call, a->in[0], a->in[1], a->in[2], a->in[3], a->out[0], a->out[1]);
}

static gdn2_status solve(const gdn2_seed_call *call, const arrays *a) { return gdn2_seed_solve(call, a->in[0], a->out[0]); }

static gdn2_status rebuild(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_rebuild(call, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5], a->in[6], a->out[0], a->out[1],
                           a->out[2], a->out[3], a->out[4]);
}

static gdn2_status combine(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_combine(call, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5], a->in[6], a->out[0], a->out[1]);
}

static gdn2_status combine_with_state(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_combine_with_state(call, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5], a->in[6], a->out[0],
                                      a->out[1], a->out[2], a->out[3]);
}

static gdn2_status dav_backward(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_dav_backward(call, a->in[0], a->in[1], a->in[2], a->out[0], a->out[1]);
}

static gdn2_status dhu_backward(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_dhu_backward(call, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5], a->in[6], a->out[0], a->out[1],
                                a->out[2]);
}

static gdn2_status wy_backward(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_wy_inputs inputs = {.q = a->in[0],
                                      .k = a->in[1],
                                      .b = a->in[2],
                                      .gc = a->in[3],
                                      .w = a->in[4],
                                      .v = a->in[5],
                                      .A = a->in[6],
                                      .h_pre_all = a->in[7],
                                      .v_new_all = a->in[8],
                                      .d_o = a->in[9],
                                      .dv = a->in[10],
                                      .dh_next_all = a->in[11]};
  const gdn2_seed_wy_gradients gradients = {.dq = a->out[0],
                                            .dk = a->out[1],
                                            .db = a->out[2],
                                            .dw = a->out[3],
                                            .dv_raw = a->out[4],
                                            .dgc = a->out[5],
                                            .dAkk = a->out[6]};
  return gdn2_seed_wy_backward(call, &inputs, &gradients);
}

static gdn2_status intra_backward(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_intra_backward(call, a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->in[5], a->out[0], a->out[1],
                                  a->out[2], a->out[3]);
}

static gdn2_status reverse_cumsum(const gdn2_seed_call *call, const arrays *a) {
  return gdn2_seed_reverse_cumsum(call, a->in[0], a->out[0]);
}

static gdn2_seed_inputs whole_inputs(const arrays *a) {
  return (gdn2_seed_inputs){
      .q = a->in[0], .k = a->in[1], .v = a->in[2], .w = a->in[3], .b = a->in[4], .g = a->in[5], .h0 = a->in[6]};
}

static gdn2_seed_residuals residuals(float *const *r) {
  return (gdn2_seed_residuals){.Aqk = r[0],
                               .Akk = r[1],
                               .A = r[2],
                               .h_pre_all = r[3],
                               .v_new_all = r[4],
                               .w_pseudo = r[5],
                               .u = r[6],
                               .kg = r[7],
                               .qg = r[8],
                               .gc_last = r[9]};
}

static gdn2_status forward(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_inputs inputs = whole_inputs(a);
  return gdn2_seed_forward(call, &inputs, a->out[0], a->out[1], NULL);
}

static gdn2_status forward_with_residuals(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_inputs inputs = whole_inputs(a);
  const gdn2_seed_residuals kept = residuals(a->out + 2);
  return gdn2_seed_forward(call, &inputs, a->out[0], a->out[1], &kept);
}

static gdn2_status gradients(const gdn2_seed_call *call, const arrays *a, const gdn2_seed_residuals *kept) {
  const gdn2_seed_inputs inputs = whole_inputs(a);
  const gdn2_seed_gradients made = {
      .dq = a->out[0], .dk = a->out[1], .dv = a->out[2], .dw = a->out[3], .db = a->out[4], .dg = a->out[5], .dh0 = a->out[6]};
  return gdn2_seed_backward(call, &inputs, kept, a->in[7], a->in[8], &made);
}

static gdn2_status backward(const gdn2_seed_call *call, const arrays *a) { return gradients(call, a, NULL); }

static gdn2_status backward_with_residuals(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_residuals from_forward = residuals(a->in + 9);
  return gradients(call, a, &from_forward);
}

static gdn2_status token_serial(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_inputs inputs = whole_inputs(a);
  return gdn2_seed_token_serial(call, &inputs, a->out[0], a->out[1]);
}

static gdn2_status chunked_wy(const gdn2_seed_call *call, const arrays *a) {
  const gdn2_seed_inputs inputs = whole_inputs(a);
  return gdn2_seed_chunked_wy(call, &inputs, call->config->bt, call->config->wy_eps, a->out[0], a->out[1]);
}

static const kernel kernels[] = {
    {"scores", 4, 2, 4, scores},
    {"solve", 1, 1, 5, solve},
    {"rebuild", 7, 5, 4, rebuild},
    {"combine", 7, 2, 5, combine},
    {"combine_with_state", 7, 4, 5, combine_with_state},
    {"dav_backward", 3, 2, 5, dav_backward},
    {"dhu_backward", 7, 3, 5, dhu_backward},
    {"wy_backward", 12, 7, 5, wy_backward},
    {"intra_backward", 6, 4, 5, intra_backward},
    {"reverse_cumsum", 1, 1, 5, reverse_cumsum},
    {"forward", 7, 2, 4, forward},
    {"forward_with_residuals", 7, 12, 4, forward_with_residuals},
    {"backward", 9, 7, 4, backward},
    {"backward_with_residuals", 19, 7, 4, backward_with_residuals},
    {"token_serial", 7, 2, 4, token_serial},
    {"chunked_wy", 7, 2, 4, chunked_wy},
};

static const kernel *find(XLA_FFI_ByteSpan name) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (strlen(kernels[i].name) == name.len && memcmp(kernels[i].name, name.ptr, name.len) == 0) return &kernels[i];
  return NULL;
}

/* 0 if the buffers are not what the kernel takes. */
static int collect(const XLA_FFI_CallFrame *frame, const kernel *k, arrays *a) {
  if (frame->args.size != k->arguments || frame->rets.size != k->results) return 0;
  for (int i = 0; i < k->arguments; i++) {
    const XLA_FFI_Buffer *x = gdn2_ffi_argument(frame, i);
    if (x->dtype != XLA_FFI_DataType_F32) return 0;
    a->in[i] = x->data;
  }
  for (int i = 0; i < k->results; i++) {
    const XLA_FFI_Buffer *x = gdn2_ffi_return(frame, i);
    if (x->dtype != XLA_FFI_DataType_F32) return 0;
    a->out[i] = x->data;
  }
  return gdn2_ffi_argument(frame, 0)->rank >= k->axes;
}

XLA_FFI_Error *gdn2_xla_seed(XLA_FFI_CallFrame *frame) {
  if (gdn2_ffi_asks_version(frame)) return NULL;
  arrays a;
  const kernel *k = find(gdn2_ffi_text(frame, "kernel"));
  if (!k || !collect(frame, k, &a))
    return gdn2_ffi_error(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "kernel must be a known name, with its float32 buffers");
  const XLA_FFI_Buffer *first = gdn2_ffi_argument(frame, 0);
  const gdn2_seed_config config = {.bt = (int)gdn2_ffi_integer(frame, "bt", 0),
                                   .bc = (int)gdn2_ffi_integer(frame, "bc", 0),
                                   .mb = (int)gdn2_ffi_integer(frame, "mb", 0),
                                   .clip = gdn2_ffi_number(frame, "clip", 0),
                                   .wy_eps = gdn2_ffi_number(frame, "wy_eps", 0)};
  const double scale = gdn2_ffi_number(frame, "scale", 1);
  const gdn2_seed_call call = {.struct_size = sizeof call,
                               .B = gdn2_ffi_elements(first, 0, first->rank - k->axes + 1),
                               .L = gdn2_ffi_integer(frame, "L", 0),
                               .H = gdn2_ffi_integer(frame, "H", 0),
                               .K = gdn2_ffi_integer(frame, "K", 0),
                               .V = gdn2_ffi_integer(frame, "V", 0),
                               .config = &config,
                               .scale = &scale};
  return gdn2_ffi_result(frame, k->run(&call, &a));
}
