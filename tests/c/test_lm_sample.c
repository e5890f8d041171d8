/* Drawing the next token: the probabilities, what temperature, top-k and top-p leave of them, and that a seed fixes the draw. */
#include "lm_support.h"
#include "lm/generate.h"

enum { V = 7, DRAWS = 20000 };
static const float logits[V] = {0.5f, -1, 2, 0, 1.5f, -30, 1};

typedef struct counts {
  double part[V];
} counts;

static counts draw(const lm_sampling *how) {
  counts c = {{0}};
  int32_t order[V];
  double weight[V];
  for (uint64_t n = 0; n < DRAWS; n++) c.part[lm_sample(logits, V, how, n, order, weight)] += 1.0 / DRAWS;
  return c;
}

/* Parts within four and a half standard errors of probabilities that are e^(z / temperature) over the tokens kept. */
static void assert_parts(const counts *c, double temperature, const int *kept) {
  double sum = 0;
  for (int v = 0; v < V; v++) sum += kept[v] ? exp((double)logits[v] / temperature) : 0;
  for (int v = 0; v < V; v++) {
    const double p = kept[v] ? exp((double)logits[v] / temperature) / sum : 0;
    if (!(fabs(c->part[v] - p) <= 4.5 * sqrt(p * (1 - p) / DRAWS) + 1e-12))
      fail_msg("token %d: %.4f, not %.4f", v, c->part[v], p);
  }
}

static void probabilities_are_the_softmax(void **state) {
  (void)state;
  const int all[V] = {1, 1, 1, 1, 1, 1, 1};
  for (int i = 0; i < 2; i++) {
    const lm_sampling how = {i ? 0.5 : 1, 0, 1, 11};
    const counts c = draw(&how);
    assert_parts(&c, how.temperature, all);
  }
}

static void temperature_zero_takes_the_largest(void **state) {
  (void)state;
  const lm_sampling how = {0, 0, 1, 1};
  assert_true(draw(&how).part[2] > 0.999);
}

static void top_k_keeps_the_largest(void **state) {
  (void)state;
  const lm_sampling how = {1, 3, 1, 2};
  const int kept[V] = {0, 0, 1, 0, 1, 0, 1};
  const counts c = draw(&how);
  assert_parts(&c, 1, kept);
}

/* e^2, e^1.5, e^1, e^0.5 ... have 0.42, 0.25, 0.15, 0.09 of the whole: 0.7 needs three. */
static void top_p_keeps_what_is_needed(void **state) {
  (void)state;
  const lm_sampling how = {1, 0, 0.7, 2}, one = {1, 0, 0, 2};
  const int kept[V] = {0, 0, 1, 0, 1, 0, 1};
  const counts c = draw(&how);
  assert_parts(&c, 1, kept);
  assert_true(draw(&one).part[2] > 0.999);
}

static void a_seed_fixes_the_draw(void **state) {
  (void)state;
  const lm_sampling how = {1, 0, 1, 5}, other = {1, 0, 1, 6};
  int32_t order[V];
  double weight[V];
  int same = 0;
  for (uint64_t n = 0; n < 200; n++) {
    const int32_t token = lm_sample(logits, V, &how, n, order, weight);
    assert_int_equal(token, lm_sample(logits, V, &how, n, order, weight));
    same += token == lm_sample(logits, V, &other, n, order, weight);
  }
  assert_true(same < 150);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(probabilities_are_the_softmax),
                                     cmocka_unit_test(temperature_zero_takes_the_largest),
                                     cmocka_unit_test(top_k_keeps_the_largest), cmocka_unit_test(top_p_keeps_what_is_needed),
                                     cmocka_unit_test(a_seed_fixes_the_draw)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
