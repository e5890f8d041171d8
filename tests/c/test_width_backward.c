/* Gradients of the plain rule with 16-bit tensors: against the oracle's on the widened inputs, and rounded once. */
#include <math.h>

#include "gradient.h"
#include "test.h"

enum { TYPES = 3 };
#define GRADIENT_BOUND 2e-6

static gradient_case gradient_new(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t K, int64_t V) {
  return gradient_of(width_new(seed, B, T, H, H, K, V), seed);
}

/* Each output type: right within the rounding, and exactly the float32 gradient rounded once. */
static void expect_gradients(const gradient_case *x) {
  const gradient_truth truth = gradient_oracle(x);
  double *const *want = truth.values;
  const gradients single = gradient_run(x);
  for (int i = 0; i <= D_H0; i++) {
    const tensor t = gradient_tensor(x, i);
    expect_close(&t, single.values[i], want[i], GRADIENT_BOUND);
  }
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    const gradients half = gradient_run_as(x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
    for (int i = 0; i < D_H0; i++) {
      const tensor t = gradient_tensor(x, i);
      const double rounding = width_rounding_error((gdn2_dtype)type, want[i], tensor_count(&t));
      expect_close(&t, half.values[i], want[i], rounding + GRADIENT_BOUND);
      for (size_t n = 0; n < tensor_count(&t); n++)
        if (half.bits[i][n] != width_encode((gdn2_dtype)type, (double)single.values[i][n]))
          fail_msg("%s: element %zu is %#06x, which is not %.9g rounded", t.name, n, half.bits[i][n],
                   (double)single.values[i][n]);
    }
    const tensor t = gradient_tensor(x, D_H0);
    expect_same_bits(&t, half.values[D_H0], single.values[D_H0]);
  }
}

/* ---- Tests ---- */

static void test_all_alike(void **state) {
  (void)state;
  const int64_t shapes[][5] = {
      {2, 37, 3, 5, 7}, {1, 70, 2, 64, 64}, {1, 50, 1, 128, 100}, {1, 35, 2, 33, 17}, {1, 19, 1, 200, 31}};
  for (int n = 0; n < 5; n++)
    for (int type = 0; type < TYPES; type++) {
      gradient_case x = gradient_new(500 + (uint64_t)n, shapes[n][0], shapes[n][1], shapes[n][2], shapes[n][3], shapes[n][4]);
      gradient_set_type(&x, (gdn2_dtype)type);
      expect_gradients(&x);
    }
}

/* 16-bit q, k, v and d_o with float32 gates; one tensor alone in 16 bits. */
static void test_mixed(void **state) {
  (void)state;
  for (int i = -1; i <= W_W; i++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      gradient_case x = gradient_new(510, 1, 37, 2, 21, 19);
      if (i >= 0) width_set_dtype(&x.c, i, (gdn2_dtype)type);
      if (i < 0) {
        gradient_set_type(&x, (gdn2_dtype)type);
        const width_case single = width_new(510, 1, 37, 2, 2, 21, 19);
        for (int gate = W_G; gate <= W_W; gate++) x.c.in[gate] = single.in[gate], x.c.dtype[gate] = GDN2_F32;
      }
      expect_gradients(&x);
    }
}

static void test_gates_per_head(void **state) {
  (void)state;
  for (int which = 1; which < 8; which++)
    for (int type = 0; type < TYPES; type++) {
      gradient_case x = gradient_new(520, 1, 37, 2, 21, 19);
      gradient_set_type(&x, (gdn2_dtype)type);
      for (int gate = 0; gate < 3; gate++)
        if (which >> gate & 1) width_make_per_head(&x.c, W_G + gate);
      expect_gradients(&x);
    }
}

static void test_absent_gates(void **state) {
  (void)state;
  for (int gate = W_G; gate <= W_W; gate++) {
    gradient_case x = gradient_new(530, 1, 37, 2, 21, 19);
    gradient_set_type(&x, GDN2_BF16);
    x.c.in[gate] = NULL;
    expect_gradients(&x);
  }
}

/* Strided 16-bit views that end, or begin, at a page that may not be touched. */
static void test_layouts(void **state) {
  (void)state;
  static const width_layout layouts[] = {
      {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START},
      {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END},
      {{1, 0, 2, 3}, {0, 1, 2, 3}, {1, 0, 9, 2}, {1, -1, 1, 1}, TEST_AT_START},
  };
  const int64_t odd[] = {1, 3, 7, 17, 31, 33, 100, 128, 200};
  for (int n = 0; n < 9; n++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      const void *mark = test_mark();
      gradient_case x = gradient_new(540, 1, 18, 2, odd[n], odd[(n + 2) % 9]);
      gradient_set_type(&x, (gdn2_dtype)type);
      const gradients want = gradient_run_as(&x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
      for (int which = 0; which < 3; which++) {
        const gradients got = gradient_run_as(&x, (gdn2_dtype)type, &layouts[which], (gdn2_exec){0});
        for (int i = 0; i <= D_H0; i++) {
          const tensor t = gradient_tensor(&x, i);
          expect_same_bits(&t, got.values[i], want.values[i]);
        }
      }
      test_release_to(mark);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_all_alike), TEST(test_mixed), TEST(test_gates_per_head), TEST(test_absent_gates), TEST(test_layouts),
  };
  return TEST_RUN(tests);
}
