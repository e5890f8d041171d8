#include "ffi/rows.h"
#include <string.h>

static const char *const input_names[GDN2_FFI_INPUTS] = {"q",   "k",        "v",        "g",         "b",          "w",    "h0",
                                                         "d_o", "dh_final", "residual", "snapshots", "cu_seqlens", "reset"};
static const char *const output_names[GDN2_FFI_OUTPUTS] = {"o",  "h_final", "dq",  "dk",           "dv",           "dg",
                                                           "db", "dw",      "dh0", "residual_out", "snapshots_out"};

/* Takes the next word off the text; its place in names, -1 if it is none of them. */
static int next_word(XLA_FFI_ByteSpan *text, const char *const *names, int count) {
  size_t length = 0;
  while (length < text->len && text->ptr[length] != ' ') length++;
  int found = -1;
  for (int i = 0; i < count; i++)
    if (strlen(names[i]) == length && memcmp(names[i], text->ptr, length) == 0) found = i;
  const size_t taken = length + (length < text->len);
  text->ptr += taken;
  text->len -= taken;
  return found;
}

static int is_gate(int which) { return which == GDN2_FFI_G || which == GDN2_FFI_B || which == GDN2_FFI_W; }

static int is_gate_gradient(int which) { return which == GDN2_FFI_DG || which == GDN2_FFI_DB || which == GDN2_FFI_DW; }

/* Do the buffers have the axes they need behind those of the rows? */
static int has_input_rank(const XLA_FFI_Buffer *x, int64_t leads, int which) {
  const int64_t rank = x->rank - leads;
  if (which >= GDN2_FFI_CU_SEQLENS) return rank == 1;
  if (which == GDN2_FFI_SNAPSHOTS) return rank == 5;
  return rank == 4 || (is_gate(which) && rank == 3);
}

static int has_output_rank(const XLA_FFI_Buffer *x, int64_t leads, int which) {
  const int64_t rank = x->rank - leads;
  if (which == GDN2_FFI_SNAPSHOTS_OUT) return rank == 5;
  return rank == 4 || (is_gate_gradient(which) && rank == 3);
}

static int is_float(XLA_FFI_DataType type) {
  return type == XLA_FFI_DataType_F32 || type == XLA_FFI_DataType_BF16 || type == XLA_FFI_DataType_F16 ||
         type == XLA_FFI_DataType_F64;
}

static int is_integer(int which, XLA_FFI_DataType type) {
  if (which == GDN2_FFI_RESET) return type == XLA_FFI_DataType_PRED || type == XLA_FFI_DataType_U8;
  return type == XLA_FFI_DataType_S32 || type == XLA_FFI_DataType_S64;
}

static const char *check(const gdn2_ffi_rows *rows) {
  for (int i = 0; i < GDN2_FFI_INPUTS; i++) {
    const XLA_FFI_Buffer *x = rows->in[i];
    const int integers = i >= GDN2_FFI_CU_SEQLENS;
    if (x && !has_input_rank(x, rows->leads, i)) return "an input has a wrong number of axes";
    if (x && !integers && !is_float(x->dtype)) return "an input has an unknown element type";
    if (x && integers && !is_integer(i, x->dtype)) return "cu_seqlens must be int32 or int64, reset truth values";
  }
  for (int i = 0; i < GDN2_FFI_OUTPUTS; i++) {
    const XLA_FFI_Buffer *x = rows->out[i];
    if (x && (!has_output_rank(x, rows->leads, i) || !is_float(x->dtype)))
      return "an output has a wrong number of axes or element type";
  }
  return NULL;
}

/* 1: x has every row of its own. 0: it is the same for all. -1: something between, with several axes of rows. */
static int has_rows(const gdn2_ffi_rows *rows, const XLA_FFI_Buffer *x) {
  const int64_t own = gdn2_ffi_elements(x, 0, rows->leads);
  return own == gdn2_ffi_elements(rows->whole, 0, rows->leads) ? 1 : own == 1 ? 0 : -1;
}

/* Can the rows become one batch? An input that is the same for all is broadcast by a stride of 0, which its own batch allows
 * only if it is 1. */
static int can_fold(const gdn2_ffi_rows *rows) {
  if (rows->in[GDN2_FFI_CU_SEQLENS]) return 0;
  for (int i = 0; i < GDN2_FFI_INPUTS; i++) {
    const XLA_FFI_Buffer *x = rows->in[i];
    if (!x || has_rows(rows, x) == 1) continue;
    if (has_rows(rows, x) < 0 || x->dims[rows->leads] != 1) return 0;
  }
  return 1;
}

const char *gdn2_ffi_read_rows(const XLA_FFI_CallFrame *frame, gdn2_ffi_rows *rows) {
  *rows = (gdn2_ffi_rows){.count = 1, .folded = 1};
  XLA_FFI_ByteSpan inputs = gdn2_ffi_text(frame, "inputs"), outputs = gdn2_ffi_text(frame, "outputs");
  for (int64_t i = 0; i < frame->args.size; i++) {
    const int which = next_word(&inputs, input_names, GDN2_FFI_INPUTS);
    if (which < 0) return "the attribute inputs does not name the buffers";
    rows->in[which] = gdn2_ffi_argument(frame, i);
  }
  for (int64_t i = 0; i < frame->rets.size; i++) {
    const int which = next_word(&outputs, output_names, GDN2_FFI_OUTPUTS);
    if (which < 0) return "the attribute outputs does not name the buffers";
    rows->whole = rows->out[which] = gdn2_ffi_return(frame, i);
  }
  if (!rows->in[GDN2_FFI_Q] || !rows->in[GDN2_FFI_K] || !rows->in[GDN2_FFI_V] || !rows->whole)
    return "q, k, v and an output must be there";
  rows->leads = rows->in[GDN2_FFI_Q]->rank - 4;
  if (rows->leads < 0) return "q must have 4 axes: batch, time, heads, channels";
  const char *wrong = check(rows);
  if (wrong) return wrong;
  rows->count = gdn2_ffi_elements(rows->whole, 0, rows->leads);
  if (rows->count > 1 && can_fold(rows)) {
    rows->folded = rows->count;
    rows->count = 1;
  }
  return NULL;
}

