/* chain: rows that waited for all value heads of a key head, from the gradients of finished inputs to those of the raw ones.
 *
 *     y = r x,  r = 1 / sqrt(x . x + 1e-6):       dx = r (dy - y (y . dy))                              (39)
 *     g = -exp(A_log) softplus(u):                dx = -exp(A_log) sigmoid(u) dg,  dA_log = sum g dg    (40)
 *     g = lower_bound sigmoid(z), z = exp(A_log) u:
 *         dz = lower_bound sigmoid(z) (1 - sigmoid(z)) dg,  dx = exp(A_log) dz,  dA_log = sum z dz      (41)
 *     u = x + dt_bias:                            ddt_bias = sum dx
 *
 * Stable: dg comes with its own decay as a factor, so it has vanished where the decay has, and nothing is divided. A product with
 * a gradient that is exactly 0 is 0, also where its slope is infinite: e^g goes to 0 faster than any slope grows.
 * Cost: an exponential per channel and token for a decay, 6 K operations per token for a norm. */
#include "stage/exact.h"

/* a b, and 0 where a is 0. */
INLINE vf times_slope(vf a, vf b) { return v_select(v_le(v_abs(a), v_zero()), v_zero(), v_mul(a, b)); }

/* Sums over value heads of what is otherwise finished. */
INLINE void chain_sum(gdn2_shape s, int64_t t0, int64_t n, const float *rows, const gdn2_rows_out *out) {
  for (int64_t t = 0; t < n; t++) {
    vf sum = v_zero();
    for (int m = 0; m < s.K; m += VL) emit(out, t0 + t, m, s.K - m, v_load(rows + t * s.Kp + m), &sum);
    emit_sum(out, t0 + t, sum);
  }
}

INLINE void chain_norm(gdn2_shape s, const gdn2_rows *x, int64_t t0, int64_t n, const float *rows, const gdn2_rows_out *out) {
  for (int64_t t = 0; t < n; t++) {
    const float *dy = rows + t * s.Kp;
    const vf r = v_set1(inverse_norm(s, x, t0 + t));
    vf sum = v_zero(), unused = v_zero();
    for (int m = 0; m < s.K; m += VL) {
      const vf y = v_mul(r, row_load(x, t0 + t, m, s.K - m));
      sum = v_fma(v_head(v_load(dy + m), s.K - m), y, sum);
    }
    const vf along = v_set1(v_sum(sum));
    for (int m = 0; m < s.K; m += VL) {
      const vf y = v_mul(r, row_load(x, t0 + t, m, s.K - m));
      emit(out, t0 + t, m, s.K - m, v_mul(r, v_fnma(along, y, v_load(dy + m))), &unused);
    }
  }
}

/* Gradients by the raw decay and by A_log. */
typedef struct {
  vf dx, dA;
} decay_grad;

INLINE decay_grad decay_chain(const gdn2_gate_rule *rule, vf raw, vf bias, vf dg) {
  const vf u = v_add(raw, bias), rate = v_set1(rule->rate);
  if (rule->decay == GDN2_DECAY_BOUNDED) {
    const vf z = v_mul(rate, u), dz = v_mul(dg, v_mul(v_set1(rule->lower_bound), sigmoid_slope(z)));
    return (decay_grad){v_mul(rate, dz), times_slope(dz, z)};
  }
  /* Where softplus(u) = e^u, it is its own derivative, and g its own slope. */
  const vf g = decay_gate(rule, raw, bias), usual = v_sub(v_zero(), v_mul(rate, v_sigmoid(u)));
  return (decay_grad){times_slope(dg, v_select(v_le(u, v_set1(SOFTPLUS_IS_EXP)), g, usual)), times_slope(dg, g)};
}

INLINE void add_lanes(double *to, vf x, int count) {
  float lanes[VL];
  v_store(lanes, x);
  for (int i = 0; i < VL && i < count; i++) to[i] += (double)lanes[i];
}

/* Of n tokens, at most GDN2_CHUNK: few enough to be summed in float. */
INLINE void chain_decay(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const float *rows, const gdn2_rows_out *out,
                        gdn2_decay_sums sums) {
  const gdn2_gate_rule rule = head->rule;
  vf dx_sum[GDN2_CHUNK], dA_sum = v_zero();
  for (int t = 0; t < n; t++) dx_sum[t] = v_zero();
  for (int m = 0; m < s.K; m += VL) {
    const int count = s.K - m;
    const vf bias = row_load(&rule.dt_bias, 0, m, count);
    vf bias_sum = v_zero();
    for (int t = 0; t < n; t++) {
      const vf dg = v_head(v_load(rows + (ptrdiff_t)t * s.Kp + m), count);
      const decay_grad d = decay_chain(&rule, row_load(&head->g, t0 + t, m, count), bias, dg);
      emit(out, t0 + t, m, count, d.dx, &dx_sum[t]);
      bias_sum = v_add(bias_sum, d.dx);
      dA_sum = v_add(dA_sum, d.dA);
    }
    if (sums.dt_bias) add_lanes(sums.dt_bias + m, bias_sum, count);
  }
  for (int t = 0; t < n; t++) emit_sum(out, t0 + t, dx_sum[t]);
  if (sums.A_log) *sums.A_log += (double)v_sum(dA_sum);
}

STAGE void stage_chain(gdn2_shape s, const gdn2_head *head, int64_t t0, int64_t n, const gdn2_head_grad *out,
                       gdn2_decay_sums sums) {
  const gdn2_wait rows = out->wait;
  if (rows.dq && head->rule.l2norm) chain_norm(s, &head->q, t0, n, rows.dq, &out->dq);
  if (rows.dq && !head->rule.l2norm) chain_sum(s, t0, n, rows.dq, &out->dq);
  if (rows.dk && head->rule.l2norm) chain_norm(s, &head->k, t0, n, rows.dk, &out->dk);
  if (rows.dk && !head->rule.l2norm) chain_sum(s, t0, n, rows.dk, &out->dk);
  if (rows.db) chain_sum(s, t0, n, rows.db, &out->db);
  if (rows.dg && head->rule.decay == GDN2_DECAY_LOG) chain_sum(s, t0, n, rows.dg, &out->dg);
  if (!rows.dg || head->rule.decay == GDN2_DECAY_LOG) return;
  for (int64_t t = 0; t < n; t += GDN2_CHUNK)
    chain_decay(s, head, t0 + t, n - t < GDN2_CHUNK ? (int)(n - t) : GDN2_CHUNK, rows.dg + t * s.Kp, &out->dg, sums);
}

STAGE void stage_collect(int64_t count, int64_t step, const double *parts, int width, gdn2_rows_out to) {
  double all = 0;
  for (int c = 0; c < width; c++) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += parts[i * step + c];
    all += sum;
    if (to.channel) gdn2_number_to(to.at + c * gdn2_dtype_size(to.dtype), to.dtype, (float)sum);
  }
  if (!to.channel) gdn2_number_to(to.at, to.dtype, (float)all);
}
