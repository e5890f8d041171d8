/* gates: the gradients of q, k, b, g from those of Qg, E, Ktail and the pairs.
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

typedef struct {
  vf dq, dk, dg, db;
} gate_sums;

/* As emit; where the row waits, adds to it. at: the vector's place among the chunk's rows. */
INLINE void emit_or_add(float *wait, ptrdiff_t at, const gdn2_rows_out *out, int64_t t, int m, int count, vf x, vf *sum) {
  if (wait)
    v_store(wait + at, v_add(v_load(wait + at), x));
  else
    emit(out, t, m, count, x, sum);
}

/* dg first, from the first token on: the part that comes from earlier rows and through the chunk. */
INLINE void gates_vector(gdn2_shape s, const gdn2_head *head, int64_t t0, const gdn2_chunk *chunk, const gdn2_grad *grad, int m,
                         int count, const gdn2_head_grad *out, gate_sums sums[GDN2_CHUNK]) {
  const ptrdiff_t ld = s.Kp;
  const int n = chunk->n;
  const gdn2_keys *keys = &chunk->keys;
  const gdn2_gate form = head->b.at ? head->rule.erase : GDN2_GATE_GIVEN;
  const gdn2_wait wait = out->wait;
  vf dg[GDN2_CHUNK], before = v_load(grad->through + m), after = v_zero(), suffix = v_set1(1.0f);
  for (int t = 0; t < n; t++) {
    const ptrdiff_t at = t * ld + m;
    dg[t] = v_add(v_load(grad->dg_pair + at), before);
    before = v_fma(v_load(chunk->scores.Ktail + at), v_load(grad->dKt + at), before);
  }
  for (int t = n - 1; t >= 0; t--) {
    const ptrdiff_t at = t * ld + m;
    const vf gamma = v_load(keys->gamma + at), k = v_load(keys->k + at);
    const vf dX_S = v_load(grad->DYS + at), dO_S = v_load(grad->DYS + n * ld + at);
    after = v_fma(v_load(keys->EQ + n * ld + at), dO_S, after);
    after = v_fma(v_load(keys->EQ + at), dX_S, after);
    const vf de = v_fnma(gamma, dX_S, v_load(grad->de_pair + at));
    const vf b = row_load(&head->b, t0 + t, m, count), db = gate_chain(form, b, v_mul(k, de));
    const vf dk = v_fma(gate_value(form, b), de, v_load(grad->dk_pair + at));
    const vf dq = v_mul(v_set1(head->scale), v_fma(gamma, dO_S, v_load(grad->dq_pair + at)));
    emit_or_add(wait.dq, at, &out->dq, t0 + t, m, count, dq, &sums[t].dq);
    emit_or_add(wait.dk, at, &out->dk, t0 + t, m, count, v_fma(v_load(grad->dKt + at), suffix, dk), &sums[t].dk);
    emit_or_add(wait.db, at, &out->db, t0 + t, m, count, db, &sums[t].db);
    emit_or_add(wait.dg, at, &out->dg, t0 + t, m, count, v_add(dg[t], after), &sums[t].dg);
    suffix = v_mul(suffix, v_load(keys->alpha + at));
  }
}

STAGE void stage_gates(gdn2_shape s, const gdn2_head *head, int64_t t0, const gdn2_chunk *chunk, const gdn2_grad *grad,
                       const gdn2_head_grad *out) {
  gate_sums sums[GDN2_CHUNK];
  for (int t = 0; t < chunk->n; t++) sums[t] = (gate_sums){v_zero(), v_zero(), v_zero(), v_zero()};
  for (int m = 0; m < s.K; m += VL) gates_vector(s, head, t0, chunk, grad, m, s.K - m, out, sums);
  for (int t = 0; t < chunk->n; t++) {
    if (!out->wait.dg) emit_sum(&out->dg, t0 + t, sums[t].dg);
    if (!out->wait.db) emit_sum(&out->db, t0 + t, sums[t].db);
  }
}
