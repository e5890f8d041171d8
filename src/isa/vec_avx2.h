/* The vector vocabulary on AVX2 with FMA (x86-64-v3). See vec.h for what each word means. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VL 8
/* Register tile of the matrix products: 6 x 2 sums + 2 + 1 of 16 registers. */
#define TILE_ROWS 6
#define TILE_VECS 2

typedef __m256 vf;
typedef __m256 vm;

INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE void v_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
INLINE void v_stream_end(void) { _mm_sfence(); }
INLINE __m256i v_first(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
INLINE vf v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, v_first(n)); }
INLINE void v_store_n(float *p, vf x, int n) { _mm256_maskstore_ps(p, v_first(n), x); }
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf v_abs(vf x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
INLINE float v_sum(vf x) {
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
INLINE vf v_round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf v_power_of_2(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/* In two steps, so that 2^n may lie outside the range of a float. */
INLINE vf v_ldexp(vf x, vf n) {
  const __m256i all = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(all, 1);
  return v_mul(v_mul(x, v_power_of_2(half)), v_power_of_2(_mm256_sub_epi32(all, half)));
}
#define V_POWERS 8
/* The table's exponents are lower by what n's last three digits add to them. */
INLINE vf v_power_of_parts(vf n) {
  const __m256i table =
      _mm256_setr_epi32(0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7);
  const __m256i bits = _mm256_castps_si256(n);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_permutevar8x32_epi32(table, bits), _mm256_slli_epi32(bits, 20)));
}
INLINE vm v_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
INLINE vf v_keep(vm m, vf x) { return _mm256_and_ps(m, x); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
INLINE vf v_nan_to_zero(vf x) { return v_keep(_mm256_cmp_ps(x, x, _CMP_ORD_Q), x); }

/* Two rows' halves into one register by loads, which need no shuffle port; then 4 x 4 inside the halves. */
INLINE vf v_halves(const float *p, ptrdiff_t ld) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * ld), 1);
}
INLINE void v_load_transposed(const float *p, ptrdiff_t ld, vf r[VL]) {
  UNROLL
  for (int c = 0; c < 2; c++) { /* columns 4c .. 4c+3 */
    const vf a = v_halves(p + 4 * c, ld), b = v_halves(p + ld + 4 * c, ld);
    const vf e = v_halves(p + 2 * ld + 4 * c, ld), f = v_halves(p + 3 * ld + 4 * c, ld);
    const vf ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
    const vf ef0 = _mm256_unpacklo_ps(e, f), ef1 = _mm256_unpackhi_ps(e, f);
    r[4 * c] = _mm256_shuffle_ps(ab0, ef0, 0x44);
    r[4 * c + 1] = _mm256_shuffle_ps(ab0, ef0, 0xee);
    r[4 * c + 2] = _mm256_shuffle_ps(ab1, ef1, 0x44);
    r[4 * c + 3] = _mm256_shuffle_ps(ab1, ef1, 0xee);
  }
}

/* Each step adds two halves of a vector and packs two vectors into one. */
INLINE void v_add_sums(vf r[8], float *a, float *b) {
  UNROLL
  for (int i = 0; i < 4; i++) r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
  UNROLL
  for (int i = 0; i < 2; i++) r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
  const vf s = v_add(_mm256_permute2f128_ps(r[0], r[1], 0x20), _mm256_permute2f128_ps(r[0], r[1], 0x31));
  _mm_storeu_ps(a, _mm_add_ps(_mm_loadu_ps(a), _mm256_castps256_ps128(s)));
  _mm_storeu_ps(b, _mm_add_ps(_mm_loadu_ps(b), _mm256_extractf128_ps(s, 1)));
}

/* 16-bit numbers; AVX2 has no partial access to them. */
INLINE __m128i v_load_16(const uint16_t *p, int n) {
  if (n >= VL) return _mm_loadu_si128((const __m128i *)(const void *)p);
  uint16_t x[VL] = {0};
  memcpy(x, p, (size_t)(n > 0 ? n : 0) * sizeof *x);
  return _mm_loadu_si128((const __m128i *)(const void *)x);
}
INLINE void v_store_16(uint16_t *p, __m128i v, int n) {
  if (n >= VL) {
    _mm_storeu_si128((__m128i *)(void *)p, v);
    return;
  }
  uint16_t x[VL];
  _mm_storeu_si128((__m128i *)(void *)x, v);
  memcpy(p, x, (size_t)(n > 0 ? n : 0) * sizeof *x);
}
INLINE vf v_load_bf16(const uint16_t *p, int n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_load_16(p, n)), 16));
}
INLINE vf v_load_f16(const uint16_t *p, int n) { return _mm256_cvtph_ps(v_load_16(p, n)); }
/* The upper half is x rounded. */
INLINE __m256i v_round_bf16(vf x) {
  const __m256i bits = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i round = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(round, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
INLINE void v_store_bf16(uint16_t *p, vf x, int n) {
  const __m256i h = _mm256_srli_epi32(v_round_bf16(x), 16);
  v_store_16(p, _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)), n);
}
INLINE __m256i v_to_bf16(vf a, vf b) {
  const __m256i h = _mm256_srli_epi32(v_round_bf16(a), 16), i = _mm256_srli_epi32(v_round_bf16(b), 16);
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(h, i), 0xd8);
}
INLINE void v_store_bf16_two(uint16_t *p, vf a, vf b) { _mm256_storeu_si256((__m256i *)(void *)p, v_to_bf16(a, b)); }
INLINE void v_stream_bf16_two(uint16_t *p, vf a, vf b) { _mm256_stream_si256((__m256i *)(void *)p, v_to_bf16(a, b)); }
INLINE void v_load_bf16_pair(const uint16_t *p, vf *even, vf *odd) {
  const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
  *even = _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
  *odd = _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi32((int)0xffff0000)));
}
INLINE void v_store_bf16_pair(uint16_t *p, vf even, vf odd) {
  const __m256i low = _mm256_srli_epi32(v_round_bf16(even), 16);
  const __m256i high = _mm256_and_si256(v_round_bf16(odd), _mm256_set1_epi32((int)0xffff0000));
  _mm256_storeu_si256((__m256i *)(void *)p, _mm256_or_si256(low, high));
}
INLINE void v_split(const float *p, vf *even, vf *odd) {
  *even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(v_load(p), v_load(p + VL), 0x88)), 0xd8));
  *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(v_load(p), v_load(p + VL), 0xdd)), 0xd8));
}
INLINE void v_store_f16(uint16_t *p, vf x, int n) {
  v_store_16(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}
