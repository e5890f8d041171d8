/* scores: how tokens of a chunk see each other.
 *
 *     d_ij = alpha_{j+1} ... alpha_i                      decay over (j, i], per channel
 *     P_ij = sum_c scale q_i k_j d_ij       i >= j        (14)
 *     T_ij = sum_c b_i k_i k_j d_ij         i > j         (15)
 *     Ktail_j = k_j d_nj                                  (16)
 *
 * Stable: every pair decay is a running product, so nothing overflows at any decay, and row i never sees a later token.
 * Cost: 5 K operations per pair; about 6 % of a chunk at K = V = 128. */
#include "stage/exact.h"

INLINE void scores_group(gdn2_shape s, const gdn2_keys *keys, int n, int vecs, int m, gdn2_scores *out) {
  for (int j = 0; j < n; j++) {
    vf d[8], sum = v_zero();
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const ptrdiff_t at = (ptrdiff_t)j * s.Kp + m + x * VL;
      d[x] = v_load(keys->k + at);
      sum = v_fma(v_load(keys->q + at), d[x], sum);
    }
    out->P[j * GDN2_CHUNK + j] += v_sum(sum);
    for (int i = j + 1; i < n; i++) {
      vf p = v_zero(), e = v_zero();
      UNROLL
      for (int x = 0; x < vecs; x++) {
        const ptrdiff_t at = (ptrdiff_t)i * s.Kp + m + x * VL;
        d[x] = v_mul(d[x], v_load(keys->alpha + at));
        p = v_fma(v_load(keys->q + at), d[x], p);
        e = v_fma(v_load(keys->bk + at), d[x], e);
      }
      out->P[i * GDN2_CHUNK + j] += v_sum(p);
      out->T[i * GDN2_CHUNK + j] += v_sum(e);
    }
    UNROLL
    for (int x = 0; x < vecs; x++) v_store(out->Ktail + (ptrdiff_t)j * s.Kp + m + x * VL, d[x]);
  }
}

STAGE void stage_scores(gdn2_shape s, const gdn2_keys *keys, int n, gdn2_scores *out) {
  memset(out->P, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  memset(out->T, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
#define CALL(VECS, AT) scores_group(s, keys, n, VECS, (AT)*VL, out)
  BY_GROUPS(s.Kp / VL, CALL);
#undef CALL
}
