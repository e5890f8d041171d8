/* Element types of inputs and outputs: each tensor alone, all mixed, every rule of the family, and float32 gates beside 16-bit
 * values. Whatever the types, only the rounding of the output comes on top of the float32 arithmetic. */
#include <math.h>

#include "test.h"
#include "width.h"

enum { TYPES = 3 };
#define FORWARD_BOUND 1e-6

/* Outputs in every type against the oracle, and against each other. */
static void expect_all_outputs(const width_case *c) {
  const width_truth want = width_oracle(c);
  const width_result single = width_run(c, GDN2_F32);
  width_expect_right(c, &single, &want, FORWARD_BOUND);
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    const width_result half = width_run(c, (gdn2_dtype)type);
    width_expect_right(c, &half, &want, FORWARD_BOUND);
    width_expect_rounded(c, &half, &single);
  }
}

static void test_each_tensor_alone(void **state) {
  (void)state;
  for (int i = W_Q; i <= W_W; i++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      width_case c = width_new(10, 2, 37, 2, 6, 21, 19);
      width_set_dtype(&c, i, (gdn2_dtype)type);
      expect_all_outputs(&c);
    }
}

static void test_all_alike(void **state) {
  (void)state;
  const int64_t shapes[][6] = {{2, 37, 3, 6, 5, 7}, {1, 70, 2, 2, 64, 64}, {1, 50, 1, 2, 128, 100}, {1, 33, 1, 1, 1, 256}};
  for (int n = 0; n < 4; n++)
    for (int type = 0; type < TYPES; type++) {
      const int64_t *s = shapes[n];
      width_case c = width_new(11 + (uint64_t)n, s[0], s[1], s[2], s[3], s[4], s[5]);
      width_set_dtypes(&c, (gdn2_dtype)type);
      expect_all_outputs(&c);
    }
}

static void test_random_mixtures(void **state) {
  (void)state;
  rng r = {5};
  for (int n = 0; n < 40; n++) {
    const void *mark = test_mark();
    const int64_t H = 1 + (int64_t)(rng_next(&r) % 3), HV = H * (1 + (int64_t)(rng_next(&r) % 3));
    width_case c = width_new(100 + (uint64_t)n, 1, 20, H, HV, 1 + (int64_t)(rng_next(&r) % 70), 1 + (int64_t)(rng_next(&r) % 70));
    for (int i = W_Q; i <= W_W; i++) width_set_dtype(&c, i, (gdn2_dtype)(rng_next(&r) % TYPES));
    expect_all_outputs(&c);
    test_release_to(mark);
  }
}

/* ---- The family ---- */

static void test_all_rules(void **state) {
  (void)state;
  for (int rule = 0; rule < 5; rule++)
    for (int type = 0; type < TYPES; type++) {
      width_case c = width_new(20 + (uint64_t)rule, 2, 45, 2, 4, 24, 17);
      width_set_dtypes(&c, (gdn2_dtype)type);
      if (rule >= 1 && rule <= 3) width_make_per_head(&c, W_B), width_make_per_head(&c, W_W);
      if (rule >= 1 && rule <= 3) c.in[W_W] = c.in[W_B];
      if (rule == 2) width_make_per_head(&c, W_G);
      if (rule == 3) c.in[W_G] = NULL;
      if (rule == 4) c.in[W_B] = c.in[W_W] = NULL;
      expect_all_outputs(&c);
    }
}

/* A gate per head has the bits of the same numbers written out per channel; an absent one those of its neutral value. */
static void test_broadcast_gates_are_bitwise(void **state) {
  (void)state;
  for (int i = W_G; i <= W_W; i++)
    for (int type = 0; type < TYPES; type++)
      for (int absent = 0; absent < 2; absent++) {
        width_case c = width_new(30, 1, 40, 2, 4, 19, 33);
        width_set_dtypes(&c, (gdn2_dtype)type);
        width_case whole = c;
        if (absent) {
          c.in[i] = NULL;
          width_fill(&whole, i, i == W_W);
        } else {
          width_make_per_head(&c, i);
          width_own(&whole, i);
          const size_t channels = (size_t)(i == W_W ? c.V : c.K);
          for (size_t n = 0; n < width_count(&whole, i); n++) whole.in[i][n] = c.in[i][n / channels];
        }
        const width_result got = width_run(&c, (gdn2_dtype)type), want = width_run(&whole, (gdn2_dtype)type);
        width_expect_equal(&c, &got, &want);
      }
}

/* ---- Float32 gates and states beside 16-bit values ---- */

/* beta = 0.9985 is 1 in bfloat16. Key e0, always the same value: an erase and write that keeps 0.15 % of the old state each time.
 */
