/* intra: gradients through the scores P and T, pair by pair, with the same running decays as the forward.
 *
 *     dP = dO R^T (i >= j),  dT = -dX R^T (i > j)                                    (22)
 *     dq_pair_i = sum_j dP_ij d_ij k_j,  de_pair_i = sum_j dT_ij d_ij k_j            (25)
 *     dk_pair_j = sum_i (dP_ij scale q_i + dT_ij b_i k_i) d_ij                       (26)
 *     dg_pair_t = sum_{i >= t > j} (dP_ij scale q_i + dT_ij b_i k_i) d_ij k_j        (27)
 *
 * Down the rows, d_ij k_j grows by a factor alpha_i a row. Up the rows, with z_ij = dP_ij scale q_i + dT_ij b_i k_i,
 *
 *     h_tj = z_tj + alpha_{t+1} h_{t+1,j} = sum_{i >= t} z_ij d_it
 *
 * which gives both sums over i, because d_ij = d_it d_tj: dk_pair_j is z_jj + alpha_{j+1} h_{j+1,j}, and dg_pair_t the sum over
 * j < t of h_tj d_tj k_j.
 *
 * Stable: in (27) each pair is added where it straddles t and nowhere else, so nothing has to cancel: a pair with a decay of
 * e^-20 adds a number of the size of e^-20. Cost: 7 K operations per pair; four rows at a time stay in registers. */
#include "stage/exact.h"

/* One vector of channels: where its rows are. */
typedef struct {
  const float *dO_R, *dX_R; /* [n][C]; the latter is minus dT */
  const float *alpha, *q, *k, *bk;
  ptrdiff_t ld;
  int n;
} intra_rows;

/* What comes out for it: (25) to (27). */
typedef struct {
  vf dq[GDN2_CHUNK], de[GDN2_CHUNK], dk[GDN2_CHUNK], dg[GDN2_CHUNK];
} intra_pairs;

/* Rows i0 .. i0+rows-1 on the way down. kd [i][j]: k_j decayed to row i; those of the rows before are there. */
INLINE void intra_down(intra_rows in, int rows, int i0, vf kd[GDN2_CHUNK][GDN2_CHUNK], intra_pairs *out) {
  vf dq[4], de[4], alpha[4];
  UNROLL
  for (int r = 0; r < rows; r++) {
    alpha[r] = v_load(in.alpha + (i0 + r) * in.ld);
    dq[r] = de[r] = v_zero();
  }
  for (int j = 0; j < i0; j++) {
    vf x = kd[i0 - 1][j];
    UNROLL
    for (int r = 0; r < rows; r++) {
      const int at = (i0 + r) * GDN2_CHUNK + j;
      kd[i0 + r][j] = x = v_mul(x, alpha[r]);
      dq[r] = v_fma(v_set1(in.dO_R[at]), x, dq[r]);
      de[r] = v_fnma(v_set1(in.dX_R[at]), x, de[r]);
    }
  }
  UNROLL
  for (int c = 0; c < rows; c++) {
    const int j = i0 + c;
    vf x = kd[j][j] = v_load(in.k + j * in.ld);
    dq[c] = v_fma(v_set1(in.dO_R[j * GDN2_CHUNK + j]), x, dq[c]);
    UNROLL
    for (int r = 0; r < rows; r++) {
      if (r <= c) continue;
      const int at = (i0 + r) * GDN2_CHUNK + j;
      kd[i0 + r][j] = x = v_mul(x, alpha[r]);
      dq[r] = v_fma(v_set1(in.dO_R[at]), x, dq[r]);
      de[r] = v_fnma(v_set1(in.dX_R[at]), x, de[r]);
    }
  }
  UNROLL
  for (int r = 0; r < rows; r++) {
    out->dq[i0 + r] = dq[r];
    out->de[i0 + r] = de[r];
  }
}

/* The same rows on the way up. h [j]: h_tj of the row below, which may be 0. */
INLINE void intra_up(intra_rows in, int rows, int i0, vf kd[GDN2_CHUNK][GDN2_CHUNK], vf h[GDN2_CHUNK], intra_pairs *out) {
  vf q[4], bk[4], below[4], dg[4];
  UNROLL
  for (int r = 0; r < rows; r++) {
    const int i = i0 + r;
    q[r] = v_load(in.q + i * in.ld);
    bk[r] = v_load(in.bk + i * in.ld);
    below[r] = i + 1 < in.n ? v_load(in.alpha + (i + 1) * in.ld) : v_zero();
    dg[r] = v_zero();
  }
  for (int j = 0; j < i0; j++) {
    vf x = h[j];
    UNROLL
    for (int r = rows - 1; r >= 0; r--) {
      const int at = (i0 + r) * GDN2_CHUNK + j;
      const vf z = v_fnma(v_set1(in.dX_R[at]), bk[r], v_mul(v_set1(in.dO_R[at]), q[r]));
      x = v_fma(below[r], x, z);
      dg[r] = v_fma(x, kd[i0 + r][j], dg[r]);
    }
    h[j] = x;
  }
  UNROLL
  for (int c = 0; c < rows; c++) {
    const int j = i0 + c;
    vf x = h[j];
    UNROLL
    for (int r = rows - 1; r >= 0; r--) {
      if (r <= c) continue;
      const int at = (i0 + r) * GDN2_CHUNK + j;
      const vf z = v_fnma(v_set1(in.dX_R[at]), bk[r], v_mul(v_set1(in.dO_R[at]), q[r]));
      x = v_fma(below[r], x, z);
      dg[r] = v_fma(x, kd[i0 + r][j], dg[r]);
    }
    const vf z_jj = v_mul(v_set1(in.dO_R[j * GDN2_CHUNK + j]), q[c]);
    out->dk[j] = v_fma(below[c], x, z_jj);
  }
  UNROLL
  for (int r = 0; r < rows; r++) out->dg[i0 + r] = dg[r];
}

/* Channels m .. m+VL-1 of a chunk. */
STAGE void intra_vector(gdn2_shape s, int n, const gdn2_keys *keys, const float *dTP, int m, intra_pairs *out) {
  const int whole = n / 4 * 4;
  const intra_rows in = {.dO_R = dTP + (ptrdiff_t)n * GDN2_CHUNK,
                         .dX_R = dTP,
                         .alpha = keys->alpha + m,
                         .q = keys->q + m,
                         .k = keys->k + m,
                         .bk = keys->bk + m,
                         .ld = s.Kp,
                         .n = n};
  vf kd[GDN2_CHUNK][GDN2_CHUNK], h[GDN2_CHUNK];
  for (int j = 0; j < n; j++) h[j] = v_zero();
  for (int i = 0; i < whole; i += 4) intra_down(in, 4, i, kd, out);
  for (int i = whole; i < n; i++) intra_down(in, 1, i, kd, out);
  for (int i = n - 1; i >= whole; i--) intra_up(in, 1, i, kd, h, out);
  for (int i = whole - 4; i >= 0; i -= 4) intra_up(in, 4, i, kd, h, out);
}
