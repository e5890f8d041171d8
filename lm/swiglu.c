#include "lm/parts.h"

/* h = silu(a) b, silu(a) = a s, s = sigmoid(a). */
void lm_swiglu_forward(real *h, const real *u, int64_t T, int64_t F) {
  LM_PARALLEL_FOR
  for (int64_t t = 0; t < T; t++) {
    const real *a = u + t * 2 * F, *b = a + F;
    for (int64_t i = 0; i < F; i++) h[t * F + i] = a[i] * lm_sigmoid(a[i]) * b[i];
  }
}

/* da = dh b s (1 + a (1 - s)), db = dh a s. */
void lm_swiglu_backward(real *du, const real *dh, const real *u, int64_t T, int64_t F) {
  LM_PARALLEL_FOR
  for (int64_t t = 0; t < T; t++) {
    const real *a = u + t * 2 * F, *b = a + F;
    real *da = du + t * 2 * F, *db = da + F;
    for (int64_t i = 0; i < F; i++) {
      const real s = lm_sigmoid(a[i]), d = dh[t * F + i];
      da[i] = d * b[i] * s * (1 + a[i] * (1 - s));
      db[i] = d * a[i] * s;
    }
  }
}
