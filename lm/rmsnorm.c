#include "parts.h"
#include <math.h>

/* out = x / sqrt(mean(x^2) + eps) * weight, over the channels of a token. */
void lm_rmsnorm_forward(float *out, float *rstd, const float *x, const float *weight, int64_t T, int64_t D, double eps) {
  for (int64_t t = 0; t < T; t++) {
    const float *row = x + t * D;
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += (double)row[d] * row[d];
    rstd[t] = (float)(1 / sqrt(sum / (double)D + eps));
    for (int64_t d = 0; d < D; d++) out[t * D + d] = row[d] * rstd[t] * weight[d];
  }
}
