#include "lm/parts.h"
#include <string.h>

/* x_t = E[token_t]: one row of the table for each token. */
void lm_embedding_forward(real *x, const int32_t *tokens, const real *E, int64_t T, int64_t D) {
  for (int64_t t = 0; t < T; t++) memcpy(x + t * D, E + tokens[t] * D, (size_t)D * sizeof(real));
}

/* Two tokens may share a row, so that the channels are shared out, not the tokens. */
void lm_embedding_backward(real *dE, const real *dx, const int32_t *tokens, int64_t T, int64_t D) {
  const int64_t block = 64, blocks = (D + block - 1) / block;
  LM_PARALLEL_FOR(T * D)
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t first = i * block, last = first + block < D ? first + block : D;
    for (int64_t t = 0; t < T; t++)
      for (int64_t d = first; d < last; d++) dE[tokens[t] * D + d] += dx[t * D + d];
  }
}
