#include "lm/linear.h"
#include <cblas.h>
#ifdef _OPENMP
#include <omp.h>
#endif

void lm_threads_set(int threads) {
#ifdef _OPENMP
  if (threads > 0) omp_set_num_threads(threads);
#else
  (void)threads;
#endif
#ifdef LM_OPENBLAS
  openblas_set_num_threads(1);
#endif
}

/* Rows of a tile. Each tile packs the other matrix anew, so that they should be few; two threads or four should get alike many.
 */
static int64_t tile_of(int64_t rows) {
  const int64_t most = 192, together = rows < 384 ? 2 : 4, whole = 16;
  const int64_t tiles = together * ((rows + together * most - 1) / (together * most));
  return ((rows + tiles - 1) / tiles + whole - 1) / whole * whole;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* One row: a matrix product would pack all of W for it. */
static void row_forward(real *y, const real *x, const real *W, int64_t D, int64_t N, real beta) {
  const int64_t tile = 128, tiles = (N + tile - 1) / tile;
  LM_PARALLEL_FOR(D * N)
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first = i * tile, n = smaller(tile, N - first);
    lm_cblas_gemv(CblasRowMajor, CblasNoTrans, (int)n, (int)D, 1, W + first * D, (int)D, x, 1, beta, y + first, 1);
  }
}

void lm_linear_forward(real *y, int64_t ldy, const real *x, int64_t ldx, const real *W, int64_t T, int64_t D, int64_t N,
                       real beta) {
  if (T == 1) {
    row_forward(y, x, W, D, N, beta);
    return;
  }
  const int64_t tile = tile_of(T), tiles = (T + tile - 1) / tile;
  LM_PARALLEL_FOR(T * D * N)
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first = i * tile, n = smaller(tile, T - first);
    lm_cblas_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)N, (int)D, 1, x + first * ldx, (int)ldx, W, (int)D, beta,
                  y + first * ldy, (int)ldy);
  }
}

void lm_linear_input(real *dx, int64_t ldx, const real *dy, int64_t ldy, const real *W, int64_t T, int64_t D, int64_t N,
                     real beta) {
  const int64_t tile = tile_of(T), tiles = (T + tile - 1) / tile;
  LM_PARALLEL_FOR(T * D * N)
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first = i * tile, n = smaller(tile, T - first);
    lm_cblas_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)D, (int)N, 1, dy + first * ldy, (int)ldy, W, (int)D,
                  beta, dx + first * ldx, (int)ldx);
  }
}

void lm_linear_weight(real *dW, const real *dy, int64_t ldy, const real *x, int64_t ldx, int64_t T, int64_t D, int64_t N) {
  const int64_t tile = tile_of(N), tiles = (N + tile - 1) / tile;
  LM_PARALLEL_FOR(T * D * N)
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first = i * tile, n = smaller(tile, N - first);
    lm_cblas_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n, (int)D, (int)T, 1, dy + first, (int)ldy, x, (int)ldx, 1,
                  dW + first * D, (int)D);
  }
}
