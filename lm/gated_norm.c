#include "lm/mixer.h"
#include "lm/parts.h"

static real rstd_of(const real *x, int64_t K) {
  double sum = 0;
  for (int64_t i = 0; i < K; i++) sum += (double)x[i] * (double)x[i];
  return (real)(1 / sqrt(sum / (double)K + LM_NORM_EPS));
}

/* y = o r w act(z), r = (mean(o^2) + eps)^-1/2; act is silu or sigmoid. */
void lm_gated_norm_forward(real *y, const real *o, const real *z, const real *w, int sigmoid, int64_t R, int64_t K) {
  LM_PARALLEL_FOR
  for (int64_t n = 0; n < R; n++) {
    const real *x = o + n * K, r = rstd_of(x, K);
    for (int64_t i = 0; i < K; i++) {
      const real a = z[n * K + i], s = lm_sigmoid(a);
      y[n * K + i] = x[i] * r * w[i] * (sigmoid ? s : a * s);
    }
  }
}

/* y becomes dy n act(z), whose sum over the rows is dw. */
void lm_gated_norm_backward(real *d_o, real *dz, real *dw, real *y, const real *dy, const real *o, const real *z, const real *w,
                            int sigmoid, int64_t R, int64_t K) {
  LM_PARALLEL_FOR
  for (int64_t n = 0; n < R; n++) {
    const real *x = o + n * K, r = rstd_of(x, K);
    double sum = 0;
    for (int64_t i = 0; i < K; i++) {
      const int64_t at = n * K + i;
      const real a = z[at], s = lm_sigmoid(a), act = sigmoid ? s : a * s;
      const real slope = sigmoid ? s * (1 - s) : s * (1 + a * (1 - s));
      dz[at] = dy[at] * x[i] * r * w[i] * slope;
      y[at] = dy[at] * x[i] * r * act;
      d_o[at] = dy[at] * w[i] * act;
      sum += (double)d_o[at] * (double)x[i];
    }
    const real mean = (real)(sum * (double)r / (double)K);
    for (int64_t i = 0; i < K; i++) d_o[n * K + i] = r * (d_o[n * K + i] - x[i] * r * mean);
  }
  for (int64_t n = 0; n < R; n++)
    for (int64_t i = 0; i < K; i++) dw[i] += y[n * K + i];
}
