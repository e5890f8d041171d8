/* scores: how tokens of a chunk see each other.
 *
 *     d_ij = alpha_{j+1} ... alpha_i                      decay over (j, i], per channel
 *     P_ij = sum_c scale q_i k_j d_ij       i >= j        (14)
 *     T_ij = sum_c b_i k_i k_j d_ij         i > j         (15)
 *     Ktail_j = k_j d_nj                                  (16)
 *
 * Stable: every pair decay is a running product, so nothing overflows at any decay, and row i never sees a later token.
 * Cost: 5 K operations per pair, and the lane sums of two numbers; with the load a seventh of a chunk's time at K = V = 128. */
#include "stage/exact.h"

/* Row i against `cols` keys from j on: their rows of Ktail, which hold k_j decay(j..i-1], are carried on to i. `diagonal`: and
 * against its own key. Four keys at a time share the row's loads and keep eight sums in flight. p, e: where row i of P and T
 * goes; cols and diagonal are constants. */
INLINE void scores_block(int Kp, const float *alpha, const float *q, const float *k, const float *bk, int cols, int diagonal,
                         float *D, float *p, float *e) {
  vf sums[8];
  UNROLL
  for (int c = 0; c < 8; c++) sums[c] = v_zero();
  UNROLL_4
  for (int x = 0; x < Kp; x += VL) {
    const vf alpha_i = v_load(alpha + x), q_i = v_load(q + x), bk_i = v_load(bk + x);
    UNROLL
    for (int c = 0; c < cols; c++) {
      const vf d = v_mul(v_load(D + (ptrdiff_t)c * Kp + x), alpha_i);
      v_store(D + (ptrdiff_t)c * Kp + x, d);
      sums[c] = v_fma(q_i, d, sums[c]);
      sums[4 + c] = v_fma(bk_i, d, sums[4 + c]);
    }
    if (diagonal) {
      const vf k_i = v_load(k + x);
      v_store(D + (ptrdiff_t)cols * Kp + x, k_i);
      sums[cols] = v_fma(q_i, k_i, sums[cols]);
    }
  }
  v_add_sums(sums, p, e);
}

/* Row i of P and T. */
INLINE void scores_row(gdn2_shape s, gdn2_keys keys, int i, gdn2_scores out) {
  const ptrdiff_t row = (ptrdiff_t)i * keys.ld;
  const float *alpha = keys.alpha + row, *q = keys.q + row, *k = keys.k + row, *bk = keys.bk + row;
  float *p = out.P + (ptrdiff_t)i * GDN2_CHUNK, *e = out.T + (ptrdiff_t)i * GDN2_CHUNK;
  int j = 0;
#define BLOCK(COLS, DIAGONAL) scores_block(s.Kp, alpha, q, k, bk, COLS, DIAGONAL, out.Ktail + (ptrdiff_t)j * s.Kp, p + j, e + j)
  for (; j + 4 <= i; j += 4) BLOCK(4, 0);
  switch (i - j) {
  case 0: BLOCK(0, 1); break;
  case 1: BLOCK(1, 1); break;
  case 2: BLOCK(2, 1); break;
  default: BLOCK(3, 1); break;
  }
#undef BLOCK
}

/* Row after row; s is a constant where that pays. */
INLINE void scores_rows(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *keys, const gdn2_scores *out) {
  for (int i = 0; i < n; i++) {
    load_token(s, head, t0, n, i, *keys);
    scores_row(s, *keys, i, *out);
  }
}

/* load and scores, token by token: what a row needs of its own inputs stays in the first-level cache. */
STAGE void stage_scores(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *keys, const gdn2_scores *out) {
  memset(out->P, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  memset(out->T, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  load_factors(s, head, t0, n, keys);
  switch (s.K) {
  case 64: scores_rows((gdn2_shape){.K = 64, .Kp = 64}, head, t0, n, keys, out); break;
  case 128: scores_rows((gdn2_shape){.K = 128, .Kp = 128}, head, t0, n, keys, out); break;
  default: scores_rows(s, head, t0, n, keys, out);
  }
  load_chunk_decay(s, n, *keys);
}
