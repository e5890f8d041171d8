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

/* Whether q, k, g and b are read where they lie, being finished float32 with a number for each channel. */
INLINE int load_is_plain(const gdn2_head *head) {
  return rows_plain(&head->q) && rows_plain(&head->k) && rows_plain(&head->g) && head->rule.decay == GDN2_DECAY_LOG &&
         rows_plain(&head->b) && head->rule.erase == GDN2_GATE_GIVEN;
}

/* The finished rows of token t, the caller's own or in room. plain, a constant: they are known to be the caller's. */
typedef struct {
  const float *q, *k, *g, *b;
} token_rows;

INLINE token_rows load_rows(gdn2_shape s, const gdn2_head *head, int plain, int64_t t, float room[4][GDN2_MAX_DIM]) {
  const int vecs = s.Kp / VL;
  if (plain)
    return (token_rows){
        .q = row_plain(&head->q, t), .k = row_plain(&head->k, t), .g = row_plain(&head->g, t), .b = row_plain(&head->b, t)};
  return (token_rows){.q = row_ready(&head->q, t, 0, vecs, s.K, room[0]),
                      .k = row_ready(&head->k, t, 0, vecs, s.K, room[1]),
                      .g = decay_ready(head, t, 0, vecs, s.K, room[2]),
                      .b = gate_ready(&head->b, head->rule.erase, t, 0, vecs, s.K, room[3])};
}

/* A group of vectors of one token, which its pairs use. Four are what the registers of AVX-512 hold, and one v_exp_each. */
#define KEYS_MOST EXP_MOST
typedef struct {
  vf alpha[KEYS_MOST], q[KEYS_MOST], k[KEYS_MOST], bk[KEYS_MOST];
} token_group;

/* alpha from `vecs` vectors of g. */
INLINE void load_alpha(int vecs, int scalar, vf *alpha) {
  if (scalar) {
    alpha[0] = v_exp(alpha[0]);
    UNROLL
    for (int x = 1; x < vecs; x++) alpha[x] = alpha[0];
    return;
  }
  v_exp_each(vecs, alpha);
}

/* Channels m .. of token t, `vecs` vectors: into its group, and to the records, which follow those of the token before. Records
 * come by value: a vector store may alias anything, so pointers read through a record would be read again after each. */
INLINE void load_group(gdn2_shape s, int scalar, token_rows in, int n, int t, int m, int vecs, gdn2_keys out, float *Ktail,
                       token_group *group) {
  const vf q_factor = v_set1(out.factor[t]), k_factor = v_set1(out.factor[GDN2_CHUNK + t]);
  const ptrdiff_t row = (ptrdiff_t)t * out.ld + m, before = t > 0 ? row - out.ld : m, e_row = (ptrdiff_t)t * s.Kp + m,
                  q_row = (ptrdiff_t)(n + t) * s.Kp + m;
  vf *alpha = group->alpha, *q = group->q, *k = group->k, *bk = group->bk;
  UNROLL
  for (int x = 0; x < vecs; x++) {
    alpha[x] = v_load_upto(in.g + m + x * VL, s.K - m - x * VL);
    v_store(out.g_sum + m + x * VL, t > 0 ? v_add(v_load(out.g_sum + m + x * VL), alpha[x]) : alpha[x]);
  }
  load_alpha(vecs, scalar, alpha);
  UNROLL
  for (int x = 0; x < vecs; x++) {
    const int at = m + x * VL, count = s.K - at;
    q[x] = v_mul(v_load_upto(in.q + at, count), q_factor);
    k[x] = v_mul(v_load_upto(in.k + at, count), k_factor);
    bk[x] = v_mul(v_load_upto(in.b + at, count), k[x]);
    const vf gamma = t > 0 ? v_mul(v_load(out.gamma + before + x * VL), alpha[x]) : alpha[x];
    v_store(out.gamma + row + x * VL, gamma);
    v_store(Ktail + e_row + x * VL, k[x]);
    /* The next token's rows of EQ have left the first-level cache since the last chunk: a store would wait for them. */
    __builtin_prefetch(out.EQ + e_row + s.Kp + x * VL, 1, 3);
    __builtin_prefetch(out.EQ + q_row + s.Kp + x * VL, 1, 3);
    v_store(out.EQ + e_row + x * VL, v_fnma(gamma, bk[x], v_zero()));
    v_store(out.EQ + q_row + x * VL, v_mul(gamma, q[x]));
  }
  if (out.ld == 0) return;
  UNROLL
  for (int x = 0; x < vecs; x++) {
    v_store(out.alpha + row + x * VL, alpha[x]);
    v_store(out.q + row + x * VL, q[x]);
    v_store(out.k + row + x * VL, k[x]);
    v_store(out.bk + row + x * VL, bk[x]);
  }
}

INLINE void load_chunk_decay(gdn2_shape s, int n, gdn2_keys out) {
  const float *gamma = out.gamma + (ptrdiff_t)(n - 1) * out.ld;
  for (int x = 0; x < s.Kp; x += VL) v_store(out.gamma_n + x, chunk_decay(v_load(out.g_sum + x), v_load(gamma + x)));
}
