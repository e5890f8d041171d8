/* The vector vocabulary: what every vec_<isa>.h defines, and what is built from it alone. The stage templates use these words and
 * nothing else of the machine.
 *
 *   VL                      floats in a vector, a power of 2, at most 16
 *   TILE_ROWS, TILE_VECS    register tile of the matrix products
 *   vf, vm                  a vector; a mask
 *   v_zero v_set1           constants
 *   v_load v_store          VL floats, any alignment
 *   v_load_n v_store_n      the first n floats only, 0 <= n <= VL; nothing beyond is touched; a load fills with 0
 *   v_load_bf16 v_load_f16  the first n of 16-bit floats, 0 <= n, at most VL are read
 *   v_store_bf16 .._f16     the same; rounded to nearest, ties to even; NaN stays NaN
 *   v_load_bf16_pair(p,a,b) v_store_bf16_pair(p,a,b)  2 VL of them: the even ones in a, the odd ones in b
 *   v_split(p,a,b)          2 VL floats in the same way
 *   v_store_bf16_two(p,a,b) 2 VL of them: a, then b
 *   v_stream .._bf16_two    the same to where a vector, or two of 16-bit floats, is aligned; past the caches where that can be
 *   v_stream_end            before other threads are told that what was streamed is there
 *   v_add v_sub v_mul v_div one rounding each
 *   v_fma(a,b,c)            a b + c; v_fnma(a,b,c): c - a b; one rounding where the machine has it
 *   v_max(a,b) v_min(a,b)   b where either is NaN
 *   v_abs v_round           magnitude; nearest whole number, ties to even
 *   v_sum                   the sum of the lanes, in a fixed order
 *   v_add_sums(r,a,b)       adds the lane sums of r[0..3] to a[0..3] and of r[4..7] to b[0..3], in a fixed order; r is used up
 *   v_ldexp(x,n)            x 2^n for whole n of magnitude up to 250, rounded once, gradual underflow
 *   v_le(a,b)               mask of a <= b (false for NaN)
 *   v_keep(m,x)             x where m, else 0
 *   v_select(m,a,b)         a where m, else b
 *   v_nan_to_zero           x, with 0 for NaN
 *   V_POWERS                defined where a vector holds a table of 2^(i/V_POWERS):
 *   v_power_of_parts(x)     2^n, n whole parts of V_POWERS between -127 (gives 0) and 127; x is n + 1.5 2^23 / V_POWERS
 *   V_ROUGH                 defined where the machine has words for numbers of few digits:
 *   v_above_floor v_ldexp_floor  x - floor(x), 0 where x is infinite; x 2^floor(y)
 *   v_rough_inverse         1 / x to 2^-14; 0 where x is infinite or the result subnormal
 *   v_load_transposed(p,ld,r)  VL x VL floats with rows ld apart; r[i] is column i
 */
#ifndef GDN2_ISA_VEC_H
#define GDN2_ISA_VEC_H

/* VL floats, or the first n where fewer remain. */
INLINE vf v_load_upto(const float *p, int n) { return n >= VL ? v_load(p) : v_load_n(p, n); }
INLINE void v_store_upto(float *p, vf x, int n) {
  if (n >= VL)
    v_store(p, x);
  else
    v_store_n(p, x, n);
}

/* A step of `count` vectors that go abreast. */
#define EACH_ABREAST(STATEMENT)                                                                                                  \
  UNROLL                                                                                                                         \
  for (int i = 0; i < count; i++) STATEMENT

/* e^x to about 1 unit in the last place; exactly 0 at -inf, infinite above 88.73, subnormal results kept, NaN propagates.
 * x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two; e^r = 1 + r + r^2 c(r), c a minimax polynomial (error 3e-9).
 * In place, for up to EXP_MOST vectors step by step abreast: one alone is a chain of fifteen instructions that wait for each
 * other. */
#define EXP_MOST 4
INLINE void v_exp_each(int count, vf *x) {
  vf n[EXP_MOST], r[EXP_MOST], c[EXP_MOST];
  EACH_ABREAST(x[i] = v_min(v_set1(89.0f), v_max(v_set1(-104.0f), x[i])));
  EACH_ABREAST(n[i] = v_round(v_mul(x[i], v_set1(1.4426950408889634f))));
  EACH_ABREAST(r[i] = v_fnma(n[i], v_set1(0.693359375f), x[i]));
  EACH_ABREAST(r[i] = v_fnma(n[i], v_set1(-2.1219444005471377e-4f), r[i]));
  EACH_ABREAST(c[i] = v_fma(v_set1(1.3814466850e-03f), r[i], v_set1(8.3687804183e-03f)));
  EACH_ABREAST(c[i] = v_fma(c[i], r[i], v_set1(4.1668394215e-02f)));
  EACH_ABREAST(c[i] = v_fma(c[i], r[i], v_set1(1.6666520108e-01f)));
  EACH_ABREAST(c[i] = v_fma(c[i], r[i], v_set1(4.9999993412e-01f)));
  EACH_ABREAST(c[i] = v_fma(v_mul(r[i], r[i]), c[i], r[i]));
  EACH_ABREAST(x[i] = v_ldexp(v_add(c[i], v_set1(1.0f)), n[i]));
}
INLINE vf v_exp(vf x) {
  v_exp_each(1, &x);
  return x;
}

/* log(1 + u) for 0 <= u <= 1 to about 1 unit in the last place: 2 artanh(y) with y = u / (2 + u) <= 1/3, by its series. */
INLINE vf v_log1p(vf u) {
  const vf y = v_div(u, v_add(u, v_set1(2.0f))), y2 = v_mul(y, y);
  vf c = v_set1(2.0f / 15);
  c = v_fma(c, y2, v_set1(2.0f / 13));
  c = v_fma(c, y2, v_set1(2.0f / 11));
  c = v_fma(c, y2, v_set1(2.0f / 9));
  c = v_fma(c, y2, v_set1(2.0f / 7));
  c = v_fma(c, y2, v_set1(2.0f / 5));
  c = v_fma(c, y2, v_set1(2.0f / 3));
  return v_fma(v_mul(y, y2), c, v_mul(v_set1(2.0f), y));
}

/* log(1 + e^x), without overflow: max(x, 0) + log1p(e^-|x|). */
INLINE vf v_softplus(vf x) { return v_add(v_max(v_zero(), x), v_log1p(v_exp(v_sub(v_zero(), v_abs(x))))); }

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small values keep their digits. */
INLINE vf v_sigmoid(vf x) {
  const vf e = v_exp(v_sub(v_zero(), v_abs(x)));
  return v_div(v_select(v_le(v_zero(), x), v_set1(1.0f), e), v_add(v_set1(1.0f), e));
}

#endif
