/* L2 norm of q and k inside the library: x / sqrt(sum of squares + 1e-6). */
#include <math.h>

#include "test.h"
#include "width.h"

static width_case normed(uint64_t seed, int64_t T, int64_t K, int64_t V) {
  width_case c = width_new(seed, 2, T, 2, 4, K, V);
  c.l2norm = true;
  width_fill_normal(&c, W_Q, seed, 1);
  width_fill_normal(&c, W_K, seed, 1);
  return c;
}

/* Rows of every size, from squares beyond the range of float32 to far below the epsilon. */
static void test_sizes(void **state) {
  (void)state;
  const double sizes[] = {1e35, 1e30, 1e21, 1e8, 1000, 1, 1e-2, 1e-3, 1e-4};
  for (int n = 0; n < 9; n++)
    for (int type = GDN2_F32; type <= GDN2_F16; type++) {
      if (type == GDN2_F16 && sizes[n] > 1e4) continue;
      width_case c = normed(1, 37, 29, 18);
      for (int i = W_Q; i <= W_K; i++)
        for (size_t x = 0; x < width_count(&c, i); x++) c.in[i][x] *= sizes[n];
      width_set_dtypes(&c, (gdn2_dtype)type);
      for (int i = W_Q; i <= W_K; i++) width_set_dtype(&c, i, (gdn2_dtype)type);
      const width_truth want = width_oracle(&c);
      const width_result got = width_run(&c, GDN2_F32);
      width_expect_right(&c, &got, &want, 1e-6);
    }
}

static void test_widths(void **state) {
  (void)state;
  const int64_t widths[] = {1, 3, 8, 15, 16, 17, 64, 100, 128, 200, 256};
  for (int n = 0; n < 11; n++)
    for (int type = GDN2_F32; type <= GDN2_F16; type++) {
      width_case c = normed(2 + (uint64_t)n, 20, widths[n], 11);
      width_set_dtypes(&c, (gdn2_dtype)type);
      const width_truth want = width_oracle(&c);
      const width_result got = width_run(&c, (gdn2_dtype)type);
      width_expect_right(&c, &got, &want, 1e-6);
    }
}

/* A query row of zeros has the output 0; a key row of zeros leaves the state to the decay; neither is NaN, and the rows around
 * are right. */
static void test_zero_rows(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    width_case c = normed(20, 40, 24, 17);
    width_set_dtypes(&c, (gdn2_dtype)type);
    width_fill(&c, W_G, -0.125);
    for (int64_t t = 5; t < 40; t += 5)
      for (int64_t d = 0; d < c.K; d++) width_row(&c, W_Q, 0, t, 1)[d] = width_row(&c, W_K, 1, t, 0)[d] = 0;
    const width_truth want = width_oracle(&c);
    const width_result got = width_run(&c, GDN2_F32);
    width_expect_right(&c, &got, &want, 1e-6);
    for (int64_t t = 5; t < 40; t += 5)
      for (int64_t x = 2 * c.V; x < 4 * c.V; x++) assert_true(got.o[t * c.HV * c.V + x] == 0);
  }
}

static void test_zero_keys_keep_the_state(void **state) {
  (void)state;
  width_case c = normed(21, 40, 24, 17);
  width_fill(&c, W_K, 0);
  c.in[W_G] = NULL;
  const width_result got = width_run(&c, GDN2_F32);
  for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true((double)got.h_final[i] == c.in[W_H0][i]);
}

/* The smallest numbers of each type that the engine keeps: their squares are lost beside the epsilon, they are not: y = 1000 x.
 */
static void test_smallest_rows(void **state) {
  (void)state;
  const double smallest[] = {0x1p-126, 0x1p-126, 0x1p-24};
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    static const double scale = 0x1p60;
    width_case c = normed(22, 3, 8, 5);
    c.scale = &scale;
    width_set_dtypes(&c, (gdn2_dtype)type);
    width_fill(&c, W_K, 0);
    c.in[W_G] = NULL;
    width_fill(&c, W_Q, 0);
    for (int64_t h = 0; h < 2; h++)
      for (int64_t t = 0; t < 3; t++) width_row(&c, W_Q, 0, t, h)[t] = (double)(1 + 2 * t) * smallest[type];
    const width_truth want = width_oracle(&c);
    const width_result got = width_run(&c, GDN2_F32);
    for (int64_t i = 0; i < 3 * c.HV * c.V; i++) {
      assert_true(want.o[i] != 0);
      if (!(fabs((double)got.o[i] / want.o[i] - 1) < 1e-6)) fail_msg("%.9g, must be %.9g", (double)got.o[i], want.o[i]);
    }
  }
}

/* NaN in one row stays in its own head. */
static void test_nan_row(void **state) {
  (void)state;
  width_case c = normed(23, 20, 24, 17);
  width_row(&c, W_Q, 0, 7, 0)[23] = NAN;
  const width_result got = width_run(&c, GDN2_F32);
  for (int64_t t = 0; t < 20; t++)
    for (int64_t j = 0; j < c.HV; j++)
      for (int64_t e = 0; e < c.V; e++)
        assert_true(!isfinite(got.o[(t * c.HV + j) * c.V + e]) == (t == 7 && width_key_head(&c, j) == 0));
}

/* Without the norm the answer is another, and so it is with another epsilon. */
static void test_norm_matters(void **state) {
  (void)state;
  width_case c = normed(24, 20, 24, 17);
  for (int i = W_Q; i <= W_K; i++)
    for (size_t x = 0; x < width_count(&c, i); x++) c.in[i][x] *= 0.25;
  for (int i = W_Q; i <= W_K; i++) width_set_dtype(&c, i, GDN2_F32);
  const width_result got = width_run(&c, GDN2_F32);
  width_case plain = c;
  plain.l2norm = false;
  const width_truth without = width_oracle(&plain);
  assert_true(width_error(&c, &got, &without) > 0.01);
  /* Rows of squares 2.4e-5 on average: an epsilon of 1e-5 in place of 1e-6 moves them by a sixth. */
  for (int i = W_Q; i <= W_K; i++)
    for (size_t x = 0; x < width_count(&c, i); x++) c.in[i][x] *= 0x1p-8;
  const width_truth small = width_oracle(&c);
  const width_result rows = width_run(&c, GDN2_F32);
  width_expect_right(&c, &rows, &small, 1e-6);
  for (int64_t r = 0; r < 2 * 20 * 2; r++)
    for (int i = W_Q; i <= W_K; i++) {
      double *x = c.in[i] + r * c.K, sum = 0;
      for (int64_t d = 0; d < c.K; d++) sum += x[d] * x[d];
      for (int64_t d = 0; d < c.K; d++) x[d] /= sqrt(sum + 1e-5);
    }
  c.l2norm = false;
  const width_truth other = width_oracle(&c);
  assert_true(width_error(&c, &rows, &other) > 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_sizes),         TEST(test_widths),  TEST(test_zero_rows),    TEST(test_zero_keys_keep_the_state),
      TEST(test_smallest_rows), TEST(test_nan_row), TEST(test_norm_matters),
  };
  return TEST_RUN(tests);
}
