/* The gradient of whole small models, in float64, against finite differences: every parameter of every rule. */
#include "lm_support.h"
#include "lm/linear.h"
#include "lm/model.h"
#include "lm/random.h"
#include <stdlib.h>

enum { BATCH = 2, LENGTH = 21, TOKENS = BATCH * LENGTH }; /* more than one chunk of the rule */

typedef struct subject {
  lm_model model;
  int32_t tokens[TOKENS], targets[TOKENS];
  double scale;
} subject;

static lm_config config_of(int rule, int gate, int tied) {
  return (lm_config){.vocabulary = 11,
                     .layers = 2,
                     .d_model = 12,
                     .heads = 2,
                     .head_dim = 5,
                     .d_mlp = 9,
                     .conv_width = 3,
                     .rule = rule,
                     .gate = gate,
                     .tied = tied};
}

/* The published initial values are too small for a gradient that says much: noise is added. */
static void start(subject *s, const lm_config *config) {
  assert_int_equal(lm_model_create(&s->model, config, TOKENS, 1), 0);
  const lm_params *p = &s->model.params;
  lm_params_init(p, s->model.value, 7);
  for (int64_t n = 0; n < p->count; n++)
    for (int64_t i = p->list[n].offset; i < p->list[n].offset + p->list[n].count; i++)
      s->model.value[i] += 0.4 * (lm_random_uniform(1, (uint64_t)n, (uint64_t)i) - 0.5);
  for (int t = 0; t < TOKENS; t++) {
    s->tokens[t] = (int32_t)(lm_random_bits(2, 0, (uint64_t)t) % 11);
    s->targets[t] = t % 5 == 3 ? -1 : (int32_t)(lm_random_bits(2, 1, (uint64_t)t) % 11);
  }
  s->scale = 0.37;
}

static double loss_of(subject *s) {
  assert_int_equal(lm_forward(&s->model, s->tokens, BATCH, LENGTH, NULL), GDN2_OK);
  return s->scale * lm_evaluate(&s->model, s->targets, NULL);
}

static void differentiate(subject *s) {
  double sum = 0;
  memset(s->model.grad, 0, (size_t)s->model.params.floats * sizeof *s->model.grad);
  assert_int_equal(lm_forward(&s->model, s->tokens, BATCH, LENGTH, NULL), GDN2_OK);
  assert_int_equal(lm_backward(&s->model, s->tokens, s->targets, s->scale, &sum, NULL), GDN2_OK);
}

/* Derivative along direction[count] of one parameter: five points, whose error is of the fourth order. */
static double difference(subject *s, const lm_param *p, const double *direction) {
  const double step = 2e-4, weight[4] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
  const int at[4] = {-2, -1, 1, 2};
  double *x = s->model.value + p->offset, sum = 0;
  double *kept = malloc((size_t)p->count * sizeof *kept);
  assert_non_null(kept);
  memcpy(kept, x, (size_t)p->count * sizeof *kept);
  for (int n = 0; n < 4; n++) {
    for (int64_t i = 0; i < p->count; i++) x[i] = kept[i] + at[n] * step * direction[i];
    sum += weight[n] * loss_of(s);
  }
  memcpy(x, kept, (size_t)p->count * sizeof *kept);
  free(kept);
  return sum / step;
}

/* Relative difference along one direction: a random one, or (element >= 0) one element. */
static double error_along(subject *s, const lm_param *p, int64_t element, double bend) {
  double *direction = calloc((size_t)p->count, sizeof *direction), exact = 0, norm = 0;
  assert_non_null(direction);
  for (int64_t i = 0; i < p->count; i++) {
    direction[i] =
        element < 0 ? (lm_random_uniform(3, (uint64_t)p->id, (uint64_t)i) - 0.5) / sqrt((double)p->count) : i == element;
    exact += direction[i] * s->model.grad[p->offset + i];
    norm += s->model.grad[p->offset + i] * s->model.grad[p->offset + i];
  }
  /* A derivative that happens to be small is measured by the gradient of its tensor. */
  const double size = fmax(fabs(exact), 0.1 * sqrt(norm / (double)p->count));
  const double error = fabs(exact * bend - difference(s, p, direction)) / size;
  free(direction);
  if (!(norm > 1e-10)) fail_msg("%s: the gradient is %.3g, too small to say anything", p->name, sqrt(norm));
  return error;
}

