/* Matrix products: the arithmetic core of every stage that touches the state.
 *
 *     C[m x n] = init + sign sum_p A[i,p] B[p,j]
 *
 * A is read one number at a time and broadcast, so both A and its transpose are reached by two strides; B and C are row-major.
 * Every element of C is one chain of fused multiply-adds over p = 0 .. k-1 in rising order, whatever the tile it falls in: a
 * result does not depend on m, n or on where the matrix is cut. Cost: 2 m n k operations; at the FMA peak when B stays in cache.
 */
#include "chunk/records.h"
#include "stage/matrix.h"

typedef enum { PRODUCT_SET, PRODUCT_ADD, PRODUCT_SUB, PRODUCT_DECAY } product_kind;

/* Rows of a tile in a panel narrower than TILE_VECS: enough independent sums to hide the latency of one. */
#define NARROW_ROWS 8
#define MOST_ROWS (TILE_ROWS > NARROW_ROWS ? TILE_ROWS : NARROW_ROWS)

/* One step of a tile: c += A[., p] B[p, .]. A4: row 4 of A, so that eight rows need no more than four offsets. */
INLINE void product_step(product_kind kind, int rows, int vecs, int tail, const float *A, const float *A4, ptrdiff_t a_row,
                         const float *B, vf c[MOST_ROWS][TILE_VECS]) {
  vf b[TILE_VECS];
  UNROLL
  for (int j = 0; j < vecs; j++) b[j] = v_load_upto(B + j * VL, j == vecs - 1 ? tail : VL);
  UNROLL
  for (int i = 0; i < rows; i++) {
    const vf a = v_set1(i < 4 ? A[i * a_row] : A4[(i - 4) * a_row]);
    UNROLL
    for (int j = 0; j < vecs; j++) c[i][j] = kind == PRODUCT_SUB ? v_fnma(a, b[j], c[i][j]) : v_fma(a, b[j], c[i][j]);
  }
}

/* Fetches the next piece of what `ahead` wants. One that begins inside a line, as large arrays from `malloc` make it, ends in one
 * line more. */
INLINE void fetch_piece(gdn2_ahead *ahead) {
  const char *at = ahead->at;
  if (!at) return;
  UNROLL
  for (int line = 0; line < GDN2_PIECE; line += 64) __builtin_prefetch(at + line, 0, 2);
  __builtin_prefetch(at + GDN2_PIECE - 1, 0, 2);
  ahead->at = at + GDN2_PIECE;
  if (ahead->at >= ahead->end) gdn2_ahead_row(ahead);
}

/* One tile of `rows` x `vecs` vectors; the last vector has `tail` floats. rows, vecs and kind are constants. */
INLINE void product_tile(product_kind kind, gdn2_ahead *ahead, int rows, int vecs, int tail, int k, const float *A,
                         ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb, const float *decay, const float *C0,
                         ptrdiff_t ldc0, float *C, ptrdiff_t ldc) {
  vf c[MOST_ROWS][TILE_VECS];
  UNROLL
  for (int i = 0; i < rows; i++, C0 += ldc0) {
    UNROLL
    for (int j = 0; j < vecs; j++) {
      const int count = j == vecs - 1 ? tail : VL;
      if (kind == PRODUCT_SET)
        c[i][j] = v_zero();
      else
        c[i][j] = v_load_upto(C0 + j * VL, count);
      if (kind == PRODUCT_DECAY) c[i][j] = v_mul(v_set1(decay[i]), c[i][j]);
    }
  }
  const float *A4 = rows > 4 ? A + 4 * a_row : A;
  /* Without this the compiler sees through A4 and makes the offsets of all tiles at once, more than it has registers for: it then
   * keeps some in vector registers, and fetching them takes the multiply-adds' time. */
  __asm__ volatile("" : "+r"(A4), "+r"(a_row));
  int p = 0;
  if (ahead)
    for (; p + 4 <= k; p += 4) {
      if ((p & ahead->rest) == 0) fetch_piece(ahead);
      UNROLL
      for (int step = 0; step < 4; step++, A += a_col, A4 += a_col, B += ldb)
        product_step(kind, rows, vecs, tail, A, A4, a_row, B, c);
    }
  for (; p < k; p++, A += a_col, A4 += a_col, B += ldb) product_step(kind, rows, vecs, tail, A, A4, a_row, B, c);
  UNROLL
  for (int i = 0; i < rows; i++, C += ldc) {
    UNROLL
    for (int j = 0; j < vecs; j++) v_store_upto(C + j * VL, c[i][j], j == vecs - 1 ? tail : VL);
  }
}

/* All rows of one column panel of `vecs` vectors. Rows left over by the full tiles go in fours, twos and one: two fours are
 * better than a full tile and a two, whose few sums would wait for each other. */
