/* The engine against the float64 path on the same numbers, through every option: two computations of the library that share no
 * arithmetic. */
#include <math.h>

#include "double.h"
#include "gradient.h"
#include "test.h"

#define BOUND 1e-6

/* The problem in float64, without moving its numbers off the float32 grid. */
static double_problem widened(const width_case *c) {
  double_problem x = double_new(c, 1);
  for (int i = 0; i < W_INPUTS; i++) x.c.in[i] = c->in[i];
  return x;
}

static void expect_forward(const width_case *c) {
  const double_problem x = widened(c);
  const double_result want = double_run(&x, DOUBLE_O | DOUBLE_H_FINAL);
  const width_truth truth = {want.o, want.h_final};
  const width_result got = width_run(c, GDN2_F32);
  width_expect_right(c, &got, &truth, BOUND);
}

/* Problem n: every option, in ever other company. */
static width_case with_options(int n) {
  static const int64_t cu[] = {0, 17, 17, 50, 61, 70};
  width_case c = width_new(600 + (uint64_t)n, n % 2 ? 1 : 2, 70, 2, n % 3 ? 4 : 2, n % 5 ? 37 : 64, n % 4 ? 21 : 64);
  c.map = (gdn2_head_map)(n / 2 % 2);
  if (n % 7 == 1) width_make_key_gate(&c, W_G);
  if (n % 7 == 2) width_make_key_gate(&c, W_B);
  if (n / 3 % 3) width_make_raw_decay(&c, (gdn2_decay)(n / 3 % 3), 601);
  width_make_raw_gates(&c, (gdn2_gate)(n / 4 % 3), (gdn2_gate)(n / 5 % 2), 602);
  for (int gate = W_G; gate <= W_W; gate++)
    if (n % 4 == gate - W_G) width_make_per_head(&c, gate);
  c.l2norm = n % 2;
  if (n % 6 == 5) width_cut(&c, cu, 5, 603);
  for (int i = W_Q; i <= W_W; i++)
    if (n % 9 == 8) width_set_dtype(&c, i, GDN2_BF16);
  return c;
}

static void test_forward(void **state) {
  (void)state;
  for (int n = 0; n < 36; n++) {
    const void *mark = test_mark();
    const width_case c = with_options(n);
    expect_forward(&c);
    test_release_to(mark);
  }
}

/* A gradient of A_log or dt_bias is a sum over all tokens of terms of both signs: relative to a size of 1 at least. */
static void test_backward_with_options(void **state) {
  (void)state;
  for (int n = 0; n < 36; n++) {
    const void *mark = test_mark();
    const gradient_case e = gradient_of(with_options(n), 650);
    double_problem x = widened(&e.c);
    x.d_o = e.d_o;
    x.dh_final = e.dh_final;
    const gradients got = gradient_run(&e);
    const double_result want = double_run(&x, double_gradients(&x));
    for (int i = 0; i < GRADIENTS; i++) {
      const tensor t = gradient_tensor(&e, i);
      if (!got.values[i]) continue;
      if (i < D_A)
        expect_close(&t, got.values[i], want.grad[i], BOUND);
      else
        expect_close_to_unit(&t, got.values[i], want.grad[i], BOUND, 1);
    }
    test_release_to(mark);
  }
}

/* Lengths at which rounding would add up. */
static void test_length(void **state) {
  (void)state;
  const width_case c = width_new(610, 1, 2000, 1, 2, 64, 48);
  expect_forward(&c);
}

static void test_backward(void **state) {
  (void)state;
  const int64_t sizes[][5] = {{2, 37, 3, 5, 7}, {1, 130, 2, 64, 33}, {1, 300, 1, 128, 128}, {1, 16, 2, 200, 31}};
  const char *const names[] = {"dq", "dk", "dv", "dg", "db", "dw", "dh0"};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    const void *mark = test_mark();
    const exact_case e = case_trained(620 + s, sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], sizes[s][4]);
    const results got = engine_run(&e);
    double_problem x = {.c = {.B = e.B, .T = e.T, .H = e.H, .HV = e.H, .K = e.K, .V = e.V, .N = e.B}};
    double *wide[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
      wide[i] = test_doubles(input_count(&e, i));
      for (size_t n = 0; n < input_count(&e, i); n++) wide[i][n] = (double)e.in[i][n];
    }
    for (int i = W_Q; i <= W_H0; i++) x.c.in[i] = wide[i], x.c.dtype[i] = GDN2_F64;
    x.d_o = wide[IN_DO];
    x.dh_final = wide[IN_DHF];
    const double_result want = double_run(&x, double_gradients(&x));
    for (int i = W_Q; i <= W_H0; i++) {
      tensor t = width_tensor(&x.c, i);
      t.name = names[i];
      expect_close(&t, got.out[OUT_DQ + i], want.grad[i], BOUND);
    }
    test_release_to(mark);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_forward), TEST(test_length), TEST(test_backward),
                                     TEST(test_backward_with_options)};
  return TEST_RUN(tests);
}
