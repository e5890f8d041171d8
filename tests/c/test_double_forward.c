/* The float64 forward against ref/ through every option, and against closed forms; strides and layouts of forward and backward.
 */
#include <math.h>

#include "double.h"
#include "test.h"

#define FORWARD (DOUBLE_O | DOUBLE_H_FINAL)

static void expect_ref(const double_problem *x, double bound, double unit) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  const width_truth want = width_oracle(&x->c);
  const double_result got = double_run(x, FORWARD);
  double_expect_near(&o, got.o, want.o, bound, unit);
  double_expect_near(&h, got.h_final, want.h_final, bound, unit);
}

static void test_every_option(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const void *mark = test_mark();
    const double_problem x = double_any(seed);
    expect_ref(&x, 1e-13, 1e-2);
    test_release_to(mark);
  }
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t sizes[][6] = {{2, 37, 3, 6, 5, 7},     {1, 1, 2, 2, 16, 9},    {1, 2, 1, 3, 1, 1},    {1, 200, 2, 2, 64, 33},
                              {1, 17, 1, 1, 256, 256}, {3, 16, 2, 16, 31, 64}, {1, 300, 1, 2, 24, 80}};
  for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
    for (int raw = 0; raw < 3; raw++) {
      const void *mark = test_mark();
      const int64_t *s = sizes[n];
      width_case c = width_new(20 + n, s[0], s[1], s[2], s[3], s[4], s[5]);
      if (raw) width_make_raw_decay(&c, (gdn2_decay)raw, 20 + n);
      if (raw) width_make_raw_gates(&c, (gdn2_gate)raw, GDN2_GATE_SIGMOID, 21 + n);
      c.l2norm = raw == 2;
      const double_problem x = double_new(&c, 22 + n);
      expect_ref(&x, 1e-13, 0);
      test_release_to(mark);
    }
}

/* ---- Closed forms ---- */

/* The decay exp(g) of one raw number, read off a state of 1 that nothing else touches. */
static double decay_of(gdn2_decay form, double A_log, double x, double bias, double lower_bound) {
  const double zero = 0, one = 1, write = 0;
  double state;
  const gdn2_forward_args args = {.struct_size = sizeof args,
                                  .problem = {.B = 1,
                                              .T = 1,
                                              .H = 1,
                                              .K = 1,
                                              .V = 1,
                                              .q = {&zero, GDN2_F64, {0}},
                                              .k = {&zero, GDN2_F64, {0}},
                                              .v = {&write, GDN2_F64, {0}},
                                              .g = {&x, GDN2_F64, {0}},
                                              .h0 = {&one, GDN2_F64, {0}},
                                              .decay = form,
                                              .A_log = {&A_log, GDN2_F64, {0}},
                                              .dt_bias = {&bias, GDN2_F64, {0}},
                                              .lower_bound = lower_bound},
                                  .h_final = {&state, GDN2_F64, {0}}};
  if (gdn2_forward(&args) != GDN2_OK) fail_msg("%s", gdn2_last_error());
  return state;
}

static void test_softplus_extremes(void **state) {
  (void)state;
  const struct {
    double A, x, want;
  } known[] = {{100, -200, 0},          {100, 0, -INFINITY}, {-INFINITY, 0, 0},  {-INFINITY, 700, 0}, {-6, 100, -100 * exp(-6)},
               {800, -900, -exp(-100)}, {0, 1e300, -1e300},  {0, -40, -exp(-40)}};
  for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
    const double got = decay_of(GDN2_DECAY_SOFTPLUS, known[n].A, known[n].x - 1, 1, 0), want = exp(known[n].want);
    if (!(fabs(got - want) <= 1e-14 * want)) fail_msg("case %zu: %.17g, must be %.17g", n, got, want);
  }
  /* Where log1p(exp(x)) gives way to exp(x), and where exp alone would overflow: in one piece. */
  for (double x = -40; x < 800; x += 0.37) {
    const double want = exp(-1e-3 * (fmax(x, 0) + log1p(exp(-fabs(x)))));
    assert_true(fabs(decay_of(GDN2_DECAY_SOFTPLUS, log(1e-3), x, 0, 0) / want - 1) < 1e-14);
  }
}

static void test_bounded_extremes(void **state) {
  (void)state;
  assert_true(decay_of(GDN2_DECAY_BOUNDED, INFINITY, 1, -1, -4) == exp(-2.0));
  assert_true(decay_of(GDN2_DECAY_BOUNDED, 800, 1e-3, 0, -4) == exp(-4.0));
  assert_true(decay_of(GDN2_DECAY_BOUNDED, 800, -1e-3, 0, -4) == 1);
  assert_true(decay_of(GDN2_DECAY_BOUNDED, -INFINITY, 55, 0, -4) == exp(-2.0));
  assert_true(decay_of(GDN2_DECAY_BOUNDED, 0, 0, 0, -1e300) == 0);
}

