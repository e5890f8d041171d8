/* Matrix products of the table; storage contract (see matrix_tmpl.c for the arithmetic):
 *
 *   A[i,p] = A[i * a_row + p * a_col]     plain: a_row = lda, a_col = 1; transposed (A stored k x m): a_row = 1, a_col = lda
 *   B[p,j] = B[p * ldb + j]               k x n
 *   C[i,j] = C[i * ldc + j]               m x n; must not overlap A or B
 *
 * Any m, n, k >= 0; nothing outside the addressed elements is read or written.
 */
#ifndef GDN2_STAGE_MATRIX_H
#define GDN2_STAGE_MATRIX_H
#include <stddef.h>

/* C = A B, C += A B or C -= A B. */
typedef void gdn2_mul_fn(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb,
                         float *C, ptrdiff_t ldc);
/* C = diag(decay) C0 + A B; decay has m numbers; C0 may be C. */
typedef void gdn2_mul_decay_fn(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B,
                               ptrdiff_t ldb, const float *decay, const float *C0, ptrdiff_t ldc0, float *C, ptrdiff_t ldc);
/* At[j,i] = A[i,j] for an m x n matrix A. */
typedef void gdn2_transpose_fn(int m, int n, const float *A, ptrdiff_t lda, float *At, ptrdiff_t ldat);

typedef struct gdn2_matrix_stages {
  gdn2_mul_fn *mul_set, *mul_add, *mul_sub;
  gdn2_mul_decay_fn *mul_decay;
  gdn2_transpose_fn *transpose;
} gdn2_matrix_stages;
#endif
