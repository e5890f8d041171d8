/* The convolution and the norm on machines that round to bfloat16 themselves: the bits are those of the arithmetic that stands in
 * for it elsewhere, for numbers of every size, infinities and NaN. */
#include "isa/table.h"
#include "layer.h"
#include "test.h"
#include <math.h>

static const gdn2_exec one = {.threads = 1};

/* Of x some numbers near the smallest normal one, some subnormal, and every 4096th infinite or NaN. */
static void spread(double *x, size_t count, uint64_t seed) {
  rng r = {seed};
  for (size_t i = 0; i < count; i++) {
    const uint64_t bits = rng_next(&r);
    if (bits % 4 == 0) x[i] = layer_round(GDN2_BF16, x[i] * ldexp(1, -110 - (int)(bits >> 8 & 15)));
    if (bits % 16 == 1) x[i] = layer_round(GDN2_BF16, x[i] * ldexp(1, -130));
    if (i % 4096 == 1234) x[i] = i % 8192 < 4096 ? INFINITY : NAN;
  }
}

static void take(const char *isa) { assert_int_equal(setenv("GDN2_ISA", isa, 1), 0); }

/* Results of many sizes, few of them NaN, and some that count as 0. */
static void expect_varied(const double *x, size_t count) {
  size_t nan = 0, zero = 0, tiny = 0;
  for (size_t i = 0; i < count; i++)
    nan += isnan(x[i]) ? 1 : 0, zero += x[i] == 0 ? 1 : 0, tiny += x[i] != 0 && fabs(x[i]) < 1e-30 ? 1 : 0;
  assert_true(nan > 0 && nan < count / 2);
  assert_true(zero > 0 && zero < count / 2);
  assert_true(tiny > 0 && tiny < count / 2);
}

/* Else the bits below would be compared with themselves. */
static void test_choice(void **state) {
  (void)state;
  const gdn2_table *plain = NULL, *best = NULL;
  take("avx512");
  assert_int_equal(gdn2_table_choose(GDN2_ISA_AUTO, &plain), GDN2_OK);
  take("avx512_bf16");
  assert_int_equal(gdn2_table_choose(GDN2_ISA_AUTO, &best), GDN2_OK);
  assert_ptr_not_equal(plain->conv->forward, best->conv->forward);
  assert_ptr_not_equal(plain->conv->backward, best->conv->backward);
  assert_ptr_not_equal(plain->norm->forward, best->norm->forward);
  assert_ptr_not_equal(plain->norm->backward, best->norm->backward);
}

static void test_convolution(void **state) {
  (void)state;
  for (int W = 2; W <= 4; W++)
    for (int silu = 0; silu < 2; silu++) {
      const void *mark = test_mark();
      const conv_case c = conv_new(10, GDN2_BF16, 2, 37, 531, W, silu);
      spread(c.in[C_X], 2 * 37 * 531, 11), spread(c.in[C_DY], 2 * 37 * 531, 12),
          spread(c.in[C_STATE], (size_t)(2 * 531 * (W - 1)), 13);
      for (int i = 0; i < 531; i++) c.in[C_BIAS][i] = 0;
      take("avx512");
      const conv_result want = conv_run(&c, one);
      take("avx512_bf16");
      const conv_result got = conv_run(&c, one);
      conv_expect_equal(&c, &got, &want);
      expect_varied(got.out[C_Y], 2 * 37 * 531);
      expect_varied(got.out[C_DX], 2 * 37 * 531);
      test_release_to(mark);
    }
}

static void test_norm(void **state) {
  (void)state;
  static const gdn2_norm_gate gates[] = {GDN2_NORM_SILU, GDN2_NORM_SIGMOID};
  for (int n = 0; n < 2; n++) {
    const void *mark = test_mark();
    norm_case c = norm_new(20, GDN2_BF16, 2, 37, 6, 131);
    c.gate = gates[n];
    double *const spread_in[] = {c.in[N_X], c.in[N_Z], c.in[N_DY]};
    for (int i = 0; i < 3; i++) spread(spread_in[i], 2 * 37 * 6 * 131, 21 + (uint64_t)i);
    take("avx512");
    const norm_result want = norm_run(&c, one);
    take("avx512_bf16");
    const norm_result got = norm_run(&c, one);
    norm_expect_equal(&c, &got, &want);
    expect_varied(got.out[N_Y], 2 * 37 * 6 * 131);
    expect_varied(got.out[N_DX], 2 * 37 * 6 * 131);
    expect_varied(got.out[N_DZ], 2 * 37 * 6 * 131);
    test_release_to(mark);
  }
}

int main(void) {
  setenv("GDN2_ISA", "avx512_bf16", 1);
  const struct CMUnitTest tests[] = {TEST(test_choice), TEST(test_convolution), TEST(test_norm)};
  return TEST_RUN(tests);
}
