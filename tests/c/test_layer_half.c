/* Every bfloat16 number through the activations of the convolution and of the norm, and through their slopes. Results rounded to
 * bfloat16 are at most 0.52 units in the last place from the function, where 0.5 is rounding alone; sums in float32 are right to
 * 2^-19 of their terms, or 2^-23 |x| of them where that is more. */
#include "memory.h"
#include "test.h"
#include <math.h>

enum { COUNT = 1 << 16 };

static float wide(uint16_t bits) {
  const uint32_t x = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &x, sizeof f);
  return f;
}

static uint16_t *numbers(void) { return (uint16_t *)(void *)test_floats(COUNT / 2); }

static uint16_t *every_number(void) {
  uint16_t *x = numbers();
  for (int i = 0; i < COUNT; i++) x[i] = (uint16_t)i;
  return x;
}

static void *all(uint16_t bits) {
  uint16_t *x = numbers();
  for (int i = 0; i < COUNT; i++) x[i] = bits;
  return x;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }

/* The sizes of the terms of a slope: s + x s (1 - s), or s (1 - s). */
static double silu_terms(double x) { return sigmoid(x) * (1 + fabs(x) * sigmoid(-x)); }
static double silu_slope(double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }
static double sigmoid_slope(double x) { return sigmoid(x) * sigmoid(-x); }

/* Distance of y from want in units in the last place of bfloat16 there. */
static double units(double y, double want) { return fabs(y - want) / ldexp(1, ilogb(want) - 7); }

/* Subnormal numbers, of sigmoids too, may count as 0; where f is 2^-126 here it is less before double rounds it. */
static void expect_rounded(const uint16_t *x, const uint16_t *y, double (*f)(double)) {
  int seen = 0, inexact = 0;
  for (int i = 0; i < COUNT; i++) {
    const double in = (double)wide(x[i]), out = (double)wide(y[i]), want = f(in);
    if (isnan(want)) {
      assert_true(isnan(out));
    } else if (isinf(want)) {
      assert_true(out == want);
    } else if (sigmoid(in) < 0x1p-126 || fabs(want) <= 0x1p-126) {
      assert_true(fabs(out - want) <= fmax(1, fabs(in)) * 0x1p-126);
    } else {
      assert_true(units(out, want) <= 0.52);
      seen++, inexact += out != want;
    }
  }
  assert_true(seen > COUNT / 2);
  assert_true(inexact > COUNT / 200);
  /* A wrong number would be seen. */
  for (int at = 0x4000; at <= 0xc000; at += 0x8000)
    for (int step = -1; step <= 1; step += 2)
      assert_true(units((double)wide((uint16_t)(y[at] + 2 * step)), f((double)wide(x[at]))) > 0.52);
}

/* One token whose only tap that counts is 1: y = silu(x). */
static void test_convolution(void **state) {
  (void)state;
  uint16_t *x = every_number(), *y = numbers();
  float *weight = test_floats(2 * COUNT);
  for (int i = 0; i < COUNT; i++) weight[2 * i] = 0, weight[2 * i + 1] = 1;
  const gdn2_conv_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = 1, .D = COUNT, .W = 2, .silu = 1, .x = {x, GDN2_BF16, {0}}, .weight = {weight, GDN2_F32, {0}}},
      .y = {y, GDN2_BF16, {0}},
      .exec = {.threads = 1}};
  assert_int_equal(gdn2_conv_forward(&args), GDN2_OK);
  expect_rounded(x, y, silu);
}

/* Rows of ones have the norm 1: y = gate(z). */
static void gate(gdn2_norm_gate kind, double (*f)(double)) {
  enum { D = 256 };
  uint16_t *z = every_number(), *y = numbers();
  const gdn2_norm_forward_args args = {
      .struct_size = sizeof args,
      .problem =
          {.B = 1, .T = COUNT / D, .H = 1, .D = D, .x = {all(0x3f80), GDN2_BF16, {0}}, .z = {z, GDN2_BF16, {0}}, .gate = kind},
      .y = {y, GDN2_BF16, {0}},
      .exec = {.threads = 1}};
  assert_int_equal(gdn2_norm_forward(&args), GDN2_OK);
  expect_rounded(z, y, f);
}
static void test_norm_silu(void **state) { (void)state, gate(GDN2_NORM_SILU, silu); }
static void test_norm_sigmoid(void **state) { (void)state, gate(GDN2_NORM_SIGMOID, sigmoid); }

