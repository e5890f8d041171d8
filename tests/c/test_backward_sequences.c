/* Gradients of sequences of different length in one row: each has the bits of a call of its own. */
#include <math.h>

#include "gradient.h"
#include "test.h"

static gradient_case packed(uint64_t seed, int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V, const int64_t *cu, int64_t N,
                            bool all) {
  width_case c = width_new(seed, 1, T, H, HV, K, V);
  if (all) {
    width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, seed);
    width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, seed);
    for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, seed, 1);
    c.l2norm = true;
  }
  width_cut(&c, cu, N, seed);
  return gradient_of(c, seed);
}

/* Tokens of no sequence have zero gradients. */
static void expect_zeros_after(const gradient_case *x, const gradients *got) {
  const int64_t stop = x->c.cu[x->c.N];
  for (int i = 0; i < D_H0; i++) {
    const tensor t = gradient_tensor(x, i);
    const int64_t row = t.shape[2] * t.shape[3];
    for (int64_t n = stop * row; n < x->c.T * row; n++)
      if (!(got->values[i][n] == 0)) fail_msg("%s: element %ld belongs to no sequence, but is not 0", t.name, (long)n);
  }
}

static void expect_separate(const gradient_case *x, const gradients *got) {
  for (int64_t n = 0; n < x->c.N; n++) {
    const void *mark = test_mark();
    const gradient_case part = gradient_sequence(x, n);
    const gradients alone = gradient_run(&part);
    gradient_expect_equal_part(x, got, &part, &alone, n);
    test_release_to(mark);
  }
  expect_zeros_after(x, got);
}

static void expect_right_and_separate(gradient_case *x) {
  const gradient_truth want = gradient_oracle(x);
  for (int type = 0; type < 2; type++) {
    x->c.cu_type = type ? GDN2_I64 : GDN2_I32;
    const gradients got = gradient_run(x);
    gradient_expect_right(x, &got, &want, 1.5e-6);
    if (type) expect_separate(x, &got);
  }
}

static void test_short_sequences(void **state) {
  (void)state;
  static const int64_t below_a_chunk[] = {0, 57, 59, 64}, ones[] = {0, 1, 2, 3}, mixed[] = {0, 16, 33, 34, 66, 97, 100};
  for (int all = 0; all < 2; all++) {
    gradient_case a = packed(1, 64, 2, 4, 17, 12, below_a_chunk, 3, all), b = packed(2, 3, 2, 2, 8, 8, ones, 3, all);
    gradient_case c = packed(3, 100, 1, 3, 33, 20, mixed, 6, all);
    expect_right_and_separate(&a);
    expect_right_and_separate(&b);
    expect_right_and_separate(&c);
  }
}

/* 300 of length 1 to 3: more than there are blocks of partial sums. */
static void test_many_short_sequences(void **state) {
  (void)state;
  int64_t cu[301] = {0};
  for (int n = 0; n < 300; n++) cu[n + 1] = cu[n] + 1 + n * 7 % 3;
  gradient_case x = packed(4, cu[300] + 3, 1, 2, 9, 7, cu, 300, true);
  const gradient_truth want = gradient_oracle(&x);
  const gradients got = gradient_run(&x);
  gradient_expect_right(&x, &got, &want, 1e-6);
  expect_separate(&x, &got);
}

/* A long sequence among short ones: each has segments of its own length. */
static void test_lengths_of_segments(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 5, 1600, 1601, 1900};
  gradient_case x = packed(5, 1900, 1, 2, 8, 6, cu, 4, true);
  const gradient_truth want = gradient_oracle(&x);
  const gradients got = gradient_run(&x);
  gradient_expect_right(&x, &got, &want, 1e-6);
  expect_separate(&x, &got);
}

/* NaN in the tokens after the last offset is not read. */
static void test_tokens_of_no_sequence(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 20, 41};
  for (int type = GDN2_F32; type <= GDN2_F16; type++)
    for (int per_head = 0; per_head < 2; per_head++) {
      width_case c = width_new(6, 1, 60, 2, 6, 11, 9);
      for (int i = W_G; per_head && i <= W_W; i++) width_make_per_head(&c, i);
      width_cut(&c, cu, 2, 6);
      gradient_case x = gradient_of(c, 6);
      gradient_set_type(&x, (gdn2_dtype)type);
      for (int i = W_Q; i <= W_W; i++) {
        const tensor t = width_tensor(&x.c, i);
        for (int64_t n = 41 * t.shape[2] * t.shape[3]; n < (int64_t)width_count(&x.c, i); n++) x.c.in[i][n] = NAN;
      }
      for (int64_t n = 41 * x.c.HV * x.c.V; n < 60 * x.c.HV * x.c.V; n++) x.d_o[n] = NAN;
      const gradients got = gradient_run_as(&x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
      gradient_expect_finite(&x, &got);
      expect_zeros_after(&x, &got);
    }
}

/* ---- Empty ones ---- */

