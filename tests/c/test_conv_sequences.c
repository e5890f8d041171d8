/* Sequences packed one behind the other: each has the bits it has alone, and tokens of no sequence count for nothing. */
#include <math.h>

#include "layer.h"
#include "test.h"

static const gdn2_exec three = {.threads = 3};

/* Values, states and gradients by token and by sequence; the sums for the weights have no part of a sequence's own. */
static void expect_alone(const conv_case *c, const conv_result *packed) {
  const int per_token[] = {C_Y, C_DX}, per_sequence[] = {C_LAST, C_DSTATE};
  const int64_t grid = c->D * (c->W - 1);
  for (int64_t n = 0; n < c->N; n++) {
    const void *mark = test_mark();
    int64_t batch, start, length;
    conv_range(c, n, &batch, &start, &length);
    const conv_case part = conv_sequence(c, n);
    const conv_result alone = conv_run(&part, three);
    for (int i = 0; i < 2; i++) {
      layer_expect_equal(conv_out_tensor(&part, per_token[i]), packed->out[per_token[i]] + (batch * c->T + start) * c->D,
                         alone.out[per_token[i]]);
      layer_expect_equal(conv_out_tensor(&part, per_sequence[i]), packed->out[per_sequence[i]] + n * grid,
                         alone.out[per_sequence[i]]);
    }
    test_release_to(mark);
  }
}

static void expect_rest_zero(const conv_case *c, const conv_result *r) {
  for (int64_t i = c->cu[c->N] * c->D; i < c->T * c->D; i++) assert_true(r->out[C_Y][i] == 0 && r->out[C_DX][i] == 0);
}

static void check(const int64_t *cu, int64_t N, int64_t T, int64_t D, gdn2_index type, gdn2_dtype dtype) {
  for (int64_t W = 2; W <= 4; W++) {
    const void *mark = test_mark();
    conv_case c = conv_new(17, dtype, 1, T, D, W, 1);
    conv_cut(&c, cu, N, 18);
    c.cu_type = type;
    const conv_result got = conv_run(&c, three), want = conv_loop(&c, CONV_RIGHT);
    conv_expect_right(&c, &got, &want);
    expect_rest_zero(&c, &got);
    expect_alone(&c, &got);
    test_release_to(mark);
  }
}

static void test_lengths(void **state) {
  (void)state;
  static const int64_t few[] = {0, 57, 59, 64}, tiny[] = {0, 1, 2, 3}, empty[] = {0, 0, 5, 5, 9, 9}, late[] = {0, 4, 9};
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    check(few, 3, 64, 21, GDN2_I32, (gdn2_dtype)type);
    check(tiny, 3, 3, 21, GDN2_I64, (gdn2_dtype)type);
    check(empty, 5, 9, 5, GDN2_I32, (gdn2_dtype)type);
    check(late, 2, 15, 18, GDN2_I64, (gdn2_dtype)type);
  }
}

/* Sequences that begin, end and are empty within a few tokens of a border between windows (256 tokens). */
static void test_windows(void **state) {
  (void)state;
  for (int64_t at = 252; at <= 259; at++) {
    const int64_t cu[] = {0, at - 2, at, at, at + 1, at + 3, 512, 512, 515, 700};
    check(cu, 9, 701, 6, GDN2_I32, GDN2_F32);
  }
  static const int64_t whole[] = {0, 256, 512, 512}, behind[] = {0, 0, 254, 768, 768};
  check(whole, 3, 512, 6, GDN2_I32, GDN2_F64);
  check(behind, 4, 768, 6, GDN2_I64, GDN2_BF16);
}

static void test_many(void **state) {
  (void)state;
  enum { N = 1000 };
  static int64_t cu[N + 1];
  for (int n = 0; n < N; n++) cu[n + 1] = cu[n] + n * 7 % 3;
  conv_case c = conv_new(30, GDN2_F32, 1, cu[N] + 2, 3, 4, 1);
  conv_cut(&c, cu, N, 31);
  const conv_result got = conv_run(&c, three), want = conv_loop(&c, CONV_RIGHT);
  conv_expect_right(&c, &got, &want);
  expect_rest_zero(&c, &got);
}

