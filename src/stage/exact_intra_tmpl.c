/* intra: gradients through the scores P and T, pair by pair, with the same running decays as the forward.
 *
 *     dP = dO R^T (i >= j),  dT = -dX R^T (i > j)                                    (22)
 *     dq_pair_i = sum_j dP_ij d_ij k_j,  de_pair_i = sum_j dT_ij d_ij k_j            (25)
 *     dk_pair_j = sum_i (dP_ij scale q_i + dT_ij b_i k_i) d_ij                       (26)
 *     dg_pair_t = sum_{i >= t > j} (dP_ij scale q_i + dT_ij b_i k_i) d_ij k_j        (27)
 *
 * Stable: in (27) each pair is added where it straddles t and nowhere else, so nothing has to cancel: a pair with a decay of e^-20
 * adds a number of the size of e^-20. For each j the terms are summed over i from the last row down.
 * Cost: 11 K operations per pair. */
#include "stage/exact.h"

INLINE void intra_vector(gdn2_shape s, int n, const gdn2_keys *keys, int m, gdn2_grad *grad) {
  const ptrdiff_t ld = s.Kp;
  const float *dX_R = grad->dTP, *dO_R = grad->dTP + (ptrdiff_t)n * GDN2_CHUNK;
  vf dq[GDN2_CHUNK], de[GDN2_CHUNK], dg[GDN2_CHUNK], term[GDN2_CHUNK];
  for (int i = 0; i < n; i++) dq[i] = de[i] = dg[i] = v_zero();
  for (int j = 0; j < n; j++) {
    const vf k = v_load(keys->k + j * ld + m), p_jj = v_set1(dO_R[j * GDN2_CHUNK + j]);
    vf d = v_set1(1.0f), kd = k, dk = v_mul(p_jj, v_load(keys->q + j * ld + m)), run = v_zero();
    dq[j] = v_fma(p_jj, k, dq[j]);
    for (int i = j + 1; i < n; i++) {
      const vf alpha = v_load(keys->alpha + i * ld + m);
      const vf dp = v_set1(dO_R[i * GDN2_CHUNK + j]), dt = v_set1(dX_R[i * GDN2_CHUNK + j]); /* dt: minus dT_ij */
      d = v_mul(d, alpha);
      kd = v_mul(kd, alpha);
      dq[i] = v_fma(dp, kd, dq[i]);
      de[i] = v_fnma(dt, kd, de[i]);
      const vf both = v_fnma(dt, v_load(keys->bk + i * ld + m), v_mul(dp, v_load(keys->q + i * ld + m)));
      dk = v_fma(both, d, dk);
      term[i] = v_mul(both, kd);
    }
    v_store(grad->dk_pair + j * ld + m, dk);
    for (int i = n - 1; i > j; i--) {
      run = v_add(run, term[i]);
      dg[i] = v_add(dg[i], run);
    }
  }
  for (int i = 0; i < n; i++) {
    v_store(grad->dq_pair + i * ld + m, dq[i]);
    v_store(grad->de_pair + i * ld + m, de[i]);
    v_store(grad->dg_pair + i * ld + m, dg[i]);
  }
}

STAGE void stage_intra(gdn2_shape s, int n, const gdn2_keys *keys, gdn2_grad *grad) {
  for (int m = 0; m < s.Kp; m += VL) intra_vector(s, n, keys, m, grad);
}