/* Elements before row n of x. */
static int64_t offset(const gdn2_ffi_rows *rows, const XLA_FFI_Buffer *x, int64_t n) {
  int64_t stride = gdn2_ffi_elements(x, rows->leads, x->rank), before = 0;
  for (int64_t axis = rows->leads - 1; axis >= 0; axis--) {
    const int64_t size = rows->whole->dims[axis];
    if (x->dims[axis] > 1) before += n % size * stride;
    n /= size;
    stride *= x->dims[axis];
  }
  return before;
}

static size_t element_size(XLA_FFI_DataType type) {
  if (type == XLA_FFI_DataType_PRED || type == XLA_FFI_DataType_U8) return 1;
  if (type == XLA_FFI_DataType_F64 || type == XLA_FFI_DataType_S64) return 8;
  return type == XLA_FFI_DataType_F32 || type == XLA_FFI_DataType_S32 ? 4 : 2;
}

static gdn2_dtype dtype(XLA_FFI_DataType type) {
  if (type == XLA_FFI_DataType_F32) return GDN2_F32;
  if (type == XLA_FFI_DataType_F64) return GDN2_F64;
  return type == XLA_FFI_DataType_BF16 ? GDN2_BF16 : GDN2_F16;
}

static void *address(const gdn2_ffi_rows *rows, const XLA_FFI_Buffer *x, int64_t n) {
  return (char *)x->data + (size_t)offset(rows, x, n) * element_size(x->dtype);
}

gdn2_output gdn2_ffi_output(const gdn2_ffi_rows *rows, int which, int64_t n) {
  const XLA_FFI_Buffer *x = rows->out[which];
  if (!x) return (gdn2_output){0};
  const int64_t *d = x->dims + rows->leads, inner = x->rank - rows->leads == 4 ? d[3] : 1;
  const int64_t channel = x->rank - rows->leads == 4;
  return (gdn2_output){address(rows, x, n), dtype(x->dtype), {d[1] * d[2] * inner, d[2] * inner, inner, channel}};
}

gdn2_input gdn2_ffi_input(const gdn2_ffi_rows *rows, int which, int64_t n) {
  const XLA_FFI_Buffer *x = rows->in[which];
  if (!x) return (gdn2_input){0};
  const int64_t *d = x->dims + rows->leads, inner = x->rank - rows->leads == 4 ? d[3] : 1;
  const int64_t channel = x->rank - rows->leads == 4;
  const int64_t batch = rows->folded > 1 && has_rows(rows, x) == 0 ? 0 : d[1] * d[2] * inner;
  return (gdn2_input){address(rows, x, n), dtype(x->dtype), {batch, d[2] * inner, inner, channel}};
}

gdn2_states gdn2_ffi_snapshots(const gdn2_ffi_rows *rows, int64_t n) {
  const XLA_FFI_Buffer *x = rows->out[GDN2_FFI_SNAPSHOTS_OUT] ? rows->out[GDN2_FFI_SNAPSHOTS_OUT] : rows->in[GDN2_FFI_SNAPSHOTS];
  if (!x) return (gdn2_states){0};
  const int64_t *d = x->dims + rows->leads, value = d[4], head = d[3] * value, moment = d[2] * head;
  const int64_t batch = rows->folded > 1 && has_rows(rows, x) == 0 ? 0 : d[1] * moment;
  return (gdn2_states){address(rows, x, n), dtype(x->dtype), {batch, moment, head, value, 1}};
}

int64_t gdn2_ffi_snapshot_every(const XLA_FFI_CallFrame *frame, const gdn2_ffi_rows *rows) {
  const int present = rows->out[GDN2_FFI_SNAPSHOTS_OUT] || rows->in[GDN2_FFI_SNAPSHOTS];
  return present ? gdn2_ffi_integer(frame, "snapshot_every", 0) : 0;
}

const void *gdn2_ffi_integers(const gdn2_ffi_rows *rows, int which, int64_t n) {
  return rows->in[which] ? address(rows, rows->in[which], n) : NULL;
}

/* A gate with H of HV heads is read through the map, as q and k are. */
static int has_key_heads(const gdn2_ffi_rows *rows, int which, int64_t H, int64_t HV) {
  const XLA_FFI_Buffer *x = rows->in[which];
  return x && HV != H && x->dims[rows->leads + 2] == H;
}

gdn2_problem gdn2_ffi_problem(const XLA_FFI_CallFrame *frame, const gdn2_ffi_rows *rows, const double *scale, int64_t n) {
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

gdn2_exec gdn2_ffi_execution(const XLA_FFI_CallFrame *frame) {
  return (gdn2_exec){.threads = (int)gdn2_ffi_integer(frame, "threads", 0)};
}
