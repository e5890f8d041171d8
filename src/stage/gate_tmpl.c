/* The sigmoid of the layer parts, where it is most of the work.
 *
 *     z = k ln 4 + r,  |r| <= ln 2;   e^r = p(r) / p(-r),  p(r) = 1 + a r^2 + r (b + c r^2)
 *     u = 2^k p(r),  v = 2^-k p(-r);  sigmoid(z) = u / (u + v),  sigmoid(-z) = v / (u + v)
 *
 * Half of the exponent on either side: nothing overflows, and both keep all their digits, since 1 - sigmoid(z) is never formed.
 * p is that of the least greatest error in e^r (1.2e-8). The result is right to 4 units in the last place, 5 without a fused
 * multiply-add. There is nothing to choose between and no power of 2 to apply to the result: u and v are most of the work.
 * Several vectors go abreast, step by step: one alone is a chain of twenty instructions that wait for each other. */

/* Vectors that go abreast at most. */
#define GATE_MOST 4
#define GATE_EACH(STATEMENT)                                                                                                     \
  UNROLL                                                                                                                         \
  for (int i = 0; i < count; i++) STATEMENT

/* u and v. Beyond 104 the smaller of the two sigmoids is 0. k comes from adding a number whose last digit is 1. */
INLINE void gate_parts(int count, const vf *z, vf *u, vf *v) {
  const vf shift = v_set1(0x1.8p23f + 127), most = v_set1(104.0f), least = v_set1(-104.0f);
  vf t[GATE_MOST], r[GATE_MOST], up[GATE_MOST], down[GATE_MOST];
  GATE_EACH(r[i] = v_max(least, v_min(most, z[i])));
  GATE_EACH(t[i] = v_fma(r[i], v_set1(0.72134752044448170f), shift));
  GATE_EACH(u[i] = v_sub(t[i], shift));
  GATE_EACH(r[i] = v_fnma(u[i], v_set1(1.38671875f), r[i]));
  GATE_EACH(r[i] = v_fnma(u[i], v_set1(-4.2438890010942754e-4f), r[i]));
  GATE_EACH(v_powers(t[i], &up[i], &down[i]));
  GATE_EACH(t[i] = v_mul(r[i], r[i]));
  GATE_EACH(u[i] = v_fma(t[i], v_set1(0x1.992e92p-4f), v_set1(1.0f)));
  GATE_EACH(t[i] = v_fma(t[i], v_set1(0x1.0f6d60p-7f), v_set1(0x1.fffffcp-2f)));
  GATE_EACH(v[i] = v_mul(down[i], v_fnma(r[i], t[i], u[i])));
  GATE_EACH(u[i] = v_mul(up[i], v_fma(r[i], t[i], u[i])));
}

INLINE void gate_sigmoid(int count, const vf *z, vf *s) {
  vf u[GATE_MOST], v[GATE_MOST];
  gate_parts(count, z, u, v);
  GATE_EACH(s[i] = v_div(u[i], v_add(u[i], v[i])));
}

/* sigmoid(z), and sigmoid(-z) in rest. */
INLINE void gate_sigmoids(int count, const vf *z, vf *s, vf *rest) {
  vf v[GATE_MOST], inverse[GATE_MOST];
  gate_parts(count, z, s, v);
  GATE_EACH(inverse[i] = v_div(v_set1(1.0f), v_add(s[i], v[i])));
  GATE_EACH(s[i] = v_mul(s[i], inverse[i]));
  GATE_EACH(rest[i] = v_mul(v[i], inverse[i]));
}
