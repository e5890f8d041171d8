/* load: one chunk of q, k, g, b with its gates applied.
 *
 *     alpha_t = exp(g_t)                      (10)
 *     gamma_t = gamma_{t-1} alpha_t           (11)
 *     E_t = gamma_t b_t k_t                   (12)
 *     Qg_t = scale gamma_t q_t                (13)
 *
 * Stable: gamma is a running product of numbers in [0, 1] (for g <= 0), never a quotient; g = -inf gives exactly 0. The decay of
 * the whole chunk multiplies the state, chunk after chunk, and its rounding adds up over the length: where it is mild, it is the
 * exponential of the sum of g, rounded once, and not the product of 16 rounded numbers.
 * Cost: one exponential and five products per channel and token. */
#include "stage/exact.h"
#include <float.h>
#include <math.h>

/* The sum over the channels of the squares of token t's row, each number times `unit` first. */
INLINE float square_sum(gdn2_shape s, const gdn2_rows *rows, int64_t t, float unit) {
  vf sum = v_zero();
  for (int m = 0; m < s.K; m += VL) {
    const vf x = v_mul(row_load(rows, t, m, s.K - m), v_set1(unit));
    sum = v_fma(x, x, sum);
  }
  return v_sum(sum);
}

/* 1 / sqrt(sum of squares + 1e-6). Where the squares overflow, of numbers 2^96 times smaller, beside which 1e-6 is nothing. */
INLINE float inverse_norm(gdn2_shape s, const gdn2_rows *rows, int64_t t) {
  const float sum = square_sum(s, rows, t, 1.0f);
  if (sum <= FLT_MAX) return 1.0f / sqrtf(sum + 1e-6f);
  return 0x1p-96f / sqrtf(square_sum(s, rows, t, 0x1p-96f));
}

/* What multiplies the rows of q and k: the scale, and their inverse norms where asked for. */
INLINE void load_factors(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *out) {
  for (int t = 0; t < n; t++) {
    out->factor[t] = head->scale * (head->rule.l2norm ? inverse_norm(s, &head->q, t0 + t) : 1.0f);
    out->factor[GDN2_CHUNK + t] = head->rule.l2norm ? inverse_norm(s, &head->k, t0 + t) : 1.0f;
  }
}

/* exp(sum of g) where |sum| <= 1, the running product elsewhere: the error of a large sum would grow with it. */
INLINE vf chunk_decay(vf g_sum, vf gamma) { return v_select(v_le(v_abs(g_sum), v_set1(1.0f)), v_exp(g_sum), gamma); }

/* alpha from g, a row. scalar: all of g's numbers are alike. */
INLINE void load_alpha(gdn2_shape s, int scalar, const float *g, float *alpha) {
  int x = 0;
  if (scalar) {
    const vf a = v_exp(v_set1(g[0]));
    for (; x < s.Kp; x += VL) v_store(alpha + x, a);
  }
  for (; x + EXP_MOST * VL <= s.Kp; x += EXP_MOST * VL) {
    vf a[EXP_MOST];
    UNROLL
    for (int i = 0; i < EXP_MOST; i++) a[i] = v_load_upto(g + x + i * VL, s.K - x - i * VL);
    v_exp_each(EXP_MOST, a);
    UNROLL
    for (int i = 0; i < EXP_MOST; i++) v_store(alpha + x + i * VL, a[i]);
  }
  for (; x < s.Kp; x += VL) v_store(alpha + x, v_exp(v_load_upto(g + x, s.K - x)));
}

/* Token t of the chunk: its rows of the records, which follow those of the token before. Records come by value: a vector store
 * may alias anything, so pointers read through a record would be read again after each. */
INLINE void load_token(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, int t, gdn2_keys out) {
  float room[4][GDN2_MAX_DIM];
  const int vecs = s.Kp / VL;
  const float *q_in = row_ready(&head->q, t0 + t, 0, vecs, s.K, room[0]),
              *k_in = row_ready(&head->k, t0 + t, 0, vecs, s.K, room[1]);
  const float *b_in = gate_ready(&head->b, head->rule.erase, t0 + t, 0, vecs, s.K, room[2]);
  const float *g_in = decay_ready(head, t0 + t, 0, vecs, s.K, room[3]);
  const vf q_factor = v_set1(out.factor[t]), k_factor = v_set1(out.factor[GDN2_CHUNK + t]);
  const ptrdiff_t row = (ptrdiff_t)t * out.ld, before = t > 0 ? row - out.ld : 0, e_row = (ptrdiff_t)t * s.Kp,
                  q_row = (ptrdiff_t)(n + t) * s.Kp;
  load_alpha(s, decay_is_scalar(head), g_in, out.alpha + row);
  for (int x = 0; x < s.Kp; x += VL) {
    const int count = s.K - x;
    const vf q = v_mul(v_load_upto(q_in + x, count), q_factor), k = v_mul(v_load_upto(k_in + x, count), k_factor);
    const vf bk = v_mul(v_load_upto(b_in + x, count), k);
    const vf g = v_load_upto(g_in + x, count), alpha = v_load(out.alpha + row + x);
    const vf gamma = t > 0 ? v_mul(v_load(out.gamma + before + x), alpha) : alpha;
    v_store(out.g_sum + x, t > 0 ? v_add(v_load(out.g_sum + x), g) : g);
    v_store(out.gamma + row + x, gamma);
    v_store(out.q + row + x, q);
    v_store(out.k + row + x, k);
    v_store(out.bk + row + x, bk);
    /* The next token's rows of EQ have left the first-level cache since the last chunk: a store would wait for them. */
    __builtin_prefetch(out.EQ + e_row + s.Kp + x, 1, 3);
    __builtin_prefetch(out.EQ + q_row + s.Kp + x, 1, 3);
    v_store(out.EQ + e_row + x, v_fnma(gamma, bk, v_zero()));
    v_store(out.EQ + q_row + x, v_mul(gamma, q));
  }
}

INLINE void load_chunk_decay(gdn2_shape s, int n, gdn2_keys out) {
  const float *gamma = out.gamma + (ptrdiff_t)(n - 1) * out.ld;
  for (int x = 0; x < s.Kp; x += VL) v_store(out.gamma_n + x, chunk_decay(v_load(out.g_sum + x), v_load(gamma + x)));
}
