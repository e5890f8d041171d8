/* Kernel B: A = (I + T)^-1 with T = (1 - wy_eps) Akk, strictly lower triangular.
 *
 *     micro-block (mb):  A_i = e_i - sum_{j < i} T_ij A_j                     row by row
 *     blocks m > n:      A_mn = -A_mm sum_{n <= k < m} T_mk A_kn              first of mb inside bc, then of bc inside bt
 *
 * Stable as forward substitution is: no power of T is formed. Each row, each partial sum and each block is clipped, as in the
 * seed; its top level has two blocks, where the same formula reads A_10 = -A_11 (T_10 A_00). Cost: about C^3 / 3 multiply-adds,
 * nearly all in matrix products.
 */

STAGE int64_t seed_micro_block(int size, float clip, const float *T, ptrdiff_t ldt, float *A, ptrdiff_t lda) {
  int64_t replaced = 0;
  for (int i = 0; i < size; i++) {
    float *row = A + i * lda;
    mul_sub(1, i, i, T + i * ldt, 0, 1, A, lda, row, lda);
    row[i] = 1.0f;
    replaced += seed_sanitize(i + 1, clip, row, row);
  }
  return replaced;
}

/* The blocks below the diagonal of a triangle of count x count blocks; those on it are done, the rest of A is 0. */
STAGE int64_t seed_block_rows(int count, int size, float clip, const float *T, ptrdiff_t ldt, float *A, ptrdiff_t lda,
                              float *sum) {
  int64_t replaced = 0;
  const ptrdiff_t area = (ptrdiff_t)size * size;
  for (int m = 1; m < count; m++)
    for (int n = m - 1; n >= 0; n--) {
      for (ptrdiff_t x = 0; x < area; x++) sum[x] = 0.0f;
      for (int k = n; k < m; k++) {
        mul_add(size, size, size, T + m * size * ldt + k * size, ldt, 1, A + k * size * lda + n * size, lda, sum, size);
        replaced += seed_sanitize(area, clip, sum, sum);
      }
      float *block = A + m * size * lda + n * size;
      mul_sub(size, size, size, A + m * size * lda + m * size, lda, 1, sum, size, block, lda);
      replaced += seed_sanitize_rows(size, size, clip, block, lda);
    }
  return replaced;
}

STAGE int64_t seed_solve(const gdn2_seed_dims *d, const float *Akk, float *A, gdn2_seed_scratch *s) {
  const int C = d->C;
  const ptrdiff_t ld = C, all = ld * C;
  int64_t replaced = 0;
  seed_scaled(all, d->damp, Akk, s->M);
  for (ptrdiff_t x = 0; x < all; x++) A[x] = 0.0f;
  for (int b0 = 0; b0 < C; b0 += d->bc) {
    for (int m0 = b0; m0 < b0 + d->bc; m0 += d->mb)
      replaced += seed_micro_block(d->mb, d->clip, s->M + m0 * ld + m0, ld, A + m0 * ld + m0, ld);
    replaced += seed_block_rows(d->bc / d->mb, d->mb, d->clip, s->M + b0 * ld + b0, ld, A + b0 * ld + b0, ld, s->block);
  }
  return replaced + seed_block_rows(C / d->bc, d->bc, d->clip, s->M, ld, A, ld, s->block);
}
