/* The vector vocabulary on AArch64 (Advanced SIMD, part of its base). See vec.h for what each word means. */
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#define VL 4
/* Register tile of the matrix products: 6 x 4 sums + 4 + 1 of 32 registers. 24 sums cover four pipes of latency 4 with room, and
 * cost 10 loads. 8 x 3 would need 11, and its panels of 12 floats do not divide the rows, which are padded to 16. */
#define TILE_ROWS 6
#define TILE_VECS 4

typedef float32x4_t vf;
typedef uint32x4_t vm;

INLINE vf v_zero(void) { return vdupq_n_f32(0); }
INLINE vf v_set1(float x) { return vdupq_n_f32(x); }
INLINE vf v_load(const float *p) { return vld1q_f32(p); }
INLINE void v_store(float *p, vf x) { vst1q_f32(p, x); }
/* Plain: these cores notice streams of stores themselves. */
INLINE void v_stream(float *p, vf x) { v_store(p, x); }
INLINE void v_stream_end(void) {}
INLINE vf v_load_n(const float *p, int n) {
  if (n >= VL) return vld1q_f32(p);
  if (n <= 0) return v_zero();
  if (n == 1) return vld1q_lane_f32(p, v_zero(), 0);
  const vf two = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
  return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}
INLINE void v_store_n(float *p, vf x, int n) {
  if (n >= VL) vst1q_f32(p, x);
  if (n == 1) vst1q_lane_f32(p, x, 0);
  if (n == 2 || n == 3) vst1_f32(p, vget_low_f32(x));
  if (n == 3) vst1q_lane_f32(p + 2, x, 2);
}
INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf v_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vm v_le(vf a, vf b) { return vcleq_f32(a, b); }
INLINE vf v_keep(vm m, vf x) { return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(x))); }
INLINE vf v_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
/* By comparison: of the machine's own two maxima, FMAX keeps a NaN of either side and FMAXNM one of neither. */
INLINE vf v_max(vf a, vf b) { return v_select(vcgtq_f32(a, b), a, b); }
INLINE vf v_min(vf a, vf b) { return v_select(vcltq_f32(a, b), a, b); }
INLINE vf v_abs(vf x) { return vabsq_f32(x); }
INLINE float v_sum(vf x) { return vpadds_f32(vadd_f32(vget_low_f32(x), vget_high_f32(x))); }
INLINE vf v_round(vf x) { return vrndnq_f32(x); }
INLINE vf v_power_of_2(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
/* In two steps, so that 2^n may lie outside the range of a float. NaN in n gives a finite factor: x itself is then NaN. */
INLINE vf v_ldexp(vf x, vf n) {
  const int32x4_t all = vcvtq_s32_f32(n), half = vshrq_n_s32(all, 1);
  return v_mul(v_mul(x, v_power_of_2(half)), v_power_of_2(vsubq_s32(all, half)));
}
INLINE vf v_nan_to_zero(vf x) { return v_keep(vceqq_f32(x, x), x); }

INLINE void v_load_transposed(const float *p, ptrdiff_t ld, vf r[VL]) {
  const vf a = v_load(p), b = v_load(p + ld), c = v_load(p + 2 * ld), d = v_load(p + 3 * ld);
  const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
  const float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
  r[0] = vreinterpretq_f32_f64(vtrn1q_f64(ab_even, cd_even));
  r[1] = vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd));
  r[2] = vreinterpretq_f32_f64(vtrn2q_f64(ab_even, cd_even));
  r[3] = vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd));
}

/* Each step adds neighbouring lanes and packs two vectors into one. */
INLINE vf v_four_sums(const vf r[4]) { return vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3])); }
INLINE void v_add_sums(vf r[8], float *a, float *b) {
  v_store(a, v_add(v_load(a), v_four_sums(r)));
  v_store(b, v_add(v_load(b), v_four_sums(r + 4)));
}

/* 16-bit numbers. The conversions of float16 are in the base; those of bfloat16 are not. */
INLINE uint16x4_t v_load_16(const uint16_t *p, int n) {
  if (n >= VL) return vld1_u16(p);
  uint16x4_t x = vdup_n_u16(0);
  if (n > 0) x = vld1_lane_u16(p, x, 0);
  if (n > 1) x = vld1_lane_u16(p + 1, x, 1);
  if (n > 2) x = vld1_lane_u16(p + 2, x, 2);
  return x;
}
INLINE void v_store_16(uint16_t *p, uint16x4_t x, int n) {
  if (n >= VL) {
    vst1_u16(p, x);
    return;
  }
  if (n > 0) vst1_lane_u16(p, x, 0);
  if (n > 1) vst1_lane_u16(p + 1, x, 1);
  if (n > 2) vst1_lane_u16(p + 2, x, 2);
}
INLINE vf v_load_bf16(const uint16_t *p, int n) { return vreinterpretq_f32_u32(vshll_n_u16(v_load_16(p, n), 16)); }
INLINE vf v_load_f16(const uint16_t *p, int n) { return vcvt_f32_f16(vreinterpret_f16_u16(v_load_16(p, n))); }
/* The upper half is x rounded. */
INLINE uint32x4_t v_round_bf16(vf x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t round = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vbslq_u32(vceqq_f32(x, x), round, vorrq_u32(bits, vdupq_n_u32(0x400000)));
}
INLINE void v_store_bf16(uint16_t *p, vf x, int n) { v_store_16(p, vshrn_n_u32(v_round_bf16(x), 16), n); }
INLINE void v_store_bf16_two(uint16_t *p, vf a, vf b) {
  vst1q_u16(p, vuzp2q_u16(vreinterpretq_u16_u32(v_round_bf16(a)), vreinterpretq_u16_u32(v_round_bf16(b))));
}
INLINE void v_stream_bf16_two(uint16_t *p, vf a, vf b) { v_store_bf16_two(p, a, b); }
INLINE void v_load_bf16_pair(const uint16_t *p, vf *even, vf *odd) {
  const uint32x4_t h = vreinterpretq_u32_u16(vld1q_u16(p));
  *even = vreinterpretq_f32_u32(vshlq_n_u32(h, 16));
  *odd = vreinterpretq_f32_u32(vandq_u32(h, vdupq_n_u32(0xffff0000)));
}
INLINE void v_store_bf16_pair(uint16_t *p, vf even, vf odd) {
  vst1q_u16(p, vreinterpretq_u16_u32(vsriq_n_u32(v_round_bf16(odd), v_round_bf16(even), 16)));
}
INLINE void v_split(const float *p, vf *even, vf *odd) {
  const float32x4x2_t x = vld2q_f32(p);
  *even = x.val[0], *odd = x.val[1];
}
INLINE void v_store_f16(uint16_t *p, vf x, int n) { v_store_16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)), n); }
