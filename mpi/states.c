#include "states.h"
#include <stdbool.h>
#include <string.h>

size_t gdn2_number_bytes(gdn2_dtype dtype) {
  return dtype == GDN2_F64 ? sizeof(double) : dtype == GDN2_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* ---- Blocks ---- */

size_t gdn2_block_bytes(const gdn2_block *b) {
  return (size_t)(b->shape[0] * b->shape[1] * b->shape[2] * b->shape[3]) * gdn2_number_bytes(b->dtype);
}

void gdn2_block_strides(const gdn2_block *b, const int64_t given[4], int64_t meant[4]) {
  const int contiguous = !given[0] && !given[1] && !given[2] && !given[3];
  for (int i = 3; i >= 0; i--) meant[i] = !contiguous ? given[i] : i == 3 ? 1 : meant[i + 1] * b->shape[i + 1];
}

static void copy(const gdn2_block *b, const char *from, const int64_t from_stride[4], char *to, const int64_t to_stride[4]) {
  const int64_t unit = (int64_t)gdn2_number_bytes(b->dtype), *n = b->shape;
  const bool side_by_side = from_stride[3] == 1 && to_stride[3] == 1;
  for (int64_t i = 0; i < n[0]; i++)
    for (int64_t j = 0; j < n[1]; j++)
      for (int64_t d = 0; d < n[2]; d++) {
        char *row = to + unit * (i * to_stride[0] + j * to_stride[1] + d * to_stride[2]);
        const char *from_row = from + unit * (i * from_stride[0] + j * from_stride[1] + d * from_stride[2]);
        if (side_by_side)
          memcpy(row, from_row, (size_t)(n[3] * unit));
        else
          for (int64_t e = 0; e < n[3]; e++)
            memcpy(row + unit * e * to_stride[3], from_row + unit * e * from_stride[3], (size_t)unit);
      }
}

static void strides_of(const gdn2_block *b, const int64_t given[4], int64_t contiguous[4], int64_t meant[4]) {
  gdn2_block_strides(b, (const int64_t[4]){0, 0, 0, 0}, contiguous);
  gdn2_block_strides(b, given, meant);
}

void gdn2_block_put(const gdn2_block *b, const void *from, const gdn2_output *to, int64_t row) {
  int64_t contiguous[4], stride[4];
  strides_of(b, to->stride, contiguous, stride);
  copy(b, from, contiguous, (char *)to->data + (int64_t)gdn2_number_bytes(b->dtype) * row * stride[0], stride);
}

void gdn2_block_get(const gdn2_block *b, const gdn2_input *from, int64_t row, void *to) {
  int64_t contiguous[4], stride[4];
  strides_of(b, from->stride, contiguous, stride);
  if (from->data)
    copy(b, (const char *)from->data + (int64_t)gdn2_number_bytes(b->dtype) * row * stride[0], stride, to, contiguous);
  else
    memset(to, 0, gdn2_block_bytes(b));
}

void gdn2_block_add(const gdn2_block *b, const void *from, void *to) {
  const size_t count = gdn2_block_bytes(b) / gdn2_number_bytes(b->dtype);
  for (size_t i = 0; i < count; i++)
    if (b->dtype == GDN2_F64)
      ((double *)to)[i] += ((const double *)from)[i];
    else
      ((float *)to)[i] += ((const float *)from)[i];
}

gdn2_input gdn2_block_from(const gdn2_block *b, gdn2_input x, int axis, int64_t first) {
  int64_t stride[4];
  gdn2_block_strides(b, x.stride, stride);
  memcpy(x.stride, stride, sizeof stride);
  if (x.data) x.data = (const char *)x.data + (int64_t)gdn2_number_bytes(x.dtype) * first * stride[axis];
  return x;
}

gdn2_input gdn2_as_input(gdn2_output x) {
  gdn2_input y = {.data = x.data, .dtype = x.dtype};
  memcpy(y.stride, x.stride, sizeof y.stride);
  return y;
}

gdn2_output gdn2_cut_as(gdn2_output x, gdn2_input cut) {
  const char *from = x.data, *to = cut.data;
  if (from) x.data = (char *)x.data + (to - from);
  memcpy(x.stride, cut.stride, sizeof x.stride);
  return x;
}

gdn2_output gdn2_block_out_from(const gdn2_block *b, gdn2_output x, int axis, int64_t first) {
  return gdn2_cut_as(x, gdn2_block_from(b, gdn2_as_input(x), axis, first));
}

/* ---- Parts of a problem ---- */

gdn2_dtype gdn2_state_type(gdn2_dtype of_call) { return of_call == GDN2_F64 ? GDN2_F64 : GDN2_F32; }

int64_t gdn2_problem_heads(const gdn2_problem *p) { return p->HV ? p->HV : p->H; }

int64_t gdn2_offset_at(const void *cu_seqlens, gdn2_index type, int64_t n) {
  return type == GDN2_I64 ? ((const int64_t *)cu_seqlens)[n] : ((const int32_t *)cu_seqlens)[n];
}

static int64_t offset(const gdn2_problem *p, int64_t n) { return gdn2_offset_at(p->cu_seqlens, p->cu_seqlens_type, n); }

gdn2_input gdn2_problem_tokens(const gdn2_problem *p, gdn2_input x, int64_t heads, int64_t channels, int64_t n) {
  const gdn2_block b = {.shape = {1, p->T, heads, channels}};
  return gdn2_block_from(&b, x, 1, offset(p, n));
}

gdn2_problem gdn2_problem_sequence(const gdn2_problem *p, int64_t n) {
  const int64_t HV = gdn2_problem_heads(p);
  gdn2_problem part = *p;
  part.q = gdn2_problem_tokens(p, p->q, p->H, p->K, n);
  part.k = gdn2_problem_tokens(p, p->k, p->H, p->K, n);
  part.v = gdn2_problem_tokens(p, p->v, HV, p->V, n);
  part.g = gdn2_problem_tokens(p, p->g, p->g_key_heads ? p->H : HV, p->K, n);
  part.b = gdn2_problem_tokens(p, p->b, p->b_key_heads ? p->H : HV, p->K, n);
  part.w = gdn2_problem_tokens(p, p->w, HV, p->V, n);
  const gdn2_block states = {.shape = {p->N, HV, p->K, p->V}};
  part.h0 = gdn2_block_from(&states, p->h0, 0, n);
  part.T = offset(p, n + 1) - offset(p, n);
  part.cu_seqlens = NULL;
  part.N = 0;
  return part;
}