/* Of the terms of a slope: an exponential's digits are those of its exponent. Subnormal sigmoids may count as 0. */
static double room_at(double x, double terms) {
  return fmax(0x1p-19, fabs(x) * 0x1p-23) * terms + fmin(fmax(1, fabs(x)), 128) * 0x1p-126;
}

static void expect_slope(const uint16_t *x, const uint16_t *y, double (*f)(double), double (*terms)(double)) {
  int seen = 0;
  for (int i = 0; i < COUNT; i++) {
    const double in = (double)wide(x[i]), want = f(in), room = room_at(in, terms(in));
    if (!isfinite(in)) continue;
    assert_true(fabs((double)wide(y[i]) - want) <= room + (want != 0 ? 0.5 * ldexp(1, ilogb(want) - 7) : 0));
    seen += fabs(want) > 1e-6;
  }
  assert_true(seen > COUNT / 4);
}

/* dy = 1: dx = dbias = silu'(x), the one in bfloat16 and the other in float32. */
static void test_convolution_slope(void **state) {
  (void)state;
  uint16_t *x = every_number(), *dx = numbers();
  float *weight = test_floats(2 * COUNT), *dbias = test_floats(COUNT);
  for (int i = 0; i < COUNT; i++) weight[2 * i] = 0, weight[2 * i + 1] = 1;
  const gdn2_conv_problem problem = {
      .B = 1, .T = 1, .D = COUNT, .W = 2, .silu = 1, .x = {x, GDN2_BF16, {0}}, .weight = {weight, GDN2_F32, {0}}};
  const gdn2_conv_backward_args args = {.struct_size = sizeof args,
                                        .problem = problem,
                                        .dy = {all(0x3f80), GDN2_BF16, {0}},
                                        .dx = {dx, GDN2_BF16, {0}},
                                        .dbias = {dbias, GDN2_F32, {0}},
                                        .exec = {.threads = 1}};
  assert_int_equal(gdn2_conv_backward(&args), GDN2_OK);
  expect_slope(x, dx, silu_slope, silu_terms);
  for (int i = 0; i < COUNT; i++) {
    const double in = (double)wide(x[i]);
    if (!isfinite(in)) continue;
    assert_true(fabs((double)dbias[i] - silu_slope(in)) <= room_at(in, silu_terms(in)));
  }
}

/* Rows of ones, dy = 1: dz = gate'(z). */
static void gate_slope(gdn2_norm_gate kind, double (*f)(double), double (*terms)(double)) {
  enum { D = 256 };
  uint16_t *z = every_number(), *dz = numbers();
  const gdn2_norm_problem problem = {
      .B = 1, .T = COUNT / D, .H = 1, .D = D, .x = {all(0x3f80), GDN2_BF16, {0}}, .z = {z, GDN2_BF16, {0}}, .gate = kind};
  const gdn2_norm_backward_args args = {.struct_size = sizeof args,
                                        .problem = problem,
                                        .dy = {all(0x3f80), GDN2_BF16, {0}},
                                        .dz = {dz, GDN2_BF16, {0}},
                                        .exec = {.threads = 1}};
  assert_int_equal(gdn2_norm_backward(&args), GDN2_OK);
  expect_slope(z, dz, f, terms);
}
static void test_norm_silu_slope(void **state) { (void)state, gate_slope(GDN2_NORM_SILU, silu_slope, silu_terms); }
static void test_norm_sigmoid_slope(void **state) { (void)state, gate_slope(GDN2_NORM_SIGMOID, sigmoid_slope, sigmoid_slope); }

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_convolution),       TEST(test_norm_silu),       TEST(test_norm_sigmoid),
                                     TEST(test_convolution_slope), TEST(test_norm_silu_slope), TEST(test_norm_sigmoid_slope)};
  return TEST_RUN(tests);
}
