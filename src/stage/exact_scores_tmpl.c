/* scores: how tokens of a chunk see each other.
 *
 *     d_ij = alpha_{j+1} ... alpha_i                      decay over (j, i], per channel
 *     P_ij = sum_c scale q_i k_j d_ij       i >= j        (14)
 *     T_ij = sum_c b_i k_i k_j d_ij         i > j         (15)
 *     Ktail_j = k_j d_nj                                  (16)
 *
 * Stable: every pair decay is a running product, so nothing overflows at any decay, and row i never sees a later token.
 * Cost: 5 K operations per pair; about 6 % of a chunk at K = V = 128. */
#include "stage/exact.h"

/* Vectors of channels at a time: as many as leave registers for the eight sums of a block. */
#define SCORE_VECS 8

/* Rows i0 .. i0+3 of column j: p and e for those of them from j on, d carried from row to row. `edge`: the block has rows before
 * or at j, or beyond n. Vector by vector, so that eight independent sums are in flight. */
INLINE void scores_block(gdn2_keys keys, int n, int vecs, int at0, int i0, int j, int edge, vf d[8], gdn2_scores out) {
  vf sums[8]; /* p of the four rows, then e */
  UNROLL
  for (int r = 0; r < 8; r++) sums[r] = v_zero();
  UNROLL
  for (int x = 0; x < vecs; x++) {
    UNROLL
    for (int r = 0; r < 4; r++) {
      const int i = i0 + r;
      if (edge && (i < j || i >= n)) continue;
      const ptrdiff_t at = (ptrdiff_t)i * keys.ld + at0 + x * VL;
      if (!edge || i > j) {
        d[x] = v_mul(d[x], v_load(keys.alpha + at));
        sums[4 + r] = v_fma(v_load(keys.bk + at), d[x], sums[4 + r]);
      }
      sums[r] = v_fma(v_load(keys.q + at), d[x], sums[r]);
    }
  }
  v_add_sums(sums, out.P + j * GDN2_CHUNK + i0, out.T + j * GDN2_CHUNK + i0);
}

INLINE void scores_group(gdn2_shape s, const gdn2_head *head, int64_t t0, gdn2_keys keys, int n, int vecs, int m, int at0,
                         gdn2_scores out) {
  float room[GDN2_GROUP];
  for (int j = 0; j < n; j++) {
    const float *k = row_ready(&head->k, t0 + j, m, vecs, s.K, room);
    const vf factor = v_set1(keys.factor[GDN2_CHUNK + j]);
    vf d[8];
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const int left = s.K - m - x * VL;
      d[x] = v_mul(v_load_upto(k + x * VL, left > 0 ? left : 0), factor);
    }
    int i0 = j / 4 * 4;
    scores_block(keys, n, vecs, at0, i0, j, 1, d, out);
    for (i0 += 4; i0 + 4 <= n; i0 += 4) scores_block(keys, n, vecs, at0, i0, j, 0, d, out);
    if (i0 < n) scores_block(keys, n, vecs, at0, i0, j, 1, d, out);
    UNROLL
    for (int x = 0; x < vecs; x++) v_store(out.Ktail + (ptrdiff_t)j * s.Kp + m + x * VL, d[x]);
  }
}

/* One function per size: together with the loads they are too much for one register allocation. */
#define SCORES_GROUP(VECS)                                                                                                       \
  STAGE void scores_group_##VECS(gdn2_shape s, const gdn2_head *head, int64_t t0, gdn2_keys keys, int n, int m, int at0,         \
                                 gdn2_scores out) {                                                                              \
    scores_group(s, head, t0, keys, n, VECS, m, at0, out);                                                                       \
  }
SCORES_GROUP(8)
SCORES_GROUP(4)
SCORES_GROUP(2)
SCORES_GROUP(1)

/* load and scores, group by group of channels. */
STAGE void stage_scores(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *keys, const gdn2_scores *out) {
  memset(out->P, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  memset(out->T, 0, sizeof(float) * GDN2_CHUNK * GDN2_CHUNK);
  load_factors(s, head, t0, n, keys);
#define CALL(VECS, AT)                                                                                                           \
  do {                                                                                                                           \
    const int channel = (AT)*VL, at0 = keys->kept ? channel : 0;                                                                 \
    load_group(s, head, t0, n, VECS, channel, at0, *keys);                                                                       \
    scores_group_##VECS(s, head, t0, *keys, n, channel, at0, *out);                                                              \
  } while (0)
  BY_GROUPS(s.Kp / VL, 8, CALL);
#undef CALL
}
