/* Gates from raw input, for every stage that reads one.
 *
 *     g = -exp(A_log) softplus(x + dt_bias)                    (35)
 *     g = lower_bound sigmoid(exp(A_log) (x + dt_bias))        (36)
 *     b, w = sigmoid(x);  b = 2 sigmoid(x)                     (37)
 *
 * Stable: softplus and sigmoid have no overflow; where softplus(x) = e^x to the last digit, (35) adds the exponents instead of
 * multiplying a number that may be infinite with one that may be 0. A_log = -inf gives g = 0. */
#include "stage/exact.h"

/* Below it softplus(x) = e^x (1 - e^x / 2 ...) in float32. */
#define SOFTPLUS_IS_EXP (-17.0f)

INLINE vf decay_gate(const gdn2_head *head, int64_t t, int m, int count) {
  const vf raw = row_load(&head->g, t, m, count);
  const gdn2_gate_rule *rule = &head->rule;
  if (rule->decay == GDN2_DECAY_LOG) return raw;
  const vf x = v_add(raw, row_load(&rule->dt_bias, 0, m, count)), rate = v_set1(rule->rate);
  if (rule->decay == GDN2_DECAY_BOUNDED) return v_mul(v_set1(rule->lower_bound), v_sigmoid(v_mul(rate, x)));
  const vf small = v_exp(v_add(x, v_set1(rule->A_log))), usual = v_mul(rate, v_softplus(x));
  return v_sub(v_zero(), v_select(v_le(x, v_set1(SOFTPLUS_IS_EXP)), small, usual));
}

INLINE vf strength(gdn2_gate form, vf raw) {
  if (form == GDN2_GATE_GIVEN) return raw;
  const vf y = v_sigmoid(raw);
  return form == GDN2_GATE_SIGMOID ? y : v_add(y, y);
}

INLINE vf erase_gate(const gdn2_head *head, int64_t t, int m, int count) {
  return strength(head->b.at ? head->rule.erase : GDN2_GATE_GIVEN, row_load(&head->b, t, m, count));
}

INLINE vf write_gate(const gdn2_head *head, int64_t t, int m, int count) {
  return strength(head->w.at ? head->rule.write : GDN2_GATE_GIVEN, row_load(&head->w, t, m, count));
}
