/* The sigmoid of the layer parts, where it is most of the work.
 *
 *     e = exp(-z),  sigmoid(z) = 1 / (1 + e),  sigmoid(-z) = e sigmoid(z)
 *
 * where a vector holds a table of powers; there the exponential is so short that a division beside it costs nothing. Elsewhere
 * nothing divides:
 *
 *     e = exp(-|z|),  r = 1 / (1 + e);   sigmoid(z) = r or e r,  sigmoid(-z) = e r or r,  for z >= 0 or z < 0
 *
 * Nothing overflows, and both keep all their digits: 1 - sigmoid(z) is never formed. About 2 units in the last place; where
 * bfloat16 is enough, fewer digits.
 * Several vectors go abreast, step by step: one alone is a chain of twenty instructions that wait for each other. */

/* Vectors that go abreast at most. */
#define GATE_MOST 4

#if defined V_POWERS
/* From where on a sigmoid is no longer subnormal, and to where exp(-z) is not 0. */
#define GATE_LEAST (-87.33f)
#define GATE_MOST_Z 88.0297f

/* e = exp(-z) for z between these. -z log2(e) is n + r with n in parts of V_POWERS; log2(e) is split in two where every digit
 * counts. 2^r by a polynomial, the highest coefficient first (error 2e-9 with sixteenths, 4e-8 with eighths), or for bfloat16,
 * where sixteenths let it be shorter, 4e-7. */
INLINE void gate_power_of(int precise, int count, const vf *z, vf *e) {
  const vf shift = v_set1(0x1.8p23f / V_POWERS), log2e = v_set1(-0x1.715476p+0f);
  const int cubic = precise || V_POWERS < 16;
  const float square = V_POWERS < 16 ? 0x1.ec0f92p-3f : 0x1.ec00ccp-3f;
  vf n[GATE_MOST], r[GATE_MOST], p[GATE_MOST];
  EACH_ABREAST(r[i] = v_mul(z[i], log2e));
  EACH_ABREAST(n[i] = v_add(r[i], shift));
  EACH_ABREAST(p[i] = v_power_of_parts(n[i]));
  EACH_ABREAST(n[i] = v_sub(shift, n[i]));
  EACH_ABREAST(r[i] = precise ? v_fma(z[i], log2e, n[i]) : v_add(r[i], n[i]));
  EACH_ABREAST(r[i] = precise ? v_fma(z[i], v_set1(-0x1.4ae0c0p-26f), r[i]) : r[i]);
  EACH_ABREAST(e[i] = cubic ? v_fma(r[i], v_set1(0x1.c6add2p-5f), v_set1(square)) : v_set1(0x1.ebf82ep-3f));
  EACH_ABREAST(e[i] = v_fma(r[i], e[i], cubic ? v_set1(0x1.62e430p-1f) : v_set1(0x1.62e984p-1f)));
  EACH_ABREAST(r[i] = v_mul(r[i], p[i]));
  EACH_ABREAST(e[i] = v_fma(e[i], r[i], p[i]));
}

/* 0 where it would be subnormal. */
INLINE void gate_exact_sigmoid(int count, const vf *z, vf *s) {
  EACH_ABREAST(s[i] = v_min(v_set1(GATE_MOST_Z), v_max(v_set1(GATE_LEAST), z[i])));
  gate_power_of(1, count, s, s);
  EACH_ABREAST(s[i] = v_div(v_set1(1.0f), v_add(v_set1(1.0f), s[i])));
  EACH_ABREAST(s[i] = v_select(v_le(z[i], v_set1(GATE_LEAST)), v_zero(), s[i])); /* a NaN is not 0 */
}

/* sigmoid(z), and sigmoid(-z) in rest; to: the type of the results, of which bfloat16 wants 2^-20 of the terms of a slope, since
 * gradients of weights are summed in float32. z is raised to where no sigmoid is subnormal, and is to be used so: the product
 * with a larger one would not vanish. */
INLINE void gate_sigmoids(gdn2_dtype to, int count, vf *z, vf *s, vf *rest) {
  EACH_ABREAST(z[i] = v_max(v_set1(GATE_LEAST), z[i]));
  EACH_ABREAST(rest[i] = v_min(v_set1(GATE_MOST_Z), z[i]));
  gate_power_of(to != GDN2_BF16, count, rest, rest);
  EACH_ABREAST(s[i] = v_div(v_set1(1.0f), v_add(v_set1(1.0f), rest[i])));
  EACH_ABREAST(rest[i] = v_mul(rest[i], s[i]));
}
#else
/* e^-|z|. As v_exp, but that the whole number comes from adding a number whose last digit is 1, and the end is two products. */
INLINE void gate_exp(int count, const vf *z, vf *e) {
  static const float coefficients[] = {8.3687804183e-03f, 4.1668394215e-02f, 1.6666520108e-01f, 4.9999993412e-01f, 1.0f, 1.0f};
  const vf shift = v_set1(0x1.8p23f), least = v_set1(-104.0f);
  vf n[GATE_MOST], r[GATE_MOST];
  EACH_ABREAST(e[i] = v_max(least, v_sub(v_zero(), v_abs(z[i]))));
  EACH_ABREAST(n[i] = v_fma(e[i], v_set1(1.4426950408889634f), shift));
  EACH_ABREAST(n[i] = v_sub(n[i], shift));
  EACH_ABREAST(r[i] = v_fnma(n[i], v_set1(0.693359375f), e[i]));
  EACH_ABREAST(r[i] = v_fnma(n[i], v_set1(-2.1219444005471377e-4f), r[i]));
  EACH_ABREAST(e[i] = v_set1(1.3814466850e-03f));
  UNROLL
  for (int step = 0; step < 6; step++) {
    const vf c = v_set1(coefficients[step]);
    EACH_ABREAST(e[i] = v_fma(e[i], r[i], c));
  }
  EACH_ABREAST(e[i] = v_ldexp(e[i], n[i]));
}

