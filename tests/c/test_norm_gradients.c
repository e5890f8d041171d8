/* Gradients of the norm against central differences of the loop, and any subset of them. */
#include "layer.h"
#include "test.h"

static const gdn2_exec one = {.threads = 1};

static double loss(const norm_case *c) {
  const void *mark = test_mark();
  const norm_result r = norm_loop(c, NORM_RIGHT);
  const tensor t = norm_out_tensor(c, N_Y);
  double sum = 0;
  for (size_t e = 0; e < tensor_count(&t); e++) sum += c->in[N_DY][e] * r.out[N_Y][e];
  test_release_to(mark);
  return sum;
}

static void expect_slopes(norm_case *c, int input, int output, const norm_result *got) {
  const tensor t = norm_in_tensor(c, input);
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
  layer_expect_close(norm_out_tensor(c, output), c->out_dtype[output], got->out[output], slope,
                     c->out_dtype[output] == GDN2_F64 ? 1e-8 : 1e-6);
}

static void test_differences(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64)
    for (int bits = 0; bits < 8; bits++) {
      const void *mark = test_mark();
      norm_case c = norm_new(10 + (uint64_t)bits, (gdn2_dtype)type, 2, 2, 2, bits % 2 ? 5 : 9);
      c.gate = (gdn2_norm_gate)(bits & 1);
      c.plus_one = bits >> 1 & 1;
      if (bits & 4) c.in[N_Z] = NULL;
      const norm_result got = norm_run(&c, one);
      expect_slopes(&c, N_X, N_DX, &got);
      expect_slopes(&c, N_Z, N_DZ, &got);
      expect_slopes(&c, N_WEIGHT, N_DWEIGHT, &got);
      test_release_to(mark);
    }
}

/* dx is orthogonal to x but for eps: the norm does not change with the length of a row. */
static void test_scale_is_free(void **state) {
  (void)state;
  norm_case c = norm_new(20, GDN2_F64, 1, 3, 2, 31);
  c.eps = 1e-14;
  const norm_result got = norm_run(&c, one);
  for (int row = 0; row < 6; row++) {
    double along = 0, size = 0;
    for (int m = row * 31; m < (row + 1) * 31; m++) {
      along += got.out[N_DX][m] * c.in[N_X][m];
      size += got.out[N_DX][m] * got.out[N_DX][m];
    }
    assert_true(size > 1e-2 && along < 1e-12 && along > -1e-12);
  }
}

static void test_subsets(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++)
    for (int gated = 0; gated < 2; gated++) {
      norm_case c = norm_new(30, (gdn2_dtype)type, 2, 40, 3, 37);
      if (!gated) c.in[N_Z] = NULL;
      const norm_result all = norm_run(&c, one);
      for (unsigned wanted = 1; wanted < 1u << N_OUTPUTS; wanted++) {
        const void *mark = test_mark();
        const norm_result some = norm_run_some(&c, wanted, one);
        norm_expect_equal(&c, &some, &all);
        test_release_to(mark);
      }
    }
}

/* An absent weight is ones, and an absent gradient zeros. */
static void test_absent(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    norm_case c = norm_new(40, (gdn2_dtype)type, 2, 3, 2, 29);
    for (int m = 0; m < 29; m++) c.in[N_WEIGHT][m] = 1;
    const norm_result ones = norm_run(&c, one);
    c.in[N_WEIGHT] = NULL;
    const norm_result absent = norm_run(&c, one);
    norm_expect_equal(&c, &absent, &ones);
    for (int i = 0; i < 2 * 3 * 2 * 29; i++) c.in[N_DY][i] = 0;
    const norm_result zeros = norm_run(&c, one);
    c.in[N_DY] = NULL;
    const norm_result none = norm_run(&c, one);
    for (int i = 0; i < 2 * 3 * 2 * 29; i++)
      assert_true(none.out[N_DX][i] == 0 && zeros.out[N_DX][i] == 0 && none.out[N_DZ][i] == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_differences), TEST(test_scale_is_free), TEST(test_subsets), TEST(test_absent)};
  return TEST_RUN(tests);
}
