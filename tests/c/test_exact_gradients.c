/* Gradients against what does not know how they were derived: central differences of the float64 forward, and a training run. */
#include <math.h>

#include "exact.h"
#include "ref.h"
#include "test.h"

/* ---- Central differences ---- */

/* The loss sum(o d_o) + sum(h_final dh_final) of float64 inputs. */
static double loss(const exact_case *c, double *const in[INPUTS]) {
  const ref_problem p = {.B = c->B,
                         .T = c->T,
                         .H = c->H,
                         .K = c->K,
                         .V = c->V,
                         .q = in[IN_Q],
                         .k = in[IN_K],
                         .v = in[IN_V],
                         .g = in[IN_G],
                         .b = in[IN_B],
                         .w = in[IN_W],
                         .h0 = in[IN_H0],
                         .scale = 1 / sqrt((double)c->K)};
  const void *mark = test_mark();
  double *o = test_doubles(output_count(c, OUT_O)), *h = test_doubles(output_count(c, OUT_HF)), sum = 0;
  if (ref_forward(&p, o, h) != 0) fail_msg("the oracle failed");
  for (size_t i = 0; i < output_count(c, OUT_O); i++) sum += o[i] * in[IN_DO][i];
  for (size_t i = 0; i < output_count(c, OUT_HF); i++) sum += h[i] * in[IN_DHF][i];
  test_release_to(mark);
  return sum;
}

static double *differences(const exact_case *c, double *const in[INPUTS], int input) {
  const size_t count = input_count(c, input);
  double *slopes = test_doubles(count);
  for (size_t i = 0; i < count; i++) {
    const double x = in[input][i], step = 1e-5;
    in[input][i] = x + step;
    const double above = loss(c, in);
    in[input][i] = x - step;
    slopes[i] = (above - loss(c, in)) / (2 * step);
    in[input][i] = x;
  }
  return slopes;
}

static void expect_differences(const exact_case *c) {
  static const int inputs[] = {IN_Q, IN_K, IN_V, IN_G, IN_B, IN_W, IN_H0};
  double *in[INPUTS];
  for (int i = 0; i < INPUTS; i++) {
    in[i] = test_doubles(input_count(c, i));
    for (size_t n = 0; n < input_count(c, i); n++) in[i][n] = c->in[i][n];
  }
  const results got = engine_run(c);
  for (int i = 0; i < 7; i++) {
    const tensor t = output_tensor(c, OUT_DQ + i);
    expect_close(&t, got.out[OUT_DQ + i], differences(c, in, inputs[i]), 2e-6);
  }
}

static void test_central_differences(void **state) {
  (void)state;
  const exact_case one_token = case_trained(1, 1, 1, 1, 3, 2), one_chunk = case_trained(2, 1, 11, 1, 4, 3),
                   two_chunks = case_trained(3, 2, 19, 1, 3, 4);
  expect_differences(&one_token);
  expect_differences(&one_chunk);
  expect_differences(&two_chunks);
}

static void test_central_differences_of_strong_decays(void **state) {
  (void)state;
  exact_case c = case_trained(4, 1, 19, 1, 4, 3);
  rng r = {4};
  for (size_t i = 0; i < input_count(&c, IN_G); i++)
    c.in[IN_G][i] = (float)(i % 3 ? rng_uniform(&r, -1, 0) : rng_uniform(&r, -20, -5));
  expect_differences(&c);
}

/* ---- The adjoint: the forward is linear in (v, h0), so <d_o, o(v, h0)> + <dh, h_final(v, h0)> = <dv, v> + <dh0, h0> ---- */

static double dot(const float *x, const float *y, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
  return sum;
}

static void test_adjoint(void **state) {
  (void)state;
  const exact_case c = case_trained(5, 2, 150, 2, 40, 24);
  const results outputs = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
  memcpy(c.in[IN_DO], outputs.out[OUT_O], input_count(&c, IN_DO) * sizeof(float)); /* so that the sums do not cancel */
  const results got = engine_run(&c);
  const double forward =
      dot(c.in[IN_DO], got.out[OUT_O], input_count(&c, IN_DO)) + dot(c.in[IN_DHF], got.out[OUT_HF], input_count(&c, IN_DHF));
  const double backward =
      dot(c.in[IN_V], got.out[OUT_DV], input_count(&c, IN_V)) + dot(c.in[IN_H0], got.out[OUT_DH0], input_count(&c, IN_H0));
  assert_true(fabs(forward) > 1);
  assert_true(fabs(forward - backward) < 1e-6 * fabs(forward));
}

/* ---- A training run: 500 steps of gradient descent on the six inputs themselves, by the library and by the oracle ---- */

