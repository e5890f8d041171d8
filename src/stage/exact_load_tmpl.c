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

INLINE void load_vector(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, int m, int count, gdn2_keys *out) {
  vf gamma = v_set1(1.0f);
  for (int t = 0; t < n; t++) {
    const ptrdiff_t at = (ptrdiff_t)t * s.Kp + m;
    const vf q = v_mul(row_load(&head->q, t0 + t, m, count), v_set1(head->scale));
    const vf k = row_load(&head->k, t0 + t, m, count);
    const vf bk = v_mul(row_load(&head->b, t0 + t, m, count), k);
    const vf alpha = head->g.at ? v_exp(row_load(&head->g, t0 + t, m, count)) : v_set1(1.0f);
    gamma = v_mul(gamma, alpha);
    v_store(out->alpha + at, alpha);
    v_store(out->gamma + at, gamma);
    v_store(out->q + at, q);
    v_store(out->k + at, k);
    v_store(out->bk + at, bk);
    v_store(out->EQ + at, v_sub(v_zero(), v_mul(gamma, bk)));
    v_store(out->EQ + (ptrdiff_t)n * s.Kp + at, v_mul(gamma, q));
  }
}

STAGE void stage_load(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, gdn2_keys *out) {
  int m = 0;
  for (; m + VL <= s.K; m += VL) load_vector(s, head, t0, n, m, VL, out);
  for (; m < s.Kp; m += VL) load_vector(s, head, t0, n, m, s.K > m ? s.K - m : 0, out);
}
