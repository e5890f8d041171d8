/* The vector vocabulary on AVX-512 (x86-64-v4: F, CD, BW, DQ, VL). See vec.h for what each word means. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define VL 16
/* Register tile of the matrix products: rows x vectors; 6 x 4 sums + 4 + 1 of 32 registers. */
#define TILE_ROWS 6
#define TILE_VECS 4

typedef __m512 vf;
typedef __mmask16 vm;

INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE void v_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
INLINE void v_stream_end(void) { _mm_sfence(); }
INLINE vm v_first(int n) { return (vm)(n >= VL ? 0xffff : (1u << n) - 1u); }
INLINE vf v_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
INLINE void v_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, v_first(n), x); }
INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf v_abs(vf x) { return _mm512_abs_ps(x); }
INLINE float v_sum(vf x) {
  /* Written out: the order of the additions is part of the result. */
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
INLINE vf v_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf v_ldexp(vf x, vf n) { return _mm512_scalef_ps(x, n); }
#define V_ROUGH 1
INLINE vf v_above_floor(vf x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
INLINE vf v_ldexp_floor(vf x, vf y) { return _mm512_scalef_ps(x, y); }
INLINE vf v_rough_inverse(vf x) { return _mm512_rcp14_ps(x); }
#define V_POWERS 16
/* The table's exponents are lower by what n's last four digits add to them. */
INLINE vf v_power_of_parts(vf n) {
  const __m512i table =
      _mm512_setr_epi32(0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
                        0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d);
  const __m512i bits = _mm512_castps_si512(n);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_permutexvar_epi32(bits, table), _mm512_slli_epi32(bits, 19)));
}
INLINE vm v_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
INLINE vf v_keep(vm m, vf x) { return _mm512_maskz_mov_ps(m, x); }
INLINE vf v_select(vm m, vf a, vf b) { return _mm512_mask_mov_ps(b, m, a); }
INLINE vf v_nan_to_zero(vf x) { return v_keep(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x); }

/* Four rows' quarters into one register by loads, which need no shuffle port; then 4 x 4 inside the quarters. */
INLINE vf v_quarters(const float *p, ptrdiff_t ld) {
  vf r = _mm512_castps128_ps512(_mm_loadu_ps(p));
  r = _mm512_insertf32x4(r, _mm_loadu_ps(p + 4 * ld), 1);
  r = _mm512_insertf32x4(r, _mm_loadu_ps(p + 8 * ld), 2);
  return _mm512_insertf32x4(r, _mm_loadu_ps(p + 12 * ld), 3);
}
INLINE void v_load_transposed(const float *p, ptrdiff_t ld, vf r[VL]) {
  UNROLL
  for (int c = 0; c < 4; c++) { /* columns 4c .. 4c+3 */
    const vf a = v_quarters(p + 4 * c, ld), b = v_quarters(p + ld + 4 * c, ld);
    const vf e = v_quarters(p + 2 * ld + 4 * c, ld), f = v_quarters(p + 3 * ld + 4 * c, ld);
    const __m512d ab0 = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), ab1 = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d ef0 = _mm512_castps_pd(_mm512_unpacklo_ps(e, f)), ef1 = _mm512_castps_pd(_mm512_unpackhi_ps(e, f));
    r[4 * c] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab0, ef0));
    r[4 * c + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab0, ef0));
    r[4 * c + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab1, ef1));
    r[4 * c + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab1, ef1));
  }
}