INLINE void product_panel(product_kind kind, gdn2_ahead *ahead, int vecs, int tail, int m, int k, const float *A, ptrdiff_t a_row,
                          ptrdiff_t a_col, const float *B, ptrdiff_t ldb, const float *decay, const float *C0, ptrdiff_t ldc0,
                          float *C, ptrdiff_t ldc) {
  const int full = vecs == TILE_VECS ? TILE_ROWS : NARROW_ROWS;
#define TILE(ROWS)                                                                                                               \
  product_tile(kind, ahead, ROWS, vecs, tail, k, A + i * a_row, a_row, a_col, B, ldb, decay + i, C0 + i * ldc0, ldc0,            \
               C + i * ldc, ldc)
  int i = 0;
  for (; m - i >= full && !(full == 6 && m - i == 8); i += full) TILE(full);
  for (; m - i >= 4; i += 4) TILE(4);
  for (; m - i >= 2; i += 2) TILE(2);
  for (; m - i >= 1; i += 1) TILE(1);
#undef TILE
}

INLINE void product(product_kind kind, gdn2_ahead *ahead, int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col,
                    const float *B, ptrdiff_t ldb, const float *decay, const float *C0, ptrdiff_t ldc0, float *C, ptrdiff_t ldc) {
  int j = 0;
  for (; j + TILE_VECS * VL <= n; j += TILE_VECS * VL)
    product_panel(kind, ahead, TILE_VECS, VL, m, k, A, a_row, a_col, B + j, ldb, decay, C0 + j, ldc0, C + j, ldc);
  if (TILE_VECS > 2 && j + 2 * VL <= n) {
    product_panel(kind, ahead, 2, VL, m, k, A, a_row, a_col, B + j, ldb, decay, C0 + j, ldc0, C + j, ldc);
    j += 2 * VL;
  }
  for (; j + VL <= n; j += VL)
    product_panel(kind, ahead, 1, VL, m, k, A, a_row, a_col, B + j, ldb, decay, C0 + j, ldc0, C + j, ldc);
  if (j < n) product_panel(kind, ahead, 1, n - j, m, k, A, a_row, a_col, B + j, ldb, decay, C0 + j, ldc0, C + j, ldc);
}

STAGE void mul_set(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb, float *C,
                   ptrdiff_t ldc) {
  if (a_col == 1)
    product(PRODUCT_SET, NULL, m, n, k, A, a_row, 1, B, ldb, C, C, ldc, C, ldc);
  else
    product(PRODUCT_SET, NULL, m, n, k, A, a_row, a_col, B, ldb, C, C, ldc, C, ldc);
}

STAGE void mul_add(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb, float *C,
                   ptrdiff_t ldc) {
  product(PRODUCT_ADD, NULL, m, n, k, A, a_row, a_col, B, ldb, C, C, ldc, C, ldc);
}

STAGE void mul_sub(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb, float *C,
                   ptrdiff_t ldc) {
  product(PRODUCT_SUB, NULL, m, n, k, A, a_row, a_col, B, ldb, C, C, ldc, C, ldc);
}

STAGE void mul_decay(int m, int n, int k, const float *A, ptrdiff_t a_row, ptrdiff_t a_col, const float *B, ptrdiff_t ldb,
                     const float *decay, const float *C0, ptrdiff_t ldc0, float *C, ptrdiff_t ldc) {
  if (a_row == 1)
    product(PRODUCT_DECAY, NULL, m, n, k, A, 1, a_col, B, ldb, decay, C0, ldc0, C, ldc);
  else
    product(PRODUCT_DECAY, NULL, m, n, k, A, a_row, a_col, B, ldb, decay, C0, ldc0, C, ldc);
}

/* A block that ends within the matrix's last VL rows or columns: through a full block of its own. */
INLINE void transpose_edge(int m, int n, const float *A, ptrdiff_t lda, float *At, ptrdiff_t ldat) {
  float block[VL * VL] = {0};
  vf r[VL];
  for (int i = 0; i < m; i++) v_store(block + i * VL, v_load_upto(A + i * lda, n));
  v_load_transposed(block, VL, r);
  for (int j = 0; j < n; j++) v_store_upto(At + j * ldat, r[j], m);
}

STAGE void transpose(int m, int n, const float *A, ptrdiff_t lda, float *At, ptrdiff_t ldat) {
  for (int i = 0; i < m; i += VL)
    for (int j = 0; j < n; j += VL) {
      const float *from = A + i * lda + j;
      float *to = At + j * ldat + i;
      if (m - i < VL || n - j < VL) {
        transpose_edge(m - i < VL ? m - i : VL, n - j < VL ? n - j : VL, from, lda, to, ldat);
        continue;
      }
      vf r[VL];
      v_load_transposed(from, lda, r);
      UNROLL
      for (int x = 0; x < VL; x++) v_store(to + x * ldat, r[x]);
    }
}
