/* Thousands of tokens one by one: float32 gates and states beside 16-bit values, narrow states, states that fade away. */
#include <float.h>
#include <math.h>

#include "base/flush.h"
#include "step.h"
#include "test.h"

/* Token by token, the state handed on in place; o of all tokens and the state in the result. */
static width_result decode(const width_case *c, gdn2_dtype o_dtype, const step_how *how) {
  step_call call = step_call_new(c, o_dtype, how);
  gdn2_problem *p = &call.args.problem;
  gdn2_input *const tokens[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w};
  char *const o = call.args.o.data;
  p->T = 1;
  for (int64_t t = 0; t < c->T; t++) {
    assert_int_equal(gdn2_step(&call.args), GDN2_OK);
    for (int i = W_Q; i <= W_W; i++)
      if (tokens[i]->data)
        tokens[i]->data = (const char *)tokens[i]->data + tokens[i]->stride[1] * (tokens[i]->dtype == GDN2_F32 ? 4 : 2);
    call.args.o.data = o + (t + 1) * call.args.o.stride[1] * (o_dtype == GDN2_F32 ? 4 : 2);
  }
  p->T = 0;
  call.args.o.data = o;
  for (int i = W_Q; i <= W_W; i++) tokens[i]->data = c->in[i] ? call.inputs.in[i].first : NULL;
  return step_call_run(c, &call, how);
}

static width_case drifting(int64_t T) {
  width_case c = width_new(1000, 1, T, 1, 2, 16, 12);
  rng r = {1001};
  for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, GDN2_BF16);
  width_own(&c, W_B), width_own(&c, W_G);
  for (size_t i = 0; i < width_count(&c, W_B); i++) c.in[W_B][i] = width_round(GDN2_F32, rng_uniform(&r, 0.98, 1));
  for (size_t i = 0; i < width_count(&c, W_G); i++) c.in[W_G][i] = width_round(GDN2_F32, -rng_uniform(&r, 1e-4, 1e-2));
  return c;
}

/* 4096 tokens with float32 gates near 1 beside bfloat16 values; gates rounded to bfloat16 would be seen. */
static void test_gates_keep_their_digits(void **state) {
  (void)state;
  const width_case c = drifting(4096);
  const width_truth want = width_oracle(&c);
  for (int l = 0; l < 2; l++) {
    const step_how how = {.layout = l ? &step_rows : NULL};
    const width_result got = decode(&c, GDN2_F32, &how);
    step_expect_right(&c, &got, &want, GDN2_F32, 2e-6);
  }
  width_case rounded = c;
  width_set_dtype(&rounded, W_B, GDN2_BF16);
  const step_how how = {.dtype = GDN2_F32};
  const width_result coarse = decode(&rounded, GDN2_F32, &how);
  assert_true(width_error(&c, &coarse, &want) > 5e-4);
}

/* 2000 tokens: a float32 state is that of prefill; a bfloat16 or float16 state drifts by its own rounding, once a token. */
static void test_narrow_states(void **state) {
  (void)state;
  static const double bounds[] = {2e-6, 0.02, 0.0025}; /* a few units of the type's last place */
  width_case c = drifting(2000);
  width_fill(&c, W_H0, 0);
  const width_result prefill = width_run(&c, GDN2_BF16);
  const tensor h = width_h_tensor(&c);
  double *want = test_doubles(tensor_count(&h)), errors[3];
  for (size_t i = 0; i < tensor_count(&h); i++) want[i] = (double)prefill.h_final[i];
  for (int held = GDN2_F32; held <= GDN2_F16; held++) {
    const step_how how = {.dtype = (gdn2_dtype)held};
    const width_result got = decode(&c, GDN2_BF16, &how);
    errors[held] = relative_error(got.h_final, want, tensor_count(&h));
    if (getenv("GDN2_TEST_VERBOSE")) print_message("%s: %.2e\n", width_dtype_name((gdn2_dtype)held), errors[held]);
    assert_true(errors[held] < bounds[held]);
  }
  assert_true(errors[GDN2_BF16] > errors[GDN2_F16] && errors[GDN2_F16] > 10 * errors[GDN2_F32]);
}

/* 65536 e^-4 = 1200.33: a float32 state beyond float16's range lives through 16-bit tensors, and so does 2^-40. */
static void test_large_and_small_states(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++)
    for (int small = 0; small < 2; small++) {
      width_case c = width_new(1010, 1, 1, 1, 2, 32, 24);
      width_set_dtypes(&c, (gdn2_dtype)type);
      width_fill(&c, W_K, 0), width_fill(&c, W_V, 0), width_fill(&c, W_G, -4);
      width_fill(&c, W_H0, small ? 0x1p-40 : 65536);
      const step_how how = {.layout = small ? &step_rows : NULL};
      const width_result got = step_run(&c, GDN2_F32, &how);
      const double want = (small ? 0x1p-40 : 65536) * exp(-4);
      assert_true(small || fabs(want - 1200.33) < 0.01);
      for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true(fabs((double)got.h_final[i] / want - 1) < 3e-7);
    }
}

/* ---- States that fade away ---- */

static width_case fading(int64_t K, int64_t V) {
  width_case c = width_new(1020, 1, 200, 1, 2, K, V);
  width_fill(&c, W_G, -1);
  width_own(&c, W_V);
  for (int64_t i = c.HV * c.V; i < c.T * c.HV * c.V; i++) c.in[W_V][i] = 0;
  width_fill(&c, W_B, 0);
  return c;
}

/* The state passes the smallest normal number. Whatever the caller's mode, the bits are the same, the mode is as before, and no
 * number is further than 1e-37 from the float64 loop. */
static void test_subnormal_numbers(void **state) {
  (void)state;
  const width_case c = fading(24, 20);
  const width_truth want = width_oracle(&c);
  for (int l = 0; l < 2; l++) {
    const step_how how = {.layout = l ? &step_rows : NULL};
    const width_result plain = decode(&c, GDN2_F32, &how);
    assert_true(test_halved(FLT_MIN) > 0); /* the caller's mode: subnormal numbers are kept */
    const uint64_t mode = gdn2_flush_begin(1);
    const float in_mode = test_halved(FLT_MIN);
    const width_result flushed = decode(&c, GDN2_F32, &how);
    const float still_in_mode = test_halved(FLT_MIN);
    gdn2_flush_end(mode);
    assert_true(test_halved(FLT_MIN) > 0 && memcmp(&in_mode, &still_in_mode, sizeof in_mode) == 0);
    assert_true(in_mode == 0 || !TEST_FLUSHES);
    for (size_t i = 0; i < width_count(&c, W_H0); i++)
      assert_true(plain.h_final[i] == 0 || fabsf(plain.h_final[i]) >= FLT_MIN || !TEST_FLUSHES);
    width_expect_equal(&c, &flushed, &plain);
    int faded = 0;
    for (int64_t i = 0; i < c.T * c.HV * c.V; i++) {
      /* One rounding of e^-1 is the same in every token, and adds up. */
      const double t = (double)(i / (c.HV * c.V));
      assert_true(fabs((double)plain.o[i] - want.o[i]) < 1e-7 * (t + 10) * exp(-t) + 1e-37);
      faded += want.o[i] != 0 && fabs(want.o[i]) < (double)FLT_MIN;
    }
    assert_true(faded > 100);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_gates_keep_their_digits),
      TEST(test_narrow_states),
      TEST(test_large_and_small_states),
      TEST(test_subnormal_numbers),
  };
  return TEST_RUN(tests);
}