static void test_float_gates_keep_their_digits(void **state) {
  (void)state;
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    width_case c = width_new(40, 1, 3, 1, 2, 8, 16);
    for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, (gdn2_dtype)type);
    for (int i = W_Q; i <= W_K; i++) {
      width_fill(&c, i, 0);
      for (int64_t t = 0; t < c.T; t++) width_row(&c, i, 0, t, 0)[0] = 1;
    }
    width_fill(&c, W_V, 3);
    width_fill(&c, W_B, 0.9985f);
    width_fill(&c, W_W, 0.9985f);
    width_fill(&c, W_G, -1.00123f);
    const width_truth want = width_oracle(&c);
    const width_result got = width_run(&c, GDN2_F32);
    width_expect_right(&c, &got, &want, 3e-7);
    width_case rounded = c;
    for (int i = W_G; i <= W_W; i++) width_set_dtype(&rounded, i, GDN2_BF16);
    const width_result coarse = width_run(&rounded, GDN2_F32);
    assert_true(width_error(&c, &coarse, &want) > 5e-4);
  }
}

/* Many calls of one token, state handed on, against the oracle in one piece. */
static void test_long_decode(void **state) {
  (void)state;
  const int64_t T = 4096;
  width_case c = width_new(41, 1, T, 1, 2, 16, 12);
  for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, GDN2_BF16);
  rng r = {42};
  for (size_t i = 0; i < width_count(&c, W_B); i++) c.in[W_B][i] = width_round(GDN2_F32, rng_uniform(&r, 0.98, 1));
  for (size_t i = 0; i < width_count(&c, W_G); i++) c.in[W_G][i] = width_round(GDN2_F32, -rng_uniform(&r, 1e-4, 1e-2));
  const width_truth want = width_oracle(&c);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  gdn2_forward_args *a = &call.args;
  gdn2_input *const tokens[] = {&a->problem.q, &a->problem.k, &a->problem.v, &a->problem.g, &a->problem.b, &a->problem.w};
  float *h = test_floats(width_count(&c, W_H0));
  for (size_t i = 0; i < width_count(&c, W_H0); i++) h[i] = (float)c.in[W_H0][i];
  a->problem.T = 1;
  a->problem.h0.data = a->h_final.data = h;
  for (int64_t t = 0; t < T; t++) {
    assert_int_equal(gdn2_forward(a), GDN2_OK);
    for (int i = W_Q; i <= W_W; i++)
      tokens[i]->data = (const char *)tokens[i]->data + tokens[i]->stride[1] * (tokens[i]->dtype == GDN2_F32 ? 4 : 2);
    a->o.data = (char *)a->o.data + a->o.stride[1] * 4;
  }
  const tensor o = width_o_tensor(&c), state_tensor = width_h_tensor(&c);
  float *all = test_floats(tensor_count(&o));
  width_buffer_load(&call.o, all, NULL);
  expect_close(&o, all, want.o, FORWARD_BOUND);
  expect_close(&state_tensor, h, want.h_final, FORWARD_BOUND);
}

/* A float32 state beyond the range of float16 lives through a call with 16-bit tensors: 65536 e^-4 = 1200.33. */
static void test_large_states(void **state) {
  (void)state;
  for (int type = 0; type < TYPES; type++) {
    width_case c = width_new(43, 1, 1, 1, 2, 32, 24);
    width_set_dtypes(&c, (gdn2_dtype)type);
    width_fill(&c, W_K, 0);
    width_fill(&c, W_V, 0);
    width_fill(&c, W_Q, 0x1p-7);
    width_fill(&c, W_G, -4);
    width_fill(&c, W_H0, 65536);
    const width_truth want = width_oracle(&c);
    assert_true(fabs(want.h_final[5] - 1200.33) < 0.01);
    const width_result got = width_run(&c, (gdn2_dtype)type);
    width_expect_right(&c, &got, &want, FORWARD_BOUND);
    width_fill(&c, W_H0, 0x1p-40);
    const width_truth tiny = width_oracle(&c);
    const width_result kept = width_run(&c, (gdn2_dtype)type);
    for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true(fabs(kept.h_final[i] / tiny.h_final[i] - 1) < 3e-7);
  }
}

/* An output beyond the range of float16 is infinite there, and the state goes on. */
static void test_output_overflow(void **state) {
  (void)state;
  static const double scale = 1;
  width_case c = width_new(44, 1, 2, 1, 1, 4, 20);
  c.scale = &scale;
  width_set_dtypes(&c, GDN2_F16);
  width_fill(&c, W_Q, 1);
  width_fill(&c, W_K, 0);
  width_fill(&c, W_G, 0);
  width_fill(&c, W_H0, -32768);
  const width_result half = width_run(&c, GDN2_F16), brain = width_run(&c, GDN2_BF16);
  for (int64_t i = 0; i < 2 * c.V; i++) {
    assert_int_equal(half.bits[i], 0xfc00);
    assert_int_equal(brain.bits[i], 0xc800);
  }
  for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true(half.h_final[i] == -32768);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_each_tensor_alone),
      TEST(test_all_alike),
      TEST(test_random_mixtures),
      TEST(test_all_rules),
      TEST(test_broadcast_gates_are_bitwise),
      TEST(test_float_gates_keep_their_digits),
      TEST(test_long_decode),
      TEST(test_large_states),
      TEST(test_output_overflow),
  };
  return TEST_RUN(tests);
}
