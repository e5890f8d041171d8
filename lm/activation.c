#include "parts.h"
#include <math.h>

/* 1 / (1 + e^-x): for x below -88 the exponential is infinite and the quotient 0, which is the right limit. */
static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* silu(x) = x sigmoid(x). */
void lm_silu_forward(float *out, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * sigmoid(x[i]);
}

void lm_sigmoid_forward(float *out, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = sigmoid(x[i]);
}
