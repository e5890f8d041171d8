/* load: one chunk of q, k, g, b with its gates applied.
 *
 *     alpha_t = exp(g_t)                      (10)
 *     gamma_t = gamma_{t-1} alpha_t           (11)
 *     E_t = gamma_t b_t k_t                   (12)
 *     Qg_t = scale gamma_t q_t                (13)
 *
 * Stable: gamma is a running product of numbers in [0, 1] (for g <= 0), never a quotient; g = -inf gives exactly 0.
 * Cost: one exponential and five products per channel and token. */
#include "stage/exact.h"

INLINE void load_vector(const gdn2_head *head, int64_t t, int m, int count, vf *gamma, ptrdiff_t at, ptrdiff_t query,
                        gdn2_keys *out) {
  const vf q = v_mul(row_load(&head->q, t, m, count), v_set1(head->scale));
  const vf k = row_load(&head->k, t, m, count);
  const vf bk = v_mul(row_load(&head->b, t, m, count), k);
  const vf alpha = head->g.at ? v_exp(row_load(&head->g, t, m, count)) : v_set1(1.0f);
  *gamma = v_mul(*gamma, alpha);
  v_store(out->alpha + at, alpha);
  v_store(out->gamma + at, *gamma);
  v_store(out->q + at, q);
  v_store(out->k + at, k);
  v_store(out->bk + at, bk);
  v_store(out->EQ + at, v_sub(v_zero(), v_mul(*gamma, bk)));
  v_store(out->EQ + query + at, v_mul(*gamma, q));
}

/* Token by token, as the caller's memory lies. */
STAGE void stage_load(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, gdn2_keys *out) {
  const ptrdiff_t query = (ptrdiff_t)n * s.Kp;
  vf gamma[GDN2_MAX_DIM / VL];
  for (int m = 0; m < s.Kp; m += VL) gamma[m / VL] = v_set1(1.0f);
  for (int t = 0; t < n; t++) {
    const ptrdiff_t row = (ptrdiff_t)t * s.Kp;
    int m = 0;
    for (; m + VL <= s.K; m += VL) load_vector(head, t0 + t, m, VL, &gamma[m / VL], row + m, query, out);
    for (; m < s.Kp; m += VL) load_vector(head, t0 + t, m, s.K > m ? s.K - m : 0, &gamma[m / VL], row + m, query, out);
  }
}
