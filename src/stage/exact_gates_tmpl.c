/* gates: the gradients of q, k, b, g from those of Qg, E, Ktail and the pairs. The pairs' come from intra, vector by vector of
 * channels, and never leave the first-level cache.
 *
 *     dQg = dO S0^T,  dE = -dX S0^T (through the state),  dKt = R dS1^T                       (23) (24)
 *     dq_t = scale (gamma_t dQg_t + dq_pair_t)                                                (29)
 *     de_t = gamma_t dE_t + de_pair_t          gradient of b k
 *     db_t = k_t de_t,   dk_t = b_t de_t + dk_pair_t + d_nt dKt_t                             (30)
 *     dg_t = sum_{i >= t} (Qg_i dQg_i + E_i dE_i) + sum_{j < t} Ktail_j dKt_j
 *            + gamma_n rowsum(dS1 S0) + dg_pair_t                                             (32)
 *
 * Stable: (32) adds what passes through step t; the usual form, a reverse cumulative sum of differences of totals, loses all
 * digits where the decay is strong. Cost: about 20 K operations per token, and the stores of four gradients. */
#include "stage/exact.h"

/* One vector of channels: where its rows are, ld apart. By value: a vector store may alias anything, so pointers read through a
 * record would be read again after each. */
typedef struct {
  const float *alpha, *gamma, *q, *k, *bk, *Ktail, *dX_S, *dO_S, *dKt, *through;
  ptrdiff_t ld;
} gates_rows;

INLINE gates_rows gates_rows_at(gdn2_shape s, const gdn2_chunk *c, const gdn2_grad *grad, int m) {
  const ptrdiff_t second = (ptrdiff_t)c->n * s.Kp + m; /* the second half of DYS */
  return (gates_rows){.alpha = c->keys.alpha + m,
                      .gamma = c->keys.gamma + m,
                      .q = c->keys.q + m,
                      .k = c->keys.k + m,
                      .bk = c->keys.bk + m,
                      .Ktail = c->scores.Ktail + m,
                      .dX_S = grad->DYS + m,
                      .dO_S = grad->DYS + second,
                      .dKt = grad->dKt + m,
                      .through = grad->through + m,
                      .ld = s.Kp};
}

/* What a token's gradients are made of besides: its erase gate; where they go. */
typedef struct {
  gdn2_rows b;
  gdn2_gate erase;
  float scale;
  gdn2_rows_out dq, dk, dg, db;
  gdn2_wait wait; /* from the chunk's first token on */
} gates_ends;

typedef struct {
  vf dq, dk, dg, db;
} gate_sums;

/* As emit; where the row waits, adds to it. at: the vector's place among the chunk's rows. plain, a constant: the rows are
 * float32, none waits and none is a sum over channels. */
INLINE void emit_gate(int plain, float *wait, ptrdiff_t at, gdn2_rows_out out, int64_t t, int m, int count, vf x, vf *sum) {
  if (plain && out.at)
    v_store_upto((float *)(void *)out.at + t * out.step + m, x, count);
  else if (!plain && wait)
    v_store(wait + at, v_add(v_load(wait + at), x));
  else if (!plain)
    emit(&out, t, m, count, x, sum);
}

INLINE vf load_erase(int plain, const gdn2_rows *b, int64_t t, int m, int count) {
  return plain ? v_load_upto((const float *)(const void *)b->at + t * b->step + m, count) : row_load(b, t, m, count);
}

