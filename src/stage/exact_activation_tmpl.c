/* Gates from raw input, for every stage that reads one, and their slopes for the backward.
 *
 *     g = -exp(A_log) softplus(x + dt_bias)                    (35)
 *     g = lower_bound sigmoid(exp(A_log) (x + dt_bias))        (36)
 *     b, w = sigmoid(x);  b = 2 sigmoid(x)                     (37)
 *
 * Stable: softplus and sigmoid have no overflow; where softplus(x) = e^x to the last digit, (35) adds the exponents instead of
 * multiplying a number that may be infinite with one that may be 0. A_log = -inf gives g = 0. Slopes come from e^-|x|: 1 -
 * sigmoid has no digits left where the sigmoid is near 1. */
#include "stage/exact.h"

/* Below it softplus(x) = e^x (1 - e^x / 2 ...) in float32. */
#define SOFTPLUS_IS_EXP (-17.0f)

INLINE vf decay_gate(const gdn2_gate_rule *rule, vf raw, vf bias) {
  const vf x = v_add(raw, bias), rate = v_set1(rule->rate);
  if (rule->decay == GDN2_DECAY_BOUNDED) return v_mul(v_set1(rule->lower_bound), v_sigmoid(v_mul(rate, x)));
  const vf small = v_exp(v_add(x, v_set1(rule->A_log))), usual = v_mul(rate, v_softplus(x));
  return v_sub(v_zero(), v_select(v_le(x, v_set1(SOFTPLUS_IS_EXP)), small, usual));
}

/* The log-decays of token t, as row_ready gives them. */
STAGE void decay_finish(const gdn2_gate_rule *rule, const float *raw, int m, int vecs, int channels, float *room) {
  for (int x = 0; x < vecs * VL; x += VL) {
    const int left = channels - m - x, count = left > 0 ? left : 0;
    v_store(room + x, decay_gate(rule, v_load_upto(raw + x, count), row_load(&rule->dt_bias, 0, m + x, count)));
  }
}

/* Whether the decay of a token is one number for all channels. */
INLINE int decay_is_scalar(const gdn2_head *head) {
  return !head->g.channel && (head->rule.decay == GDN2_DECAY_LOG || !head->rule.dt_bias.channel);
}

INLINE const float *decay_ready(const gdn2_head *head, int64_t t, int m, int vecs, int channels, float *room) {
  const float *raw = row_ready(&head->g, t, m, vecs, channels, room);
  if (head->rule.decay == GDN2_DECAY_LOG) return raw;
  decay_finish(&head->rule, raw, m, decay_is_scalar(head) ? 1 : vecs, channels, room);
  for (int x = 1; x < vecs && decay_is_scalar(head); x++) v_store(room + x * VL, v_set1(room[0]));
  return room;
}

STAGE void gate_finish(gdn2_gate form, const float *raw, int vecs, int channels, float *room) {
  for (int x = 0; x < vecs * VL; x += VL) {
    const vf y = v_sigmoid(v_load_upto(raw + x, channels > x ? channels - x : 0));
    v_store(room + x, form == GDN2_GATE_SIGMOID ? y : v_add(y, y));
  }
}

/* The erase or write gate of token t. An absent one is its neutral value, whatever the form. */
INLINE const float *gate_ready(const gdn2_rows *rows, gdn2_gate form, int64_t t, int m, int vecs, int channels, float *room) {
  const float *raw = row_ready(rows, t, m, vecs, channels, room);
  if (form == GDN2_GATE_GIVEN || !rows->at) return raw;
  gate_finish(form, raw, vecs, channels - m, room);
  return room;
}

/* sigmoid(x) (1 - sigmoid(x)), to the last digits on both sides. */
INLINE vf sigmoid_slope(vf x) {
  const vf e = v_exp(v_sub(v_zero(), v_abs(x))), d = v_add(v_set1(1.0f), e);
  return v_div(e, v_mul(d, d));
}

/* A vector of the erase or write gate, finished, from what row_load gave. */
INLINE vf gate_value(gdn2_gate form, vf raw) {
  if (form == GDN2_GATE_GIVEN) return raw;
  const vf y = v_sigmoid(raw);
  return form == GDN2_GATE_SIGMOID ? y : v_add(y, y);
}

/* The gradient by the raw gate of one by the finished gate. */
INLINE vf gate_chain(gdn2_gate form, vf raw, vf dy) {
  if (form == GDN2_GATE_GIVEN) return dy;
  const vf slope = sigmoid_slope(raw);
  return v_mul(dy, form == GDN2_GATE_SIGMOID ? slope : v_add(slope, slope));
}
