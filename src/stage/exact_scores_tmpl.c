/* scores: how tokens of a chunk see each other.
 *
 *     d_ij = alpha_{j+1} ... alpha_i                      decay over (j, i], per channel
 *     P_ij = sum_c scale q_i k_j d_ij       i >= j        (14)
 *     T_ij = sum_c b_i k_i k_j d_ij         i > j         (15)
 *     Ktail_j = k_j d_nj                                  (16)
 *
 * Stable: every pair decay is a running product, so nothing overflows at any decay, and row i never sees a later token.
 * Cost: 5 K operations per pair, and the lane sums of two numbers; with the load a ninth of a chunk's time at K = V = 128. */
#include "stage/exact.h"

/* Row i against `cols` keys, a group of `vecs` vectors: the keys' rows of Ktail, at D, which hold k_j decay(j..i-1], are carried
 * on to i. `diagonal`: and against its own key. Four keys at a time share the row's vectors and keep eight sums in flight. The
 * sums are added to p and e, a row of P and of T; vecs, cols and diagonal are constants. */
INLINE void scores_block(int Kp, const token_group *row, int vecs, int cols, int diagonal, float *D, float *p, float *e) {
  vf sums[8];
  UNROLL
  for (int c = 0; c < 8; c++) sums[c] = v_zero();
  UNROLL
  for (int x = 0; x < vecs; x++) {
    UNROLL
    for (int c = 0; c < cols; c++) {
      float *at = D + (ptrdiff_t)c * Kp + x * VL;
      const vf d = v_mul(v_load(at), row->alpha[x]);
      v_store(at, d);
      sums[c] = v_fma(row->q[x], d, sums[c]);
      sums[4 + c] = v_fma(row->bk[x], d, sums[4 + c]);
    }
    if (diagonal) sums[cols] = v_fma(row->q[x], row->k[x], sums[cols]);
  }
  v_add_sums(sums, p, e);
}

/* A group of row i. */
INLINE void scores_group(int Kp, const token_group *row, int vecs, int i, float *D, float *p, float *e) {
  int j = 0;
#define BLOCK(COLS, DIAGONAL) scores_block(Kp, row, vecs, COLS, DIAGONAL, D + (ptrdiff_t)j * Kp, p + j, e + j)
  for (; j + 4 <= i; j += 4) BLOCK(4, 0);
  switch (i - j) {
  case 0: BLOCK(0, 1); break;
  case 1: BLOCK(1, 1); break;
  case 2: BLOCK(2, 1); break;
  default: BLOCK(3, 1); break;
  }
#undef BLOCK
}

/* Row after row, each a group of vectors at a time, which stay in registers where these suffice. s is a constant where that pays,
 * plain always: see load_rows. */
INLINE void scores_rows(gdn2_shape s, const gdn2_head *head, int plain, int64_t t0, int n, gdn2_keys keys, gdn2_scores out) {
  float room[4][GDN2_MAX_DIM];
  const int scalar = !plain && decay_is_scalar(head);
  for (int i = 0; i < n; i++) {
    const token_rows in = load_rows(s, head, plain, t0 + i, room);
    float *p = out.P + (ptrdiff_t)i * GDN2_CHUNK, *e = out.T + (ptrdiff_t)i * GDN2_CHUNK;
#define CALL(VECS, FIRST)                                                                                                        \
  do {                                                                                                                           \
    token_group row;                                                                                                             \
    load_group(s, scalar, in, n, i, (FIRST)*VL, VECS, keys, out.Ktail, &row);                                                    \
    scores_group(s.Kp, &row, VECS, i, out.Ktail + (ptrdiff_t)(FIRST)*VL, p, e);                                                  \
  } while (0)
    BY_GROUPS(s.Kp / VL, KEYS_MOST, CALL);
#undef CALL
  }
}

INLINE void scores_of(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, gdn2_keys keys, gdn2_scores out) {
  if (load_is_plain(head))
    scores_rows(s, head, 1, t0, n, keys, out);
  else
    scores_rows(s, head, 0, t0, n, keys, out);
}

/* load and scores, token by token: what a row needs of its own inputs stays in the first-level cache. */
STAGE void stage_scores(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *keys, const gdn2_scores *out) {
  memset(out->P, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  memset(out->T, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  load_factors(s, head, t0, n, keys);
  switch (s.K) {
  case 64: scores_of((gdn2_shape){.K = 64, .Kp = 64}, head, t0, n, *keys, *out); break;
  case 128: scores_of((gdn2_shape){.K = 128, .Kp = 128}, head, t0, n, *keys, *out); break;
  default: scores_of(s, head, t0, n, *keys, *out);
  }
  load_chunk_decay(s, n, *keys);
}
