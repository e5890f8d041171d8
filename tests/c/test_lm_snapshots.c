/* Training keeps states on the way of the rule for the backward; generation and evaluation without training do not. */
#include "lm_support.h"
#include "lm/linear.h"
#include "lm/model.h"
#include <stdlib.h>

enum { BATCH = 2, LENGTH = 300, TOKENS = BATCH * LENGTH, LAYERS = 2 };

static const lm_config config = {
    .vocabulary = 11, .layers = LAYERS, .d_model = 12, .heads = 2, .head_dim = 5, .d_mlp = 9, .conv_width = 3, .rule = LM_GDN2};

typedef struct subject {
  lm_model model;
  int32_t tokens[TOKENS];
} subject;

static void start(subject *s, int training) {
  assert_int_equal(lm_model_create(&s->model, &config, TOKENS, training), 0);
  lm_params_init(&s->model.params, s->model.value, 7);
  for (int t = 0; t < TOKENS; t++) s->tokens[t] = (t * 7 + t / 5) % 11;
}

static void forward(subject *s, int64_t T) { assert_int_equal(lm_forward(&s->model, s->tokens, BATCH, T, NULL), GDN2_OK); }

/* The gradient by all parameters after forward, in memory of its own. */
static float *gradient(subject *s) {
  const size_t bytes = (size_t)s->model.params.floats * sizeof(float);
  double sum = 0;
  float *made = malloc(bytes);
  assert_non_null(made);
  memset(s->model.grad, 0, bytes);
  assert_int_equal(lm_backward(&s->model, s->tokens, s->tokens, 1.0f, &sum, NULL), GDN2_OK);
  memcpy(made, s->model.grad, bytes);
  return made;
}

static void expect_same(const subject *s, float *got, float *want, int same) {
  const size_t bytes = (size_t)s->model.params.floats * sizeof(float);
  assert_int_equal(memcmp(got, want, bytes) == 0, same);
  free(got);
}

/* The gradients are those of states computed again, bit for bit; a wrong state shows in them. */
static void backward_starts_from_them(void **state) {
  (void)state;
  subject s;
  float *kept[LAYERS];
  start(&s, 1);
  for (int n = 0; n < LAYERS; n++) {
    kept[n] = s.model.acts[n].S, s.model.acts[n].S = NULL;
    assert_non_null(kept[n]);
  }
  forward(&s, LENGTH);
  float *want = gradient(&s);
  for (int n = 0; n < LAYERS; n++) s.model.acts[n].S = kept[n];
  forward(&s, LENGTH);
  expect_same(&s, gradient(&s), want, 1);
  for (int n = 0; n < LAYERS; n++) {
    forward(&s, LENGTH);
    kept[n][0] += 1;
    expect_same(&s, gradient(&s), want, 0);
  }
  free(want);
  lm_model_free(&s.model);
}

/* Sequences too short for a state, and a state carried on, leave the room as it is. */
static void only_where_they_serve(void **state) {
  (void)state;
  subject s;
  lm_state carried;
  start(&s, 1);
  const int64_t count = TOKENS / LM_KEEP_EVERY * config.heads * config.head_dim * config.head_dim;
  for (int64_t i = 0; i < count; i++) s.model.acts[1].S[i] = 7;
  forward(&s, LM_KEEP_EVERY - 1);
  free(gradient(&s));
  assert_int_equal(lm_state_create(&carried, &config, BATCH), 0);
  assert_int_equal(lm_forward(&s.model, s.tokens, BATCH, LENGTH, &carried), GDN2_OK);
  for (int64_t i = 0; i < count; i++) assert_true(s.model.acts[1].S[i] == 7);
  forward(&s, LENGTH);
  for (int64_t i = 0; i < count; i++) assert_true(s.model.acts[1].S[i] != 7);
  lm_state_free(&carried);
  lm_model_free(&s.model);
}

static void none_without_training(void **state) {
  (void)state;
  subject s;
  start(&s, 0);
  for (int n = 0; n < LAYERS; n++) assert_null(s.model.acts[n].S);
  forward(&s, LENGTH);
  lm_model_free(&s.model);
}

int main(void) {
  lm_threads_set(1); /* the model is too small to share */
  const struct CMUnitTest tests[] = {cmocka_unit_test(backward_starts_from_them), cmocka_unit_test(only_where_they_serve),
                                     cmocka_unit_test(none_without_training)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
