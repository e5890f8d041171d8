/* Gradients of the convolution against central differences of the loop, and any subset of them. */
#include "layer.h"
#include "test.h"

static const gdn2_exec one = {.threads = 1};

/* dy . y + dstate_final . state_final, by the loop. */
static double loss(const conv_case *c) {
  const void *mark = test_mark();
  const conv_result r = conv_loop(c, CONV_RIGHT);
  const int pairs[2][2] = {{C_DY, C_Y}, {C_DLAST, C_LAST}};
  double sum = 0;
  for (int i = 0; i < 2; i++) {
    const tensor t = conv_out_tensor(c, pairs[i][1]);
    for (size_t e = 0; c->in[pairs[i][0]] && e < tensor_count(&t); e++) sum += c->in[pairs[i][0]][e] * r.out[pairs[i][1]][e];
  }
  test_release_to(mark);
  return sum;
}

static void expect_slopes(conv_case *c, int input, int output, const conv_result *got) {
  const tensor t = conv_in_tensor(c, input);
  const double step = 1e-5;
  double *slope = test_doubles(tensor_count(&t));
  if (!c->in[input]) return;
  for (size_t e = 0; e < tensor_count(&t); e++) {
    const double x = c->in[input][e];
    c->in[input][e] = x + step;
    const double above = loss(c);
    c->in[input][e] = x - step;
    slope[e] = (above - loss(c)) / (2 * step);
    c->in[input][e] = x;
  }
  layer_expect_close(conv_out_tensor(c, output), c->out_dtype[output], got->out[output], slope,
                     c->out_dtype[output] == GDN2_F64 ? 1e-9 : 1e-6);
}

static void check(conv_case *c) {
  const conv_result got = conv_run(c, one);
  expect_slopes(c, C_X, C_DX, &got);
  expect_slopes(c, C_WEIGHT, C_DWEIGHT, &got);
  expect_slopes(c, C_BIAS, C_DBIAS, &got);
  expect_slopes(c, C_STATE, C_DSTATE, &got);
}

/* Sequences shorter than the state among them: what the final state keeps of the state is not to be dropped. */
static void test_differences(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64)
    for (int64_t W = 2; W <= 4; W++)
      for (int64_t T = 1; T <= 6; T++) {
        const void *mark = test_mark();
        conv_case c = conv_new((uint64_t)(10 * W + T), (gdn2_dtype)type, 2, T, 3, W, (int)(T % 2));
        check(&c);
        test_release_to(mark);
      }
}

/* The gradient of the final state alone, and of the output alone. */
static void test_one_cotangent(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 5; T++)
    for (int absent = C_DY; absent <= C_DLAST; absent++) {
      const void *mark = test_mark();
      conv_case c = conv_new((uint64_t)(100 + T), GDN2_F64, 2, T, 3, 4, 1);
      c.in[absent] = NULL;
      const conv_result got = conv_run(&c, one);
      /* A state that three tokens have pushed out has no part in the final one. */
      const bool gone = absent == C_DY && T >= 3;
      for (int i = 0; gone && i < 2 * 3 * 3; i++) assert_true(got.out[C_DSTATE][i] == 0);
      if (!gone) expect_slopes(&c, C_STATE, C_DSTATE, &got);
      expect_slopes(&c, C_X, C_DX, &got);
      if (absent == C_DLAST) expect_slopes(&c, C_WEIGHT, C_DWEIGHT, &got);
      test_release_to(mark);
    }
}

static void test_sequences(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 1, 1, 3, 6, 11};
  conv_case c = conv_new(200, GDN2_F64, 1, 13, 3, 4, 1);
  conv_cut(&c, cu, 5, 201);
  check(&c);
}

/* Each gradient alone has the bits it has beside the others; so has the state without the output. */
static void test_subsets(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    const conv_case c = conv_new(300, (gdn2_dtype)type, 2, 270, 21, 4, 1);
    const conv_result all = conv_run(&c, one);
    for (unsigned wanted = 1; wanted < 1u << C_OUTPUTS; wanted += wanted < 16 ? 1 : 5) {
      const void *mark = test_mark();
      const conv_result some = conv_run_some(&c, wanted, one);
      conv_expect_equal(&c, &some, &all);
      test_release_to(mark);
    }
  }
}

/* An absent gradient, bias or state is zeros. */
static void test_absent_is_zero(void **state) {
  (void)state;
  const int inputs[] = {C_BIAS, C_STATE, C_DY, C_DLAST};
  for (int type = GDN2_F32; type <= GDN2_F64; type++)
    for (int n = 0; n < 4; n++) {
      const void *mark = test_mark();
      conv_case c = conv_new(400, (gdn2_dtype)type, 2, 21, 19, 3, 1);
      const tensor t = conv_in_tensor(&c, inputs[n]);
      for (size_t e = 0; e < tensor_count(&t); e++) c.in[inputs[n]][e] = 0;
      const conv_result zeros = conv_run(&c, one);
      c.in[inputs[n]] = NULL;
      const conv_result absent = conv_run(&c, one);
      conv_expect_equal(&c, &absent, &zeros);
      test_release_to(mark);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_differences), TEST(test_one_cotangent), TEST(test_sequences), TEST(test_subsets),
                                     TEST(test_absent_is_zero)};
  return TEST_RUN(tests);
}
