/* Any subset of gradients, of outputs' gradients and of inputs: what is left out changes no bit of the rest. */
#include <math.h>

#include "gradient.h"
#include "test.h"

enum { KINDS = 6 };

/* The plain rule; raw inputs; grouped heads; both, with gates of key heads; packed; per head. */
static gradient_case kind(int n) {
  static const int64_t cu[] = {0, 9, 9, 41};
  width_case c = width_new(200 + (uint64_t)n, n == 4 ? 1 : 2, 45, 2, n == 2 || n == 3 ? 6 : 2, 11, 9);
  if (n == 3) width_make_key_gate(&c, W_G), width_make_key_gate(&c, W_B);
  if (n % 2) {
    width_make_raw_decay(&c, n == 1 ? GDN2_DECAY_SOFTPLUS : GDN2_DECAY_BOUNDED, 201);
    width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 202);
    c.l2norm = true;
  }
  if (n == 4) width_cut(&c, cu, 3, 203);
  for (int i = W_G; n == 5 && i <= W_W; i++) width_make_per_head(&c, i);
  return gradient_of(c, 204);
}

static void test_every_subset(void **state) {
  (void)state;
  for (int n = 0; n < KINDS; n++) {
    gradient_case x = kind(n);
    const gradients all = gradient_run(&x);
    for (int i = -1; i < GRADIENTS; i++)
      for (int without = 0; without < 2; without++) {
        const void *mark = test_mark();
        const unsigned one = i < 0 ? 0 : 1u << i;
        x.wanted = without ? GRADIENTS_ALL & ~one : one;
        const gradients some = gradient_run(&x);
        gradient_expect_equal(&x, &some, &all);
        test_release_to(mark);
      }
    const unsigned pairs[] = {1u << D_V | 1u << D_W, 1u << D_Q | 1u << D_H0, 1u << D_G | 1u << D_A, GRADIENTS_OF_PARAMETERS,
                              1u << D_B | 1u << D_DT};
    for (int p = 0; p < 5; p++) {
      x.wanted = pairs[p];
      const gradients some = gradient_run(&x);
      gradient_expect_equal(&x, &some, &all);
    }
  }
}

/* An absent gradient of an output is one of zeros. */
static void test_absent_output_gradients(void **state) {
  (void)state;
  for (int n = 0; n < KINDS; n++)
    for (int which = 1; which < 4; which++) {
      gradient_case x = kind(n), zeros = x;
      if (which & 1) x.d_o = NULL, zeros.d_o = test_doubles(width_count(&x.c, W_V));
      if (which & 2) x.dh_final = NULL, zeros.dh_final = test_doubles(width_count(&x.c, W_H0));
      for (size_t i = 0; (which & 1) && i < width_count(&x.c, W_V); i++) zeros.d_o[i] = 0;
      for (size_t i = 0; (which & 2) && i < width_count(&x.c, W_H0); i++) zeros.dh_final[i] = 0;
      const gradients got = gradient_run(&x), want = gradient_run(&zeros);
      gradient_expect_equal(&x, &got, &want);
      if (which < 3) {
        const gradient_truth truth = gradient_oracle(&x);
        gradient_expect_right_to_unit(&x, &got, &truth, 1.5e-6, 1e-3);
      }
      for (int i = 0; which == 3 && i < GRADIENTS; i++) {
        const tensor t = gradient_tensor(&x, i);
        if (gradient_has(&x, i)) expect_all_zero(&t, got.values[i]);
      }
    }
}

/* An absent gate, state or bias is its neutral value, and has a gradient. */
static void test_absent_inputs(void **state) {
  (void)state;
  static const double neutral[] = {[W_G] = 0, [W_B] = 0, [W_W] = 1, [W_H0] = 0, [W_DT] = 0};
  for (int n = 0; n < KINDS; n++)
    for (int i = W_G; i <= W_DT; i++) {
      gradient_case x = kind(n), full = x;
      if (i == W_A || (n % 2 && i <= W_W && n != 5) || (i == W_DT && x.c.decay == GDN2_DECAY_LOG)) continue;
      if (n == 5 && i <= W_W && (x.c.decay != GDN2_DECAY_LOG || x.c.erase != GDN2_GATE_GIVEN)) continue;
      x.c.in[i] = NULL;
      width_fill(&full.c, i, neutral[i]);
      const gradients got = gradient_run(&x), want = gradient_run(&full);
      gradient_expect_equal(&x, &got, &want);
      const tensor t = gradient_tensor(&x, i);
      const gradient_truth truth = gradient_oracle(&full);
      assert_true(relative_error(got.values[i], truth.values[i], tensor_count(&t)) < 2e-6);
    }
}

/* 16-bit tensors beside states at the ends of float32: states and their gradients are float32 throughout. */
static void test_states_stay_wide(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    gradient_case x = gradient_of(width_new(210, 1, 1, 1, 1, 8, 8), 210);
    width_fill(&x.c, W_K, 0);
    width_fill(&x.c, W_V, 0);
    width_fill(&x.c, W_H0, 65536);
    width_fill(&x.c, W_G, -4);
    x.d_o = NULL;
    for (size_t i = 0; i < width_count(&x.c, W_H0); i++) x.dh_final[i] = 0x1p-25;
    width_set_dtypes(&x.c, (gdn2_dtype)type);
    const gradients got = gradient_run(&x);
    for (size_t i = 0; i < width_count(&x.c, W_H0); i++)
      assert_true(fabs((double)got.values[D_H0][i] / (0x1p-25 * exp(-4)) - 1) < 3e-7);
    for (size_t i = 0; i < width_count(&x.c, W_G); i++)
      assert_true(fabs((double)got.values[D_G][i] / (8 * 0x1p-25 * 65536 * exp(-4)) - 1) < 1e-6);
  }
}

/* Saturated decays and one-hot keys: nothing that is exactly 0 is left to a cancellation. */
static void test_exact_zeros(void **state) {
  (void)state;
  gradient_case x = gradient_of(width_new(215, 1, 24, 1, 1, 24, 10), 215);
  x.c.in[W_H0] = NULL;
  x.dh_final = NULL;
  width_fill(&x.c, W_G, -5);
  for (int i = W_Q; i <= W_K; i++)
    for (int64_t t = 0; t < 24; t++)
      for (int64_t d = 0; d < 24; d++) width_row(&x.c, i, 0, t, 0)[d] = d == t;
  const gradients got = gradient_run(&x);
  const tensor t = gradient_tensor(&x, D_G);
  expect_all_zero(&t, got.values[D_G]);
  assert_true(got.values[D_Q][0] != 0 && got.values[D_V][5] != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_every_subset), TEST(test_absent_output_gradients), TEST(test_absent_inputs),
                                     TEST(test_states_stay_wide), TEST(test_exact_zeros)};
  return TEST_RUN(tests);
}