/* k = q = e0: with b = w = 1 every value comes out as it went in; with b = w = 2 it is 2, 0, 2, 0, ... */
static void test_exact_sequences(void **state) {
  (void)state;
  static const double scale = 1;
  for (int twice = 1; twice <= 2; twice++) {
    width_case c = width_new(40, 1, 300, 1, 1, 6, 5);
    c.scale = &scale;
    c.in[W_G] = c.in[W_H0] = NULL;
    double_problem x = double_new(&c, 40);
    width_fill(&x.c, W_Q, 0), width_fill(&x.c, W_K, 0);
    for (int64_t t = 0; t < 300; t++) width_row(&x.c, W_Q, 0, t, 0)[0] = width_row(&x.c, W_K, 0, t, 0)[0] = 1;
    width_fill(&x.c, W_B, twice), width_fill(&x.c, W_W, twice);
    if (twice == 2) width_fill(&x.c, W_V, 1);
    for (int64_t n = 0; twice == 1 && n < 1500; n++) x.c.in[W_V][n] = (double)(n * n % 1013);
    const double_result r = double_run(&x, FORWARD);
    for (int64_t n = 0; n < 1500; n++) assert_true(r.o[n] == (twice == 1 ? x.c.in[W_V][n] : n / 5 % 2 ? 0 : 2));
  }
}

/* Numbers that float32 does not have: 1 + 2^-40, 1e-200 and 1e200 go through. */
static void test_more_than_float32(void **state) {
  (void)state;
  const double values[] = {1 + 0x1p-40, 1e-200, -1e200, 0x1p-1074};
  const width_case c = width_new(41, 1, 1, 1, 1, 1, 4);
  double_problem x = double_new(&c, 41);
  static const double scale = 1;
  x.c.scale = &scale;
  width_fill(&x.c, W_Q, 1), width_fill(&x.c, W_K, 1), width_fill(&x.c, W_W, 1), width_fill(&x.c, W_H0, 0);
  memcpy(x.c.in[W_V], values, sizeof values);
  const double_result r = double_run(&x, FORWARD);
  assert_memory_equal(r.o, values, sizeof values);
  assert_memory_equal(r.h_final, values, sizeof values);
}

/* NaN is not hidden: it reaches the state of its head, and no other. */
static void test_nan(void **state) {
  (void)state;
  for (int input = W_Q; input <= W_W; input++) {
    const width_case c = width_new(42, 1, 9, 1, 2, 4, 3);
    double_problem x = double_new(&c, 42);
    width_row(&x.c, input, 0, 5, 0)[1] = NAN;
    const double_result r = double_run(&x, FORWARD);
    for (int64_t t = 0; t < 9; t++)
      for (int64_t j = 0; j < 2; j++) {
        bool any = false;
        for (int64_t e = 0; e < 3; e++) any = any || isnan(r.o[(t * 2 + j) * 3 + e]);
        assert_int_equal(any, (j == 0 || input <= W_K) && (input == W_Q ? t == 5 : t >= 5));
      }
  }
}

/* ---- Layouts ---- */

static void test_layouts(void **state) {
  (void)state;
  static const width_layout layouts[] = {
      {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START},
      {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END},
      {{1, 0, 2, 3}, {0, 1, 2, 3}, {1, 0, 9, 2}, {1, -1, 1, 1}, TEST_AT_START},
  };
  for (uint64_t seed = 61; seed <= 72; seed++)
    for (int which = 0; which < 3; which++) {
      const void *mark = test_mark();
      const double_problem x = double_any(seed);
      const unsigned all = FORWARD | double_gradients(&x);
      const double_result want = double_run(&x, all);
      double_call call = double_call_new(&x, all, &layouts[which]);
      const double_result got = double_call_run(&x, &call);
      double_expect_equal(&x, &got, &want);
      test_release_to(mark);
    }
}

/* The state may be updated in place. */
static void test_state_in_place(void **state) {
  (void)state;
  const width_case c = width_new(43, 2, 11, 2, 4, 5, 3);
  const double_problem x = double_new(&c, 43);
  const double_result want = double_run(&x, FORWARD);
  double_call call = double_call_new(&x, FORWARD, &width_contiguous);
  test_unlock(call.width.in[W_H0].base);
  call.width.args.h_final.data = call.width.in[W_H0].first;
  assert_int_equal(gdn2_forward(&call.width.args), GDN2_OK);
  assert_memory_equal(call.width.in[W_H0].first, want.h_final, width_count(&c, W_H0) * sizeof(double));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_every_option),
      TEST(test_sizes),
      TEST(test_softplus_extremes),
      TEST(test_bounded_extremes),
      TEST(test_exact_sequences),
      TEST(test_more_than_float32),
      TEST(test_nan),
      TEST(test_layouts),
      TEST(test_state_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