static void test_empty_sequences(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 0, 5, 5, 9, 9}, none[] = {0, 0, 0};
  for (int h0 = 0; h0 < 2; h0++)
    for (int dh = 0; dh < 2; dh++) {
      gradient_case x = packed(7, 9, 2, 4, 7, 6, cu, 5, true), empty = packed(8, 0, 2, 4, 7, 6, none, 2, true);
      if (!h0) x.c.in[W_H0] = empty.c.in[W_H0] = NULL;
      if (!dh) x.dh_final = empty.dh_final = NULL;
      const gradients got = gradient_run(&x), nothing = gradient_run(&empty);
      const gradient_truth want = gradient_oracle(&x);
      gradient_expect_right(&x, &got, &want, 1e-6);
      expect_separate(&x, &got);
      const int64_t states = 4 * 7 * 6;
      for (int64_t n = 0; n < 5; n += 2)
        for (int64_t i = n * states; i < (n + 1) * states; i++)
          assert_true((double)got.values[D_H0][i] == (dh ? x.dh_final[i] : 0));
      for (int64_t i = 0; i < 2 * states; i++) assert_true((double)nothing.values[D_H0][i] == (dh ? empty.dh_final[i] : 0));
      const tensor A = gradient_tensor(&empty, D_A), dt = gradient_tensor(&empty, D_DT);
      expect_all_zero(&A, nothing.values[D_A]);
      expect_all_zero(&dt, nothing.values[D_DT]);
    }
}

/* No sequence at all, or no row in the batch: every gradient that has elements is 0. */
static void test_no_sequence(void **state) {
  (void)state;
  static const int64_t cu[] = {0};
  for (int64_t T = 0; T < 20; T += 19) {
    const gradient_case x = packed(9, T, 2, 4, 7, 6, cu, 0, true);
    width_case rows = width_new(10, 0, T, 2, 4, 7, 6);
    width_make_raw_decay(&rows, GDN2_DECAY_BOUNDED, 10);
    const gradient_case none = gradient_of(rows, 10);
    const gradients got = gradient_run(&x), nothing = gradient_run(&none);
    for (int i = 0; i < GRADIENTS; i++) {
      const tensor t = gradient_tensor(&x, i), u = gradient_tensor(&none, i);
      expect_all_zero(&t, got.values[i]);
      expect_all_zero(&u, nothing.values[i]);
    }
  }
}

/* ---- What stands around a sequence ---- */

/* A row alone, in a batch of 8, at other places of it, and packed: the same bits. */
static void test_same_bits_anywhere(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 45, 90, 135, 180};
  gradient_case x = packed(11, 180, 1, 2, 16, 12, cu, 4, true);
  const gradients got = gradient_run(&x);
  width_case batch = x.c;
  batch.B = 4, batch.T = 45, batch.cu = NULL;
  gradient_case rows = x;
  rows.c = batch;
  const gradients by_rows = gradient_run(&rows);
  gradient_expect_equal(&x, &got, &by_rows);
  for (int64_t n = 0; n < 4; n++) {
    const gradient_case part = gradient_sequence(&x, n);
    const gradients alone = gradient_run(&part);
    gradient_expect_equal_part(&x, &got, &part, &alone, n);
  }
}

/* What changes after token P - 1 changes no bit of the gradients before it, of a loss that sees nothing after it. */
static void test_prefix(void **state) {
  (void)state;
  enum { T = 40 };
  for (int64_t P = 1; P < T; P += 6) {
    const void *mark = test_mark();
    width_case c = width_new(12, 1, T, 1, 2, 19, 8);
    width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 13);
    width_make_raw_gates(&c, GDN2_GATE_SIGMOID, GDN2_GATE_SIGMOID, 14);
    c.l2norm = true;
    gradient_case x = gradient_of(c, 15);
    x.dh_final = NULL;
    const int64_t row = c.HV * c.V;
    for (int64_t i = P * row; i < T * row; i++) x.d_o[i] = 0;
    const gradients want = gradient_run(&x);
    gradient_case y = x;
    for (int i = W_Q; i <= W_W; i++) {
      const tensor t = width_tensor(&x.c, i);
      width_own(&y.c, i);
      for (int64_t n = P * t.shape[2] * t.shape[3]; n < (int64_t)tensor_count(&t); n++) y.c.in[i][n] = 1 - y.c.in[i][n];
    }
    const gradients got = gradient_run(&y);
    for (int i = 0; i < GRADIENTS; i++) {
      const tensor t = gradient_tensor(&x, i);
      const size_t before = i < D_H0 ? (size_t)(P * t.shape[2] * t.shape[3]) : tensor_count(&t);
      assert_memory_equal(got.values[i], want.values[i], before * sizeof(float));
      for (size_t n = before; n < tensor_count(&t); n++) assert_true(got.values[i][n] == 0);
    }
    test_release_to(mark);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_short_sequences),     TEST(test_many_short_sequences),
      TEST(test_lengths_of_segments), TEST(test_tokens_of_no_sequence),
      TEST(test_empty_sequences),     TEST(test_no_sequence),
      TEST(test_same_bits_anywhere),  TEST(test_prefix),
  };
  return TEST_RUN(tests);
}
