/* Any subset of the outputs: each one has the bits of the full call, and nothing else is written. */
#include "exact.h"
#include "test.h"

/* Bit 0: the loss sees o; bit 1: it sees h_final. */
static exact_case with_loss(uint64_t seed, unsigned loss) {
  exact_case c = case_trained(seed, 1, 37, 2, 6, 5);
  if (!(loss & 1u)) c.in[IN_DO] = NULL;
  if (!(loss & 2u)) c.in[IN_DHF] = NULL;
  return c;
}

static void test_every_subset_of_gradients(void **state) {
  (void)state;
  for (unsigned loss = 0; loss < 4; loss++) {
    const exact_case c = with_loss(1, loss);
    const results want = engine_run(&c);
    for (unsigned subset = 0; subset < 128; subset++) {
      const void *mark = test_mark();
      const results got = engine_run_some(&c, subset << OUT_DQ, (gdn2_exec){0});
      expect_equal(&c, &got, &want);
      test_release_to(mark);
    }
  }
}

/* With gates per head, whose gradients are sums. */
static void test_every_subset_per_head(void **state) {
  (void)state;
  exact_case c = with_loss(2, 3);
  case_make_per_head(&c, IN_G);
  case_make_per_head(&c, IN_B);
  case_make_per_head(&c, IN_W);
  const results want = engine_run(&c);
  for (unsigned subset = 0; subset < 128; subset++) {
    const void *mark = test_mark();
    const results got = engine_run_some(&c, subset << OUT_DQ, (gdn2_exec){0});
    expect_equal(&c, &got, &want);
    test_release_to(mark);
  }
}

/* Without a loss every gradient is zero. */
static void test_no_loss(void **state) {
  (void)state;
  const exact_case c = with_loss(3, 0);
  const results got = engine_run(&c);
  for (int i = OUT_DQ; i < OUTPUTS; i++) {
    const tensor t = output_tensor(&c, i);
    expect_all_zero(&t, got.out[i]);
  }
}

static void test_every_subset_of_outputs(void **state) {
  (void)state;
  for (int64_t T = 0; T < 40; T += 3) {
    const exact_case c = case_trained(4, 2, T, 2, 9, 12);
    const results want = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    for (unsigned subset = 0; subset < 4; subset++) {
      const results got = results_new(&c, subset);
      const gdn2_forward_args args = forward_args(&c, &got);
      assert_int_equal(gdn2_forward(&args), GDN2_OK);
      expect_equal(&c, &got, &want);
    }
  }
}

/* No output at all is a valid call. */
static void test_no_gradient_wanted(void **state) {
  (void)state;
  const exact_case c = with_loss(5, 3);
  const results none = results_new(&c, 0);
  const gdn2_backward_args args = backward_args(&c, &none);
  assert_int_equal(gdn2_backward(&args), GDN2_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_every_subset_of_gradients), TEST(test_every_subset_per_head), TEST(test_no_loss),
      TEST(test_every_subset_of_outputs),   TEST(test_no_gradient_wanted),
  };
  return TEST_RUN(tests);
}
