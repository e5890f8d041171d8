#include "lm/parts.h"

/* y = x r w, r = (mean(x^2) + eps)^-1/2. */
static real rstd_of(const real *x, int64_t D) {
  double sum = 0;
  for (int64_t d = 0; d < D; d++) sum += (double)x[d] * (double)x[d];
  return (real)(1 / sqrt(sum / (double)D + LM_NORM_EPS));
}

void lm_rmsnorm_forward(real *y, const real *x, const real *w, int64_t T, int64_t D) {
  LM_PARALLEL_FOR
  for (int64_t t = 0; t < T; t++) {
    const real *row = x + t * D, r = rstd_of(row, D);
    for (int64_t d = 0; d < D; d++) y[t * D + d] = row[d] * r * w[d];
  }
}

/* n = x r, dn = dy w: dx = r (dn - n mean(dn n)). dy becomes dy n, whose sum over the tokens is dw. */
static void row_backward(real *dx, real *dy, const real *x, const real *w, int64_t D) {
  const real r = rstd_of(x, D);
  double sum = 0;
  for (int64_t d = 0; d < D; d++) sum += (double)(dy[d] * w[d]) * (double)x[d];
  const real mean = (real)(sum * (double)r / (double)D);
  for (int64_t d = 0; d < D; d++) {
    const real n = x[d] * r;
    dx[d] += r * (dy[d] * w[d] - n * mean);
    dy[d] *= n;
  }
}

void lm_rmsnorm_backward(real *dx, real *dw, real *dy, const real *x, const real *w, int64_t T, int64_t D) {
  const int64_t block = 64, blocks = (D + block - 1) / block;
  LM_PARALLEL_FOR
  for (int64_t t = 0; t < T; t++) row_backward(dx + t * D, dy + t * D, x + t * D, w, D);
  LM_PARALLEL_FOR
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t first = i * block, last = first + block < D ? first + block : D;
    for (int64_t t = 0; t < T; t++)
      for (int64_t d = first; d < last; d++) dw[d] += dy[t * D + d];
  }
}
