/* intra: gradients through the scores P and T, pair by pair, with the same running decays as the forward.
 *
 *     dP = dO R^T (i >= j),  dT = -dX R^T (i > j)                                    (22)
 *     dq_pair_i = sum_j dP_ij d_ij k_j,  de_pair_i = sum_j dT_ij d_ij k_j            (25)
 *     dk_pair_j = sum_i (dP_ij scale q_i + dT_ij b_i k_i) d_ij                       (26)
 *     dg_pair_t = sum_{i >= t > j} (dP_ij scale q_i + dT_ij b_i k_i) d_ij k_j        (27)
 *
 * Stable: in (27) each pair is added where it straddles t and nowhere else, so nothing has to cancel: a pair with a decay of
 * e^-20 adds a number of the size of e^-20. For each j the terms are summed over i from the last row down. Cost: 11 K operations
 * per pair. */
#include "stage/exact.h"

/* vecs vectors side by side: their chains of products are independent and hide each other's latency. */
#define INTRA_VECS 2

INLINE void intra_group(gdn2_shape s, int n, const gdn2_keys *keys, int vecs, int m, gdn2_grad *grad) {
  const ptrdiff_t ld = s.Kp;
  const float *dX_R = grad->dTP, *dO_R = grad->dTP + (ptrdiff_t)n * GDN2_CHUNK;
  vf dq[GDN2_CHUNK][INTRA_VECS], de[GDN2_CHUNK][INTRA_VECS], dg[GDN2_CHUNK][INTRA_VECS], term[GDN2_CHUNK][INTRA_VECS];
  for (int i = 0; i < n; i++)
    for (int x = 0; x < vecs; x++) dq[i][x] = de[i][x] = dg[i][x] = v_zero();
  for (int j = 0; j < n; j++) {
    const vf p_jj = v_set1(dO_R[j * GDN2_CHUNK + j]);
    vf d[INTRA_VECS], kd[INTRA_VECS], dk[INTRA_VECS], run[INTRA_VECS];
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const ptrdiff_t at = j * ld + m + x * VL;
      kd[x] = v_load(keys->k + at);
      d[x] = v_set1(1.0f);
      dk[x] = v_mul(p_jj, v_load(keys->q + at));
      dq[j][x] = v_fma(p_jj, kd[x], dq[j][x]);
      run[x] = v_zero();
    }
    for (int i = j + 1; i < n; i++) {
      const vf dp = v_set1(dO_R[i * GDN2_CHUNK + j]), dt = v_set1(dX_R[i * GDN2_CHUNK + j]); /* dt: minus dT_ij */
      UNROLL
      for (int x = 0; x < vecs; x++) {
        const ptrdiff_t at = i * ld + m + x * VL;
        const vf alpha = v_load(keys->alpha + at);
        d[x] = v_mul(d[x], alpha);
        kd[x] = v_mul(kd[x], alpha);
        dq[i][x] = v_fma(dp, kd[x], dq[i][x]);
        de[i][x] = v_fnma(dt, kd[x], de[i][x]);
        const vf both = v_fnma(dt, v_load(keys->bk + at), v_mul(dp, v_load(keys->q + at)));
        dk[x] = v_fma(both, d[x], dk[x]);
        term[i][x] = v_mul(both, kd[x]);
      }
    }
    UNROLL
    for (int x = 0; x < vecs; x++) v_store(grad->dk_pair + j * ld + m + x * VL, dk[x]);
    for (int i = n - 1; i > j; i--) {
      UNROLL
      for (int x = 0; x < vecs; x++) {
        run[x] = v_add(run[x], term[i][x]);
        dg[i][x] = v_add(dg[i][x], run[x]);
      }
    }
  }
  for (int i = 0; i < n; i++) {
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const ptrdiff_t at = i * ld + m + x * VL;
      v_store(grad->dq_pair + at, dq[i][x]);
      v_store(grad->de_pair + at, de[i][x]);
      v_store(grad->dg_pair + at, dg[i][x]);
    }
  }
}

STAGE void stage_intra(gdn2_shape s, int n, const gdn2_keys *keys, gdn2_grad *grad) {
  int m = 0;
  for (; m + INTRA_VECS * VL <= s.Kp; m += INTRA_VECS * VL) intra_group(s, n, keys, INTRA_VECS, m, grad);
  for (; m < s.Kp; m += VL) intra_group(s, n, keys, 1, m, grad);
}
