#include "parts.h"
#include <math.h>

/* y = x / sqrt(sum(x^2) + eps). eps stands inside the root: a zero vector gives zero, and the slope there is eps^-1/2, not
 * infinite. */
void lm_l2norm_forward(float *out, float *rstd, const float *x, int64_t R, int64_t K, double eps) {
  for (int64_t r = 0; r < R; r++) {
    const float *row = x + r * K;
    double sum = 0;
    for (int64_t i = 0; i < K; i++) sum += (double)row[i] * row[i];
    rstd[r] = (float)(1 / sqrt(sum + eps));
    for (int64_t i = 0; i < K; i++) out[r * K + i] = row[i] * rstd[r];
  }
}