/* Each step adds two halves of every vector and packs two vectors into one. */
INLINE void v_add_sums(vf r[8], float *a, float *b) {
  UNROLL
  for (int i = 0; i < 4; i++)
    r[i] = v_add(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
  UNROLL
  for (int i = 0; i < 2; i++) {
    const __m512d x = _mm512_castps_pd(r[2 * i]), y = _mm512_castps_pd(r[2 * i + 1]);
    r[i] = v_add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  /* Lane group g of r[i] now holds the sums over lanes 4g .. 4g+3 of rows 4i .. 4i+3. */
  const vf t = v_add(_mm512_shuffle_f32x4(r[0], r[1], 0x88), _mm512_shuffle_f32x4(r[0], r[1], 0xdd));
  const __m256 s = _mm256_add_ps(_mm256_permute2f128_ps(_mm512_castps512_ps256(t), _mm512_extractf32x8_ps(t, 1), 0x20),
                                 _mm256_permute2f128_ps(_mm512_castps512_ps256(t), _mm512_extractf32x8_ps(t, 1), 0x31));
  _mm_storeu_ps(a, _mm_add_ps(_mm_loadu_ps(a), _mm256_castps256_ps128(s)));
  _mm_storeu_ps(b, _mm_add_ps(_mm_loadu_ps(b), _mm256_extractf128_ps(s, 1)));
}

INLINE vm v_first_16(int n) { return v_first(n < 0 ? 0 : n); }
INLINE vf v_load_bf16(const uint16_t *p, int n) {
  const __m256i in = n >= VL ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(v_first_16(n), p);
  const __m512i at = _mm512_setr_epi32(0x00000, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000, 0x70000, 0x80000, 0x90000,
                                       0xa0000, 0xb0000, 0xc0000, 0xd0000, 0xe0000, 0xf0000);
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, at, _mm512_castsi256_si512(in)));
}
INLINE vf v_load_f16(const uint16_t *p, int n) {
  return _mm512_cvtph_ps(n >= VL ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(v_first_16(n), p));
}
/* The upper half is x rounded. A NaN, whose digits must not round up to another number, is passed on as a quiet one (2: of the
 * two classes of NaN, whose response are the lowest digits of the table). */
INLINE __m512i v_round_bf16(vf x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  const __m512i round = _mm512_mask_add_epi32(up, odd, up, _mm512_set1_epi32(1));
  return _mm512_castps_si512(_mm512_fixupimm_ps(_mm512_castsi512_ps(round), x, _mm512_set1_epi32(0x22), 0));
}
INLINE void v_store_bf16(uint16_t *p, vf x, int n) {
  const __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(v_round_bf16(x), 16));
  if (n >= VL)
    _mm256_storeu_si256((void *)p, h);
  else
    _mm256_mask_storeu_epi16(p, v_first_16(n), h);
}
#ifdef __AVX512BF16__
/* It takes subnormal numbers for 0, whatever the mode: for the results of stages whose mode does so too. */
INLINE __m512i v_to_bf16(vf a, vf b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
#else
INLINE __m512i v_to_bf16(vf a, vf b) {
  const __m512i at = _mm512_setr_epi32(0x030001, 0x070005, 0x0b0009, 0x0f000d, 0x130011, 0x170015, 0x1b0019, 0x1f001d, 0x230021,
                                       0x270025, 0x2b0029, 0x2f002d, 0x330031, 0x370035, 0x3b0039, 0x3f003d);
  return _mm512_permutex2var_epi16(v_round_bf16(a), at, v_round_bf16(b));
}
#endif
INLINE void v_store_bf16_two(uint16_t *p, vf a, vf b) { _mm512_storeu_si512(p, v_to_bf16(a, b)); }
INLINE void v_stream_bf16_two(uint16_t *p, vf a, vf b) { _mm512_stream_si512((void *)p, v_to_bf16(a, b)); }
INLINE void v_load_bf16_pair(const uint16_t *p, vf *even, vf *odd) {
  const __m512i h = _mm512_loadu_si512(p);
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(h, _mm512_set1_epi32((int)0xffff0000)));
}
#ifdef __AVX512BF16__
INLINE void v_store_bf16_pair(uint16_t *p, vf even, vf odd) {
  const __m512i at = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
                                       0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(at, v_to_bf16(even, odd)));
}
#else
INLINE void v_store_bf16_pair(uint16_t *p, vf even, vf odd) {
  const __m512i low = _mm512_srli_epi32(v_round_bf16(even), 16);
  _mm512_storeu_si512(p, _mm512_ternarylogic_epi32(v_round_bf16(odd), _mm512_set1_epi32((int)0xffff0000), low, 0xea));
}
#endif
INLINE void v_split(const float *p, vf *even, vf *odd) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *even = _mm512_permutex2var_ps(v_load(p), at, v_load(p + VL));
  *odd = _mm512_permutex2var_ps(v_load(p), _mm512_add_epi32(at, _mm512_set1_epi32(1)), v_load(p + VL));
}
INLINE void v_store_f16(uint16_t *p, vf x, int n) {
  _mm256_mask_storeu_epi16(p, v_first_16(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
