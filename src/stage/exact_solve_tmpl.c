/* solve: what the chunk really writes; output: what it reads.
 *
 *     (I + T) R = Z - E S0,   Z = w v           forward substitution        (17)
 *     O = Qg S0 + P R                                                       (18)
 *
 * Stable: T is never inverted; the substitution is the recurrence itself in another order, exact for repeated keys.
 * Cost: C V multiply-adds per token for both; 4 to 8 independent sums hide their latency. */
#include "stage/exact.h"

/* plain, a constant: v and w are read where they lie, whole vectors of finished float32. */
INLINE void solve_rows(gdn2_shape s, const gdn2_head *head, int plain, int64_t t0, int n, gdn2_scores scores, const float *X,
                       int vecs, int m, float *R) {
  float room[2][8 * VL];
  /* Copies: a store of R may alias the head's own records, which would be read again for each row. */
  const gdn2_rows v_rows = head->v, w_rows = head->w;
  for (int i = 0; i < n; i++) {
    const float *v = plain ? row_plain(&v_rows, t0 + i) + m : row_ready(&head->v, t0 + i, m, vecs, s.V, room[0]);
    const float *w =
        plain ? row_plain(&w_rows, t0 + i) + m : gate_ready(&head->w, head->rule.write, t0 + i, m, vecs, s.V, room[1]);
    const ptrdiff_t row = (ptrdiff_t)i * s.Vp + m;
    vf r[8];
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const int left = s.V - m - x * VL, count = plain ? VL : left > 0 ? left : 0;
      r[x] = v_fma(v_load_upto(w + x * VL, count), v_load_upto(v + x * VL, count), v_load(X + row + x * VL));
    }
    for (int j = 0; j < i; j++) {
      const vf t = v_set1(scores.T[i * GDN2_CHUNK + j]);
      UNROLL
      for (int x = 0; x < vecs; x++) r[x] = v_fnma(t, v_load(R + (ptrdiff_t)j * s.Vp + m + x * VL), r[x]);
    }
    UNROLL
    for (int x = 0; x < vecs; x++) v_store(R + row + x * VL, r[x]);
  }
}

INLINE void solve_group(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, gdn2_scores scores, const float *X, int vecs,
                        int m, float *R) {
  if (rows_plain(&head->v) && rows_plain(&head->w) && head->rule.write == GDN2_GATE_GIVEN && s.V - m >= vecs * VL)
    solve_rows(s, head, 1, t0, n, scores, X, vecs, m, R);
  else
    solve_rows(s, head, 0, t0, n, scores, X, vecs, m, R);
}

STAGE void stage_solve(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_scores *scores, const float *X,
                       float *R) {
#define CALL(VECS, AT) solve_group(s, head, t0, n, *scores, X, VECS, (AT)*VL, R)
  BY_GROUPS(s.Vp / VL, GROUP, CALL);
#undef CALL
}

/* plain, a constant: o takes whole vectors of float32. */
INLINE void output_rows(gdn2_shape s, int plain, int64_t t0, int n, gdn2_scores scores, const float *Xq, const float *R, int vecs,
                        int m, gdn2_rows_out o) {
  for (int i = 0; i < n; i++) {
    vf r[8];
    UNROLL
    for (int x = 0; x < vecs; x++) r[x] = v_load(Xq + (ptrdiff_t)i * s.Vp + m + x * VL);
    for (int j = 0; j <= i; j++) {
      const vf p = v_set1(scores.P[i * GDN2_CHUNK + j]);
      UNROLL
      for (int x = 0; x < vecs; x++) r[x] = v_fma(p, v_load(R + (ptrdiff_t)j * s.Vp + m + x * VL), r[x]);
    }
    UNROLL
    for (int x = 0; x < vecs; x++) {
      const int left = s.V - m - x * VL;
      if (plain)
        v_store((float *)(void *)o.at + (t0 + i) * o.step + m + x * VL, r[x]);
      else if (left > 0)
        row_store(&o, t0 + i, m + x * VL, r[x], left);
    }
  }
}

INLINE void output_group(gdn2_shape s, int64_t t0, int n, gdn2_scores scores, const float *Xq, const float *R, int vecs, int m,
                         gdn2_rows_out o) {
  if (o.dtype == GDN2_F32 && s.V - m >= vecs * VL)
    output_rows(s, 1, t0, n, scores, Xq, R, vecs, m, o);
  else
    output_rows(s, 0, t0, n, scores, Xq, R, vecs, m, o);
}

STAGE void stage_output(gdn2_shape s, int64_t t0, int n, const gdn2_scores *scores, const float *Xq, const float *R,
                        gdn2_rows_out o) {
#define CALL(VECS, AT) output_group(s, t0, n, *scores, Xq, R, VECS, (AT)*VL, o)
  BY_GROUPS(s.Vp / VL, GROUP, CALL);
#undef CALL
}

STAGE void stage_rows_load(gdn2_shape s, gdn2_rows from, int64_t t0, int n, float *to) {
  for (int t = 0; t < n; t++)
    for (int m = 0; m < s.Vp; m += VL) v_store(to + (ptrdiff_t)t * s.Vp + m, row_load(&from, t0 + t, m, s.V > m ? s.V - m : 0));
}

STAGE void stage_rows_store(gdn2_shape s, const float *from, int64_t t0, int n, gdn2_rows_out to) {
  for (int t = 0; t < n; t++)
    for (int m = 0; m < s.V; m += VL) row_store(&to, t0 + t, m, v_load(from + (ptrdiff_t)t * s.Vp + m), s.V - m);
}

STAGE void stage_clear(gdn2_shape s, int64_t n, gdn2_rows_out o) {
  for (int64_t t = 0; t < n; t++)
    for (int m = 0; m < s.V; m += VL) row_store(&o, t, m, v_zero(), s.V - m);
}