/* Nothing of one document reaches another, in either direction. */
static void test_no_leak(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 10, 21, 30};
  conv_case c = conv_new(40, GDN2_F32, 1, 30, 17, 4, 1);
  conv_cut(&c, cu, 3, 41);
  const conv_result before = conv_run(&c, three);
  for (int64_t i = 10 * 17; i < 21 * 17; i++) c.in[C_X][i] += 3, c.in[C_DY][i] -= 2;
  const conv_result after = conv_run(&c, three);
  int64_t changed = 0;
  for (int64_t i = 0; i < 30 * 17; i++) {
    const bool mine = i >= 10 * 17 && i < 21 * 17, same_y = before.out[C_Y][i] == after.out[C_Y][i];
    if (!mine) assert_true(same_y && before.out[C_DX][i] == after.out[C_DX][i]);
    changed += mine && !same_y;
  }
  assert_true(changed > 10 * 17);
  for (int64_t i = 0; i < 3 * 17 * 3; i++)
    if (i / (17 * 3) != 1)
      assert_true(before.out[C_LAST][i] == after.out[C_LAST][i] && before.out[C_DSTATE][i] == after.out[C_DSTATE][i]);
}

/* NaN behind the last sequence is not read. */
static void test_rest_is_not_read(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 6, 11};
  conv_case c = conv_new(50, GDN2_F32, 1, 16, 9, 4, 1);
  conv_cut(&c, cu, 2, 51);
  const conv_result clean = conv_run(&c, three);
  for (int64_t i = 11 * 9; i < 16 * 9; i++) c.in[C_X][i] = c.in[C_DY][i] = NAN;
  const conv_result got = conv_run(&c, three);
  conv_expect_equal(&c, &got, &clean);
}

/* Padding to the left of a sequence, zeros, is what stands before a fresh one: the rest keeps its bits. */
static void test_left_padding(void **state) {
  (void)state;
  for (int64_t padding = 1; padding <= 5; padding++) {
    conv_case c = conv_new(60, GDN2_F32, 1, 20 + padding, 9, 4, 1);
    c.in[C_STATE] = NULL;
    for (int64_t i = 0; i < padding * 9; i++) c.in[C_X][i] = 0;
    const conv_case bare = conv_tokens(&c, padding, 20 + padding);
    const conv_result padded = conv_run(&c, three), want = conv_run(&bare, three);
    layer_expect_equal(conv_out_tensor(&bare, C_Y), padded.out[C_Y] + padding * 9, want.out[C_Y]);
    layer_expect_equal(conv_out_tensor(&bare, C_DX), padded.out[C_DX] + padding * 9, want.out[C_DX]);
    layer_expect_equal(conv_out_tensor(&bare, C_LAST), padded.out[C_LAST], want.out[C_LAST]);
  }
}

static void test_nothing(void **state) {
  (void)state;
  static const int64_t none[] = {0}, empty[] = {0, 0, 0};
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64) {
    conv_case c = conv_new(70, (gdn2_dtype)type, 1, 0, 5, 4, 1);
    conv_cut(&c, empty, 2, 71);
    const conv_result got = conv_run(&c, three);
    layer_expect_equal(conv_in_tensor(&c, C_STATE), got.out[C_LAST], c.in[C_STATE]);
    layer_expect_equal(conv_in_tensor(&c, C_DLAST), got.out[C_DSTATE], c.in[C_DLAST]);
    for (int i = 0; i < 5; i++) assert_true(got.out[C_DBIAS][i] == 0 && got.out[C_DWEIGHT][4 * i] == 0);
    conv_cut(&c, none, 0, 72);
    (void)conv_run(&c, three);
    conv_case rows = conv_new(73, (gdn2_dtype)type, 0, 7, 5, 4, 1);
    (void)conv_run(&rows, three);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_lengths),          TEST(test_windows),      TEST(test_many),   TEST(test_no_leak),
                                     TEST(test_rest_is_not_read), TEST(test_left_padding), TEST(test_nothing)};
  return TEST_RUN(tests);
}