static void check(int rule, int gate, int tied) {
  subject s;
  const lm_config config = config_of(rule, gate, tied);
  start(&s, &config);
  differentiate(&s);
  const lm_params *params = &s.model.params;
  for (int64_t n = 0; n < params->count; n++) {
    const lm_param *p = &params->list[n];
    const int64_t elements[] = {-1, 0, p->count / 2};
    for (int i = 0; i < 3; i++) {
      const double error = error_along(&s, p, elements[i], 1);
      if (!(error < 1e-6)) fail_msg("%s, direction %d: relative error %.3g", p->name, i, error);
    }
  }
  assert_true(error_along(&s, &params->list[3], -1, 1 + 1e-5) > 1e-6); /* the comparison sees a fault in the fifth digit */
  lm_model_free(&s.model);
}

static void gdn2_silu(void **state) {
  (void)state;
  check(LM_GDN2, LM_GATE_SILU, 0);
}

static void kda_sigmoid(void **state) {
  (void)state;
  check(LM_KDA, LM_GATE_SIGMOID, 0);
}

static void gdn_tied(void **state) {
  (void)state;
  check(LM_GDN, LM_GATE_SILU, 1);
}

static void deltanet(void **state) {
  (void)state;
  check(LM_DELTANET, LM_GATE_SILU, 0);
}

/* Gradients are added: two passes give the sum, which accumulation rests on. */
static void gradients_add_up(void **state) {
  (void)state;
  subject s;
  const lm_config config = config_of(LM_GDN2, LM_GATE_SILU, 0);
  double sum = 0;
  start(&s, &config);
  differentiate(&s);
  const size_t bytes = (size_t)s.model.params.floats * sizeof(double);
  double *once = malloc(bytes);
  assert_non_null(once);
  memcpy(once, s.model.grad, bytes);
  assert_int_equal(lm_forward(&s.model, s.tokens, BATCH, LENGTH, NULL), GDN2_OK);
  assert_int_equal(lm_backward(&s.model, s.tokens, s.targets, s.scale, &sum, NULL), GDN2_OK);
  for (int64_t n = 0; n < s.model.params.count; n++) {
    const lm_param *p = &s.model.params.list[n];
    for (int64_t i = p->offset; i < p->offset + p->count; i++)
      if (!(fabs(s.model.grad[i] - 2 * once[i]) <= 1e-12 * (1 + fabs(once[i])))) fail_msg("%s does not add up", p->name);
  }
  free(once);
  lm_model_free(&s.model);
}

/* A sequence in pieces, its state carried on, has the logits of the whole. */
static void pieces_equal_the_whole(void **state) {
  (void)state;
  static const int64_t pieces[] = {1, 2, 1, 9, 1, 7};
  for (int rule = 0; rule < LM_RULES; rule++) {
    subject s;
    lm_state carried;
    double whole[LENGTH * 11];
    const lm_config config = config_of(rule, LM_GATE_SILU, 0);
    start(&s, &config);
    assert_int_equal(lm_state_create(&carried, &config, 1), 0);
    assert_int_equal(lm_forward(&s.model, s.tokens, 1, LENGTH, NULL), GDN2_OK);
    memcpy(whole, s.model.logits, sizeof whole);
    int64_t at = 0;
    for (size_t n = 0; n < sizeof pieces / sizeof *pieces; at += pieces[n++]) {
      assert_int_equal(lm_forward(&s.model, s.tokens + at, 1, pieces[n], &carried), GDN2_OK);
      for (int64_t i = 0; i < pieces[n] * 11; i++) {
        const double want = whole[at * 11 + i];
        if (!(fabs(s.model.logits[i] - want) < 1e-11 * (1 + fabs(want)))) fail_msg("rule %d, piece %d", rule, (int)n);
      }
    }
    assert_int_equal(at, LENGTH);
    lm_state_free(&carried);
    lm_model_free(&s.model);
  }
}

int main(void) {
  lm_threads_set(1); /* the model is too small to share */
  const struct CMUnitTest tests[] = {cmocka_unit_test(gdn2_silu),        cmocka_unit_test(kda_sigmoid),
                                     cmocka_unit_test(gdn_tied),         cmocka_unit_test(deltanet),
                                     cmocka_unit_test(gradients_add_up), cmocka_unit_test(pieces_equal_the_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
