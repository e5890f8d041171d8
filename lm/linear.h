/* linear.h - y = x W^T and its gradients, by CBLAS; W[N][D] holds the weights of an output in a row, as PyTorch's Linear does.
 *
 * Every product is cut into tiles of fixed size, each a call of a single-threaded BLAS, and the tiles are shared out to threads:
 * the bits do not depend on how many there are. All sizes fit an int. */
#ifndef GDN2_LM_LINEAR_H
#define GDN2_LM_LINEAR_H
#include "lm/real.h"
#include <stdint.h>

/* At most this many threads in everything of lm/ from now on, 0: as OpenMP would take; BLAS itself is held to one. */
void lm_threads_set(int threads);

/* y[T][N] = x[T][D] W^T + beta y. Leading dimensions ldy, ldx. */
void lm_linear_forward(real *y, int64_t ldy, const real *x, int64_t ldx, const real *W, int64_t T, int64_t D, int64_t N,
                       real beta);

/* dx[T][D] = dy[T][N] W + beta dx. */
void lm_linear_input(real *dx, int64_t ldx, const real *dy, int64_t ldy, const real *W, int64_t T, int64_t D, int64_t N,
                     real beta);

/* dW[N][D] += dy[T][N]^T x[T][D]. */
void lm_linear_weight(real *dW, const real *dy, int64_t ldy, const real *x, int64_t ldx, int64_t T, int64_t D, int64_t N);

#endif
