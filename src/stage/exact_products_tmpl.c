/* Products with a state and into one, which fetch what is wanted next while they run. A: [rows][Kp], B: [rows][Vp].
 *
 *     X = A S                     [-E; Qg] S0, and Ktail dS1 of                     (20)
 *     S1 = diag(gamma_n) S0 + A^T B                                                 (19) (33)
 *
 * Cost: a forward has 3 K V multiply-adds per token of them, at the peak. */
#include "stage/exact.h"
#include <string.h>

STAGE void stage_project(gdn2_shape s, int rows, const float *A, const float *S, float *X, gdn2_ahead *ahead) {
  product(PRODUCT_SET, ahead, rows, s.Vp, s.K, A, s.Kp, 1, S, s.Sp, X, X, s.Vp, X, s.Vp);
}

/* X for S0 = 0, and 1; or 0 and nothing if a number that 0 is multiplied by is not finite, for then X or S1 has a NaN. */
STAGE int stage_project_zeros(gdn2_shape s, int rows, const gdn2_keys *keys, float *X) {
  vf products = v_zero();
  for (int x = 0; x < rows * s.Kp; x += VL) products = v_fma(v_load(keys->EQ + x), v_zero(), products);
  for (int x = 0; x < s.Kp; x += VL) products = v_fma(v_load(keys->gamma_n + x), v_zero(), products);
  const int finite = v_sum(products) == 0.0f;
  if (finite) memset(X, 0, sizeof(float) * (size_t)rows * (size_t)s.Vp);
  return finite;
}

/* S0 == NULL: zeros, as stage_project_zeros found them to be enough. */
STAGE void stage_update(gdn2_shape s, int rows, const float *A, const float *B, const float *gamma_n, const float *S0, float *S1,
                        gdn2_ahead *ahead) {
  if (S0)
    product(PRODUCT_DECAY, ahead, s.K, s.Vp, rows, A, 1, s.Kp, B, s.Vp, gamma_n, S0, s.Sp, S1, s.Sp);
  else
    product(PRODUCT_SET, ahead, s.K, s.Vp, rows, A, 1, s.Kp, B, s.Vp, gamma_n, S1, s.Sp, S1, s.Sp);
}
