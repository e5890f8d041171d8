/* The sigmoid of the layer parts, where it is most of the work: nothing here divides, and the exponent is never positive.
 *
 *     e = exp(-|z|),  r = 1 / (1 + e);   sigmoid(z) = r or e r,  sigmoid(-z) = e r or r,  for z >= 0 or z < 0
 *
 * Nothing overflows, and both keep all their digits: 1 - sigmoid(z) is never formed. About 2 units in the last place. */

/* e^-|z|. As v_exp, but that the whole number comes from adding a number whose last digit is 1, and the end is two products. */
INLINE vf gate_exp(vf z) {
  const vf shift = v_set1(0x1.8p23f), x = v_max(v_set1(-104.0f), v_sub(v_zero(), v_abs(z)));
  const vf n = v_sub(v_fma(x, v_set1(1.4426950408889634f), shift), shift);
  const vf r = v_fnma(n, v_set1(-2.1219444005471377e-4f), v_fnma(n, v_set1(0.693359375f), x));
  vf c = v_set1(1.3814466850e-03f);
  c = v_fma(c, r, v_set1(8.3687804183e-03f));
  c = v_fma(c, r, v_set1(4.1668394215e-02f));
  c = v_fma(c, r, v_set1(1.6666520108e-01f));
  c = v_fma(c, r, v_set1(4.9999993412e-01f));
  c = v_fma(c, r, v_set1(1.0f));
  return v_ldexp(v_fma(c, r, v_set1(1.0f)), n);
}

/* 1 / d for 1 <= d <= 2: a minimax cubic (error 1.7e-3), then a step that leaves the cube of its error. */
INLINE vf gate_inverse(vf d) {
  vf y = v_set1(-0x1.c65286p-3f);
  y = v_fma(y, d, v_set1(0x1.54bde4p+0f));
  y = v_fma(y, d, v_set1(-0x1.783c56p+1f));
  y = v_fma(y, d, v_set1(0x1.6a09c2p+1f));
  const vf error = v_fnma(d, y, v_set1(1.0f));
  return v_fma(y, v_fma(error, error, error), y);
}

INLINE vf gate_sigmoid(vf z) {
  const vf e = gate_exp(z), r = gate_inverse(v_add(v_set1(1.0f), e));
  return v_mul(v_select(v_le(v_zero(), z), v_set1(1.0f), e), r);
}

/* sigmoid(z), and sigmoid(-z) in *rest. */
INLINE vf gate_sigmoids(vf z, vf *rest) {
  const vf e = gate_exp(z), r = gate_inverse(v_add(v_set1(1.0f), e)), q = v_mul(e, r);
  const vm right = v_le(v_zero(), z);
  *rest = v_select(right, q, r);
  return v_select(right, r, q);
}
