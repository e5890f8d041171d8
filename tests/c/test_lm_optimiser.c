/* AdamW against a restatement in float64, element by element; the learning rate at its corners. */
#include "lm_support.h"
#include "lm/adamw.h"
#include <stdlib.h>

typedef struct subject {
  lm_params params;
  lm_adamw state;
  float *value, *grad;
  double *x, *m, *s; /* the restatement */
} subject;

static void start(subject *u) {
  const lm_config c = {.vocabulary = 20, .layers = 1, .d_model = 30, .heads = 2, .head_dim = 8, .d_mlp = 200, .conv_width = 4};
  assert_int_equal(lm_params_create(&u->params, &c), 0);
  assert_int_equal(lm_adamw_create(&u->state, &u->params), 0);
  const size_t n = (size_t)u->params.floats;
  u->value = calloc(n, sizeof *u->value), u->grad = calloc(n, sizeof *u->grad);
  u->x = calloc(n, sizeof *u->x), u->m = calloc(n, sizeof *u->m), u->s = calloc(n, sizeof *u->s);
  assert_true(u->value && u->grad && u->x && u->m && u->s);
  for (int64_t i = 0; i < u->params.count; i++)
    fill(u->value + u->params.list[i].offset, u->params.list[i].count, (uint32_t)i, 1);
  for (size_t i = 0; i < n; i++) u->x[i] = u->value[i];
}

static void end(subject *u) {
  lm_adamw_free(&u->state);
  lm_params_free(&u->params);
  free(u->value), free(u->grad), free(u->x), free(u->m), free(u->s);
}

static int is_matrix(const lm_param *p) { return strstr(p->name, "proj") ? !strstr(p->name, "bias") : p->rank == 2; }

/* Algorithm 2 of the paper, with the gradient clipped. Returns the norm. */
static double restated_step(subject *u, const lm_adamw_rate *r) {
  double norm = 0;
  for (int64_t i = 0; i < u->params.floats; i++) norm += (double)u->grad[i] * u->grad[i];
  norm = sqrt(norm);
  for (int64_t n = 0; n < u->params.count; n++) {
    const lm_param *p = &u->params.list[n];
    for (int64_t i = p->offset; i < p->offset + p->count; i++) {
      const double d = u->grad[i] * (norm > r->clip ? r->clip / norm : 1);
      u->m[i] = r->beta1 * u->m[i] + (1 - r->beta1) * d;
      u->s[i] = r->beta2 * u->s[i] + (1 - r->beta2) * d * d;
      const double m = u->m[i] / (1 - pow(r->beta1, (double)r->step)), s = u->s[i] / (1 - pow(r->beta2, (double)r->step));
      u->x[i] -= r->learning_rate * (m / (sqrt(s) + r->eps) + (is_matrix(p) ? r->weight_decay : 0) * u->x[i]);
    }
  }
  return norm;
}

static void steps_are_those_of_the_paper(void **state) {
  (void)state;
  subject u;
  start(&u);
  for (int step = 1; step <= 5; step++) {
    /* The first gradients are clipped, the last is not. */
    for (int64_t i = 0; i < u.params.count; i++)
      fill(u.grad + u.params.list[i].offset, u.params.list[i].count, (uint32_t)(100 * step + i), step < 5 ? 0.5f : 0.001f);
    const lm_adamw_rate r = {
        .learning_rate = 0.01 * step, .weight_decay = 0.3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1, .step = step};
    const double want = restated_step(&u, &r), got = lm_adamw_step(&u.state, &u.params, u.value, u.grad, &r);
    assert_true(fabs(got - want) < 1e-6 * want && (step < 5) == (want > 1));
    assert_near("values", u.value, u.x, u.params.floats, 1e-6);
  }
  for (int64_t i = 0; i < u.params.floats; i++) u.x[i] *= 1 + 1e-5;
  assert_true(relative_l2(u.value, u.x, u.params.floats) > 1e-6);
  end(&u);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state) {
  (void)state;
  subject u;
  start(&u);
  u.grad[u.params.list[2].offset] = NAN;
  const lm_adamw_rate r = {.learning_rate = 1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .clip = 1, .step = 1};
  assert_true(isnan(lm_adamw_step(&u.state, &u.params, u.value, u.grad, &r)));
  for (int64_t i = 0; i < u.params.floats; i++) assert_true(u.value[i] == (float)u.x[i] && u.state.mean[i] == 0);
  end(&u);
}

static void the_rate_rises_and_falls(void **state) {
  (void)state;
  assert_true(fabs(lm_learning_rate(1, 10, 110, 1, 0.1) - 0.1) < 1e-12);
  assert_true(fabs(lm_learning_rate(10, 10, 110, 1, 0.1) - 1) < 1e-12);
  assert_true(fabs(lm_learning_rate(60, 10, 110, 1, 0.1) - 0.55) < 1e-12);
  assert_true(fabs(lm_learning_rate(110, 10, 110, 1, 0.1) - 0.1) < 1e-12);
  for (int step = 11; step <= 110; step++)
    assert_true(lm_learning_rate(step, 10, 110, 1, 0.1) < lm_learning_rate(step - 1, 10, 110, 1, 0.1));
  assert_true(lm_learning_rate(1, 0, 1, 1, 0.1) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_those_of_the_paper),
                                     cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
                                     cmocka_unit_test(the_rate_rises_and_falls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
