/* load: one chunk of q, k, g, b with its gates applied.
 *
 *     alpha_t = exp(g_t)                      (10)
 *     gamma_t = gamma_{t-1} alpha_t           (11)
 *     E_t = gamma_t b_t k_t                   (12)
 *     Qg_t = scale gamma_t q_t                (13)
 *
 * Stable: gamma is a running product of numbers in [0, 1] (for g <= 0), never a quotient; g = -inf gives exactly 0. The decay of
 * the whole chunk multiplies the state, chunk after chunk, and its rounding adds up over the length: where it is mild, it is the
 * exponential of the sum of g, rounded once, and not the product of 16 rounded numbers.
 * Cost: one exponential and five products per channel and token. */
#include "stage/exact.h"

/* Records come by value: a vector store may alias anything, so pointers read through a record would be read again after each. */
/* Channels m .. of token t, whose row of the group's arrays starts at `row`. */
INLINE void load_vector(gdn2_shape s, gdn2_head head, int64_t t, int i, int m, vf *gamma, ptrdiff_t row, ptrdiff_t e_row,
                        ptrdiff_t q_row, vf *g_sum, gdn2_keys out) {
  const int count = s.K > m ? s.K - m : 0;
  const vf q = v_mul(row_load(&head.q, t, m, count), v_set1(out.factor[i]));
  const vf k = v_mul(row_load(&head.k, t, m, count), v_set1(out.factor[GDN2_CHUNK + i]));
  const vf bk = v_mul(erase_gate(&head, t, m, count), k);
  const vf g = decay_gate(&head, t, m, count), alpha = v_exp(g);
  *g_sum = v_add(*g_sum, g);
  *gamma = v_mul(*gamma, alpha);
  v_store(out.alpha + row, alpha);
  v_store(out.q + row, q);
  v_store(out.bk + row, bk);
  if (out.kept) {
    v_store(out.k + row, k);
    v_store(out.gamma + row, *gamma);
  }
  v_store(out.EQ + e_row + m, v_fnma(*gamma, bk, v_zero()));
  v_store(out.EQ + q_row + m, v_mul(*gamma, q));
}

/* What multiplies the rows of q and k: the scale; with L2 normalisation also 1 / sqrt(sum of squares + 1e-6). */
INLINE void load_factors(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *out) {
  for (int t = 0; t < n; t++) {
    float norm[2] = {1.0f, 1.0f};
    if (head->rule.l2norm) {
      vf q2 = v_zero(), k2 = v_zero();
      for (int m = 0; m < s.K; m += VL) {
        const vf q = row_load(&head->q, t0 + t, m, s.K - m), k = row_load(&head->k, t0 + t, m, s.K - m);
        q2 = v_fma(q, q, q2);
        k2 = v_fma(k, k, k2);
      }
      norm[0] = 1.0f / sqrtf(v_sum(q2) + 1e-6f);
      norm[1] = 1.0f / sqrtf(v_sum(k2) + 1e-6f);
    }
    out->factor[t] = head->scale * norm[0];
    out->factor[GDN2_CHUNK + t] = norm[1];
  }
}

/* exp(sum of g) where |sum| <= 1, the running product elsewhere: the error of a large sum would grow with it. */
INLINE vf chunk_decay(vf g_sum, vf gamma) { return v_select(v_le(v_abs(g_sum), v_set1(1.0f)), v_exp(g_sum), gamma); }

/* Token by token, as the caller's memory lies. at: where the group starts in the rows of the group's arrays. */
STAGE void load_group(gdn2_shape s, gdn2_head head, int64_t t0, int n, int vecs, int m, int at, gdn2_keys out) {
  vf gamma[GDN2_GROUP / VL], g_sum[GDN2_GROUP / VL];
  for (int x = 0; x < vecs; x++) gamma[x] = v_set1(1.0f), g_sum[x] = v_zero();
  for (int t = 0; t < n; t++)
    for (int x = 0; x < vecs; x++)
      load_vector(s, head, t0 + t, t, m + x * VL, &gamma[x], (ptrdiff_t)t * out.ld + at + x * VL, (ptrdiff_t)t * s.Kp,
                  (ptrdiff_t)(n + t) * s.Kp, &g_sum[x], out);
  for (int x = 0; x < vecs; x++) v_store(out.gamma_n + m + x * VL, chunk_decay(g_sum[x], gamma[x]));
}
