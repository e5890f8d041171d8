#include "parts.h"

/* y_t = sum over j of w_j x_{t-(W-1)+j}, channel by channel: tap W-1 is the token itself, tap 0 the oldest. Tokens before the
 * first are zero, so the first W-1 tokens see fewer taps. */
void lm_conv_forward(float *out, const float *x, const float *weight, int64_t T, int64_t D, int64_t W) {
  for (int64_t t = 0; t < T; t++) {
    int64_t oldest = t < W - 1 ? W - 1 - t : 0; /* the first tap that meets a token */
    const float *window = x + (t - (W - 1) + oldest) * D;
    for (int64_t d = 0; d < D; d++) {
      float sum = 0;
      for (int64_t j = oldest; j < W; j++) sum += weight[d * W + j] * window[(j - oldest) * D + d];
      out[t * D + d] = sum;
    }
  }
}
