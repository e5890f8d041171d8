/* Drawing the next token: the probabilities, what temperature, top-k and top-p leave of them, and that a seed fixes the draw. And
 * reading before it: token by token, which are steps, as in passes. */
#include "lm_support.h"
#include "lm/generate.h"
#include "lm/linear.h"

enum { V = 7, DRAWS = 20000 };
static const float logits[V] = {0.5f, -1, 2, 0, 1.5f, -30, 1};

typedef struct counts {
  double part[V];
} counts;

static counts draw(const lm_sampling *how) {
  counts c = {{0}};
  int32_t order[V];
  double weight[V];
  for (uint64_t n = 0; n < DRAWS; n++) c.part[lm_sample(logits, V, how, n, order, weight)] += 1.0 / (double)DRAWS;
  return c;
}

/* Parts within four and a half standard errors of probabilities that are e^(z / temperature) over the tokens kept. */
static void assert_parts(const counts *c, double temperature, const int *kept) {
  double sum = 0;
  for (int v = 0; v < V; v++) sum += kept[v] ? exp((double)logits[v] / temperature) : 0;
  for (int v = 0; v < V; v++) {
    const double p = kept[v] ? exp((double)logits[v] / temperature) / sum : 0;
    if (!(fabs(c->part[v] - p) <= 4.5 * sqrt(p * (1 - p) / (double)DRAWS) + 1e-12))
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

/* The logits of a reader that has read tokens[count], `each` of them at a time. */
static void read_tokens(lm_model *m, const int32_t *tokens, int64_t count, int64_t each, double *result) {
  lm_reader reader;
  const real *last = NULL;
  assert_int_equal(lm_reader_create(&reader, m), 0);
  for (int64_t t = 0; t < count; t += each)
    assert_int_equal(lm_reader_read(&reader, tokens + t, count - t < each ? count - t : each, &last), GDN2_OK);
  for (int64_t v = 0; v < m->params.config.vocabulary; v++) result[v] = (double)last[v];
  lm_reader_free(&reader);
}

static void tokens_one_by_one_are_a_pass(void **state) {
  (void)state;
  enum { WORDS = 29, COUNT = 2 * LM_PROMPT_PASS + 17 };
  for (int rule = 0; rule < LM_RULES; rule++) {
    const lm_config c = {WORDS, 2, 24, 3, 12, 20, 4, rule, LM_GATE_SILU, 0};
    lm_model m;
    int32_t tokens[COUNT];
    double whole[WORDS], steps[WORDS], end[WORDS];
    float got[WORDS];
    assert_int_equal(lm_model_create(&m, &c, LM_PROMPT_PASS, 0), 0);
    lm_params_init(&m.params, m.value, 3);
    /* Larger projections than the initial ones, so that what was read long ago matters. */
    for (int64_t n = 0; n < m.params.count; n++)
      if (m.params.list[n].rank == 2) fill(m.value + m.params.list[n].offset, m.params.list[n].count, (uint32_t)n, 0.5f);
    for (int t = 0; t < COUNT; t++) tokens[t] = t * t % WORDS;
    read_tokens(&m, tokens, COUNT, COUNT, whole);
    read_tokens(&m, tokens, COUNT, 1, steps);
    read_tokens(&m, tokens + 2 * LM_PROMPT_PASS, 17, 17, end);
    for (int v = 0; v < WORDS; v++) got[v] = (float)steps[v];
    /* Each is within 2e-6 of float64: tests/python/test_lm.py. */
    assert_near(lm_rule_names[rule], got, whole, WORDS, 4e-6);
    /* A state that is not carried on is seen. */
    assert_true(relative_l2(got, end, WORDS) > 1e-4);
    lm_model_free(&m);
  }
}

int main(void) {
  lm_threads_set(1); /* the model is too small to share */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(probabilities_are_the_softmax), cmocka_unit_test(temperature_zero_takes_the_largest),
      cmocka_unit_test(top_k_keeps_the_largest),       cmocka_unit_test(top_p_keeps_what_is_needed),
      cmocka_unit_test(a_seed_fixes_the_draw),         cmocka_unit_test(tokens_one_by_one_are_a_pass)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
