#include "parts.h"
#include <cblas.h>

/* out = x W^T: a row of W holds the weights of one output channel, as PyTorch's Linear stores them. */
void lm_linear_forward(float *out, const float *x, const float *weight, int64_t T, int64_t D, int64_t N) {
  if (T == 0) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)T, (int)N, (int)D, 1.0f, x, (int)D, weight, (int)D, 0.0f, out,
              (int)N);
}