enum { PARTS = 6, STEPS = 500 };
static const double rate = 0.3;

/* What the rule sees of a free parameter: gates through a sigmoid, the decay through -exp. */
static double shaped(int input, double x) {
  if (input == IN_G) return -exp(x);
  return input == IN_B || input == IN_W ? 1 / (1 + exp(-x)) : x;
}

static double slope(int input, double shaped_value) {
  if (input == IN_G) return shaped_value;
  return input == IN_B || input == IN_W ? shaped_value * (1 - shaped_value) : 1;
}

static void shape_inputs(exact_case *c, double *const free[PARTS]) {
  for (int i = 0; i < PARTS; i++)
    for (size_t n = 0; n < input_count(c, i); n++) c->in[i][n] = (float)shaped(i, free[i][n]);
}

/* d_o = o - target; returns half its mean square. */
static double set_loss(exact_case *c, const double *o, const double *target) {
  const size_t count = input_count(c, IN_DO);
  double sum = 0;
  for (size_t n = 0; n < count; n++) {
    const double difference = o[n] - target[n];
    c->in[IN_DO][n] = (float)difference;
    sum += difference * difference;
  }
  return 0.5 * sum / (double)count;
}

static void descend(const exact_case *c, double *const free[PARTS], const double *const grad[PARTS]) {
  for (int i = 0; i < PARTS; i++)
    for (size_t n = 0; n < input_count(c, i); n++) {
      assert_true(isfinite(grad[i][n]));
      free[i][n] -= rate * grad[i][n] * slope(i, (double)c->in[i][n]);
    }
}

static const double *widen(const float *x, size_t count) {
  double *y = test_doubles(count);
  for (size_t n = 0; n < count; n++) y[n] = x[n];
  return y;
}

/* Outputs and gradients, in the order of the parts q k v g b w = dq dk dv dg db dw. */
static void solve(exact_case *c, bool by_library, const double *target, const double *grad[PARTS], double *loss_now) {
  if (!by_library) {
    *loss_now = set_loss(c, oracle_run(c).out[OUT_O], target);
    const oracle r = oracle_run(c);
    for (int i = 0; i < PARTS; i++) grad[i] = r.out[OUT_DQ + i];
    return;
  }
  const results forward = engine_run_some(c, OUT_FORWARD, (gdn2_exec){0});
  const double *o = widen(forward.out[OUT_O], output_count(c, OUT_O));
  *loss_now = set_loss(c, o, target);
  const results backward = engine_run_some(c, OUT_BACKWARD, (gdn2_exec){0});
  for (int i = 0; i < PARTS; i++) grad[i] = widen(backward.out[OUT_DQ + i], output_count(c, OUT_DQ + i));
}

static void train(bool by_library, double losses[STEPS]) {
  exact_case c = case_trained(6, 1, 64, 1, 16, 16), teacher = case_trained(7, 1, 64, 1, 16, 16);
  c.in[IN_DHF] = NULL;
  const double *target = oracle_run(&teacher).out[OUT_O];
  double *free[PARTS];
  for (int i = 0; i < PARTS; i++) {
    rng r = {(uint64_t)i};
    free[i] = test_doubles(input_count(&c, i));
    for (size_t n = 0; n < input_count(&c, i); n++)
      free[i][n] = i == IN_G ? rng_uniform(&r, -5, 1) : i <= IN_K ? (double)c.in[i][n] : rng_normal(&r);
  }
  for (int step = 0; step < STEPS; step++) {
    const void *mark = test_mark();
    const double *grad[PARTS];
    shape_inputs(&c, free);
    solve(&c, by_library, target, grad, losses + step);
    descend(&c, free, grad);
    test_release_to(mark);
  }
}

static void test_training_follows_the_oracle(void **state) {
  (void)state;
  double by_library[STEPS], by_oracle[STEPS];
  train(true, by_library);
  train(false, by_oracle);
  for (int step = 0; step < STEPS; step++)
    if (!(fabs(by_library[step] - by_oracle[step]) <= 1e-3 * by_oracle[step]))
      fail_msg("step %d: loss %.9g, by the oracle %.9g", step, by_library[step], by_oracle[step]);
  if (getenv("GDN2_TEST_VERBOSE")) print_message("  loss %g -> %g\n", by_oracle[0], by_oracle[STEPS - 1]);
  assert_true(by_oracle[STEPS - 1] < 0.1 * by_oracle[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_central_differences),
      TEST(test_central_differences_of_strong_decays),
      TEST(test_adjoint),
      TEST(test_training_follows_the_oracle),
  };
  return TEST_RUN(tests);
}
