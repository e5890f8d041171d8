/* The vector vocabulary in plain C with the vector extension of gcc and clang: any machine. No fused multiply-add: where the
 * machine has none, the C library's is a slow function; a * b + c here rounds twice. See vec.h for what each word means. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define VL 4
/* Register tile of the matrix products: 4 x 2 sums + 2 + 1 of 16 registers. */
#define TILE_ROWS 4
#define TILE_VECS 2

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));

INLINE vf v_zero(void) { return (vf){0, 0, 0, 0}; }
INLINE vf v_set1(float x) { return (vf){x, x, x, x}; }
INLINE vf v_load(const float *p) {
  vf x;
  memcpy(&x, p, sizeof x);
  return x;
}
INLINE void v_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE void v_stream(float *p, vf x) { v_store(p, x); }
INLINE void v_stream_end(void) {}
INLINE vf v_load_n(const float *p, int n) {
  vf x = v_zero();
  for (int i = 0; i < VL && i < n; i++) x[i] = p[i];
  return x;
}
INLINE void v_store_n(float *p, vf x, int n) {
  for (int i = 0; i < VL && i < n; i++) p[i] = x[i];
}
INLINE vf v_add(vf a, vf b) { return a + b; }
INLINE vf v_sub(vf a, vf b) { return a - b; }
INLINE vf v_mul(vf a, vf b) { return a * b; }
INLINE vf v_div(vf a, vf b) { return a / b; }
INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf v_fnma(vf a, vf b, vf c) { return c - a * b; }
INLINE vf v_select(vm m, vf a, vf b) { return (vf)(((vm)a & m) | ((vm)b & ~m)); }
INLINE vf v_max(vf a, vf b) { return v_select(a > b, a, b); }
INLINE vf v_min(vf a, vf b) { return v_select(a < b, a, b); }
INLINE vf v_abs(vf x) { return (vf)((vm)x & (vm){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}); }
INLINE float v_sum(vf x) { return (x[0] + x[2]) + (x[1] + x[3]); }
INLINE vf v_round(vf x) {
  for (int i = 0; i < VL; i++) x[i] = rintf(x[i]);
  return x;
}
/* In two steps, so that 2^n may lie outside the range of a float. NaN in n gives a finite factor: x itself is then NaN. */
INLINE vf v_ldexp(vf x, vf n) {
  vm all;
  for (int i = 0; i < VL; i++) all[i] = n[i] == n[i] ? (int32_t)n[i] : 0;
  const vm half = all >> 1;
  return x * (vf)((half + 127) << 23) * (vf)((all - half + 127) << 23);
}
INLINE vm v_le(vf a, vf b) { return a <= b; }
INLINE vf v_keep(vm m, vf x) { return (vf)((vm)x & m); }
INLINE vf v_nan_to_zero(vf x) { return v_keep(x == x, x); }

INLINE void v_transpose(vf r[VL]) {
  const vf a = {r[0][0], r[1][0], r[2][0], r[3][0]}, b = {r[0][1], r[1][1], r[2][1], r[3][1]};
  const vf c = {r[0][2], r[1][2], r[2][2], r[3][2]}, d = {r[0][3], r[1][3], r[2][3], r[3][3]};
  r[0] = a, r[1] = b, r[2] = c, r[3] = d;
}
INLINE void v_load_transposed(const float *p, ptrdiff_t ld, vf r[VL]) {
  for (int i = 0; i < VL; i++) r[i] = v_load(p + i * ld);
  v_transpose(r);
}
INLINE void v_add_sums(vf r[8], float *a, float *b) {
  v_transpose(r);
  v_transpose(r + 4);
  v_store(a, v_add(v_load(a), (r[0] + r[2]) + (r[1] + r[3])));
  v_store(b, v_add(v_load(b), (r[4] + r[6]) + (r[5] + r[7])));
}

/* The 16-bit formats, one number at a time. */
INLINE vf v_load_bf16(const uint16_t *p, int n) {
  float x[VL] = {0};
  for (int i = 0; i < VL && i < n; i++) x[i] = gdn2_from_bf16(p[i]);
  return v_load(x);
}
INLINE vf v_load_f16(const uint16_t *p, int n) {
  float x[VL] = {0};
  for (int i = 0; i < VL && i < n; i++) x[i] = gdn2_from_f16(p[i]);
  return v_load(x);
}
INLINE void v_store_bf16(uint16_t *p, vf v, int n) {
  float x[VL];
  v_store(x, v);
  for (int i = 0; i < VL && i < n; i++) p[i] = gdn2_to_bf16(x[i]);
}
INLINE void v_store_bf16_two(uint16_t *p, vf a, vf b) {
  v_store_bf16(p, a, VL);
  v_store_bf16(p + VL, b, VL);
}
INLINE void v_stream_bf16_two(uint16_t *p, vf a, vf b) { v_store_bf16_two(p, a, b); }
INLINE void v_load_bf16_pair(const uint16_t *p, vf *even, vf *odd) {
  float a[VL], b[VL];
  for (int i = 0; i < VL; i++) a[i] = gdn2_from_bf16(p[2 * i]), b[i] = gdn2_from_bf16(p[2 * i + 1]);
  *even = v_load(a), *odd = v_load(b);
}
INLINE void v_store_bf16_pair(uint16_t *p, vf even, vf odd) {
  for (int i = 0; i < VL; i++) p[2 * i] = gdn2_to_bf16(even[i]), p[2 * i + 1] = gdn2_to_bf16(odd[i]);
}
INLINE void v_split(const float *p, vf *even, vf *odd) {
  *even = (vf){p[0], p[2], p[4], p[6]};
  *odd = (vf){p[1], p[3], p[5], p[7]};
}
INLINE void v_store_f16(uint16_t *p, vf v, int n) {
  float x[VL];
  v_store(x, v);
  for (int i = 0; i < VL && i < n; i++) p[i] = gdn2_to_f16(x[i]);
}