/* dg first, from the first token on: the part that comes from earlier rows and through the chunk. sums: [n], NULL where plain. */
INLINE void gates_vector(int plain, int n, gates_rows in, const intra_pairs *pairs, gates_ends ends, int64_t t0, int m, int count,
                         gate_sums *sums) {
  vf dg[GDN2_CHUNK], before = v_load(in.through), after = v_zero(), suffix = v_set1(1.0f);
  const vf scale = v_set1(ends.scale);
  for (int t = 0; t < n; t++) {
    const ptrdiff_t at = t * in.ld;
    dg[t] = v_add(pairs->dg[t], before);
    before = v_fma(v_load(in.Ktail + at), v_load(in.dKt + at), before);
  }
  for (int t = n - 1; t >= 0; t--) {
    gate_sums unused, *sum = plain ? &unused : &sums[t];
    const ptrdiff_t at = t * in.ld;
    const vf gamma = v_load(in.gamma + at), dX_S = v_load(in.dX_S + at), dO_S = v_load(in.dO_S + at);
    const vf Qg_dQg = v_mul(v_mul(gamma, v_load(in.q + at)), dO_S);
    after = v_add(after, v_fnma(v_mul(gamma, v_load(in.bk + at)), dX_S, Qg_dQg)); /* and E dE */
    const vf de = v_fnma(gamma, dX_S, pairs->de[t]), db = v_mul(v_load(in.k + at), de);
    const vf b = load_erase(plain, &ends.b, t0 + t, m, count);
    const vf dk = v_fma(plain ? b : gate_value(ends.erase, b), de, pairs->dk[t]);
    const vf dq = v_mul(scale, v_fma(gamma, dO_S, pairs->dq[t]));
    emit_gate(plain, ends.wait.dq, at + m, ends.dq, t0 + t, m, count, dq, &sum->dq);
    emit_gate(plain, ends.wait.dk, at + m, ends.dk, t0 + t, m, count, v_fma(v_load(in.dKt + at), suffix, dk), &sum->dk);
    emit_gate(plain, ends.wait.db, at + m, ends.db, t0 + t, m, count, plain ? db : gate_chain(ends.erase, b, db), &sum->db);
    emit_gate(plain, ends.wait.dg, at + m, ends.dg, t0 + t, m, count, v_add(dg[t], after), &sum->dg);
    suffix = v_mul(suffix, v_load(in.alpha + at));
  }
}

INLINE int is_plain(gdn2_rows_out out, const float *wait) { return !wait && (!out.at || (out.channel && out.dtype == GDN2_F32)); }

STAGE void gates_any(gdn2_shape s, const gdn2_chunk *chunk, const gdn2_grad *grad, gates_ends ends, int64_t t0) {
  const int n = chunk->n;
  gate_sums sums[GDN2_CHUNK];
  for (int t = 0; t < n; t++) sums[t] = (gate_sums){v_zero(), v_zero(), v_zero(), v_zero()};
  for (int m = 0; m < s.K; m += VL) {
    intra_pairs pairs;
    intra_vector(s, n, &chunk->keys, grad->dTP, m, &pairs);
    gates_vector(0, n, gates_rows_at(s, chunk, grad, m), &pairs, ends, t0, m, s.K - m, sums);
  }
  for (int t = 0; t < n; t++) {
    if (!ends.wait.dg) emit_sum(&ends.dg, t0 + t, sums[t].dg);
    if (!ends.wait.db) emit_sum(&ends.db, t0 + t, sums[t].db);
  }
}

STAGE void stage_gates(gdn2_shape s, const gdn2_head *head, int64_t t0, const gdn2_chunk *chunk, const gdn2_grad *grad,
                       const gdn2_head_grad *out) {
  const gdn2_rows b = head->b;
  const gdn2_wait wait = out->wait;
  const gates_ends ends = {b, b.at ? head->rule.erase : GDN2_GATE_GIVEN, head->scale, out->dq, out->dk, out->dg, out->db, wait};
  const int plain = is_plain_in(&b) && ends.erase == GDN2_GATE_GIVEN && is_plain(ends.dq, wait.dq) &&
                    is_plain(ends.dk, wait.dk) && is_plain(ends.dg, wait.dg) && is_plain(ends.db, wait.db);
  if (!plain) {
    gates_any(s, chunk, grad, ends, t0);
    return;
  }
  for (int m = 0; m < s.K; m += VL) {
    intra_pairs pairs;
    intra_vector(s, chunk->n, &chunk->keys, grad->dTP, m, &pairs);
    const gates_rows rows = gates_rows_at(s, chunk, grad, m);
    if (chunk->n == GDN2_CHUNK && s.K - m >= VL) /* constants, which most vectors have */
      gates_vector(1, GDN2_CHUNK, rows, &pairs, ends, t0, m, VL, NULL);
    else
      gates_vector(1, chunk->n, rows, &pairs, ends, t0, m, s.K - m, NULL);
  }
}