/* 1 / d for 1 <= d <= 2: a minimax cubic (error 1.7e-3), then a step that leaves the cube of its error. */
INLINE void gate_inverse(int count, const vf *d, vf *y) {
  vf error[GATE_MOST];
  EACH_ABREAST(y[i] = v_fma(d[i], v_set1(-0x1.c65286p-3f), v_set1(0x1.54bde4p+0f)));
  EACH_ABREAST(y[i] = v_fma(y[i], d[i], v_set1(-0x1.783c56p+1f)));
  EACH_ABREAST(y[i] = v_fma(y[i], d[i], v_set1(0x1.6a09c2p+1f)));
  EACH_ABREAST(error[i] = v_fnma(d[i], y[i], v_set1(1.0f)));
  EACH_ABREAST(error[i] = v_fma(error[i], error[i], error[i]));
  EACH_ABREAST(y[i] = v_fma(y[i], error[i], y[i]));
}

/* e and r. */
INLINE void gate_parts(int count, const vf *z, vf *e, vf *r) {
  vf d[GATE_MOST];
  gate_exp(count, z, e);
  EACH_ABREAST(d[i] = v_add(v_set1(1.0f), e[i]));
  gate_inverse(count, d, r);
}

INLINE void gate_exact_sigmoid(int count, const vf *z, vf *s) {
  vf e[GATE_MOST], r[GATE_MOST];
  gate_parts(count, z, e, r);
  EACH_ABREAST(s[i] = v_mul(v_select(v_le(v_zero(), z[i]), v_set1(1.0f), e[i]), r[i]));
}

INLINE void gate_sigmoids(gdn2_dtype to, int count, vf *z, vf *s, vf *rest) {
  vf e[GATE_MOST], r[GATE_MOST];
  (void)to;
  gate_parts(count, z, e, r);
  EACH_ABREAST(e[i] = v_mul(e[i], r[i]));
  EACH_ABREAST(s[i] = v_select(v_le(v_zero(), z[i]), r[i], e[i]));
  EACH_ABREAST(rest[i] = v_select(v_le(v_zero(), z[i]), e[i], r[i]));
}
#endif

#if defined V_ROUGH
/* 2^u without limits: a polynomial in what is above the whole number, its highest coefficient first. */
INLINE void gate_power(int count, int degree, const float *coefficients, const vf *u, vf *e) {
  vf r[GATE_MOST];
  EACH_ABREAST(r[i] = v_above_floor(u[i]));
  EACH_ABREAST(e[i] = v_set1(coefficients[0]));
  UNROLL
  for (int step = 1; step <= degree; step++) {
    const vf c = v_set1(coefficients[step]);
    EACH_ABREAST(e[i] = v_fma(e[i], r[i], c));
  }
  EACH_ABREAST(e[i] = v_ldexp_floor(e[i], u[i]));
}

/* 1 / (1 + 2^u) with u = -z log2(e); an infinite power gives 0. A minimax polynomial (error 3e-6) and the machine's inverse
 * (6e-5): 0 where the sigmoid would be subnormal. */
INLINE void gate_rough_sigmoid(int count, const vf *z, vf *s) {
  static const float coefficients[] = {0x1.bb7cd4p-7f, 0x1.aa13f0p-5f, 0x1.ee798ap-3f, 0x1.62d166p-1f, 0x1.00002cp+0f};
  vf u[GATE_MOST];
  EACH_ABREAST(u[i] = v_mul(z[i], v_set1(-1.4426950408889634f)));
  gate_power(count, 4, coefficients, u, s);
  EACH_ABREAST(s[i] = v_rough_inverse(v_add(v_set1(1.0f), s[i])));
}
#else
#define gate_rough_sigmoid gate_exact_sigmoid
#endif

/* For a result of type `to`: bfloat16 keeps 8 of the rough one's 13 digits, and is at most 0.52 of its units in the last place
 * off, where rounding alone is 0.5. */
INLINE void gate_sigmoid(gdn2_dtype to, int count, const vf *z, vf *s) {
  if (to == GDN2_BF16)
    gate_rough_sigmoid(count, z, s);
  else
    gate_exact_sigmoid(count, z, s);
}
