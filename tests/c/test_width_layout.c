/* Where the forward reads and writes with 16-bit tensors: strided views that end at a page that may not be touched, widths that
 * fill no vector, states in either order, workspaces full of NaN. Inputs lie on read-only pages during all calls. */
#include <math.h>

#include "test.h"
#include "width.h"

static const width_layout layouts[] = {
    {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START},
    {{0, 2, 1, 3}, {0, 1, 3, 2}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_END}, /* heads before time; V x K */
    {{0, 1, 2, 3}, {0, 1, 2, 3}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END},
    {{1, 0, 2, 3}, {1, 0, 3, 2}, {1, 0, 9, 2}, {1, 1, 1, 1}, TEST_AT_END},
    {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 0, 1, 0}, {1, -1, 1, 1}, TEST_AT_START},   /* time backwards */
    {{2, 1, 0, 3}, {0, 2, 3, 1}, {2, 3, 1, 5}, {-1, -1, -1, 1}, TEST_AT_START}, /* all backwards */
    {{2, 0, 1, 3}, {0, 1, 3, 2}, {0, 2, 0, 3}, {1, 1, -1, 1}, TEST_AT_END},
};
enum { LAYOUTS = 7, WIDTHS = 9 };

static const int64_t odd[WIDTHS] = {1, 3, 7, 17, 31, 33, 100, 128, 200};

static void test_odd_widths(void **state) {
  (void)state;
  for (int n = 0; n < WIDTHS; n++)
    for (int shift = 0; shift < 3; shift++)
      for (int type = GDN2_F32; type <= GDN2_F16; type++) {
        const void *mark = test_mark();
        width_case c = width_new(200 + (uint64_t)n, 1, 18, 1, 2, odd[n], odd[(n + 2 + 3 * shift) % WIDTHS]);
        width_set_dtypes(&c, (gdn2_dtype)type);
        const width_truth truth = width_oracle(&c);
        const width_result want = width_run(&c, (gdn2_dtype)type);
        width_expect_right(&c, &want, &truth, 1e-6);
        for (int which = 0; which < LAYOUTS; which++) {
          const width_result got = width_run_as(&c, (gdn2_dtype)type, &layouts[which], (gdn2_exec){0});
          width_expect_equal(&c, &got, &want);
        }
        test_release_to(mark);
      }
}

/* All options on, of two batch rows or five sequences, gates per head or in full. */
static void test_options_in_every_layout(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 17, 17, 36, 40, 45};
  for (int type = GDN2_F32; type <= GDN2_F16; type++)
    for (int variable = 0; variable < 2; variable++)
      for (int per_head = 0; per_head < 2; per_head++) {
        const void *mark = test_mark();
        width_case c = width_new(210, variable ? 1 : 2, 47, 2, 6, 37, 21);
        width_make_key_gate(&c, W_G);
        if (variable) width_cut(&c, cu, 5, 211);
        width_make_raw_decay(&c, per_head ? GDN2_DECAY_BOUNDED : GDN2_DECAY_SOFTPLUS, 212);
        width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 213);
        c.l2norm = true;
        c.map = per_head ? GDN2_HEADS_TILED : GDN2_HEADS_GROUPED;
        width_set_dtypes(&c, (gdn2_dtype)type);
        for (int i = W_G; per_head && i <= W_W; i++) width_make_per_head(&c, i);
        if (per_head) width_make_per_head(&c, W_DT);
        const width_truth truth = width_oracle(&c);
        const width_result want = width_run(&c, (gdn2_dtype)type);
        width_expect_right(&c, &want, &truth, 1e-6);
        for (int which = 0; which < LAYOUTS; which++) {
          const width_result got = width_run_as(&c, (gdn2_dtype)type, &layouts[which], (gdn2_exec){0});
          width_expect_equal(&c, &got, &want);
        }
        test_release_to(mark);
      }
}

/* Strides of four zeros are those of the contiguous tensor, of H or HV heads and of N states, as each tensor has. */
static void test_default_strides(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 17, 17, 36, 47};
  static const int64_t none[4] = {0};
  for (int key_gates = 0; key_gates < 4; key_gates++)
    for (int variable = 0; variable < 2; variable++) {
      width_case c = width_new(215, variable ? 1 : 2, 47, 2, 6, 37, 21);
      if (key_gates & 1) width_make_key_gate(&c, W_G);
      if (key_gates & 2) width_make_key_gate(&c, W_B);
      if (variable) width_cut(&c, cu, 4, 216);
      width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 217);
      width_set_dtypes(&c, variable ? GDN2_BF16 : GDN2_F16);
      const width_result want = width_run(&c, GDN2_F16);
      width_call call = width_call_new(&c, GDN2_F16, &width_contiguous);
      gdn2_problem *p = &call.args.problem;
      gdn2_input *const inputs[W_INPUTS] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w, &p->h0, &p->A_log, &p->dt_bias};
      for (int i = 0; i < W_INPUTS; i++) memcpy(inputs[i]->stride, none, sizeof none);
      memcpy(call.args.o.stride, none, sizeof none);
      memcpy(call.args.h_final.stride, none, sizeof none);
      const width_result got = width_call_run(&c, &call);
      width_expect_equal(&c, &got, &want);
    }
}

/* q, k and v as slices of one 16-bit row per token, as a projection leaves them. */
static void test_slices_of_one_row(void **state) {
  (void)state;
  width_case c = width_new(220, 2, 19, 2, 4, 9, 7);
  for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, GDN2_BF16);
  const width_result want = width_run(&c, GDN2_BF16);
  const int64_t row = 2 * 2 * 9 + 4 * 7 + 1;
  const tensor t = {"qkv", {1, 2, 19, row}};
  const width_buffer fused = width_buffer_new(t, GDN2_BF16, &width_contiguous, false, false);
  double *all = test_doubles(tensor_count(&t));
  for (int64_t n = 0; n < 2 * 19; n++) {
    memcpy(all + n * row, c.in[W_Q] + n * 18, 18 * sizeof *all);
    memcpy(all + n * row + 18, c.in[W_K] + n * 18, 18 * sizeof *all);
    memcpy(all + n * row + 36, c.in[W_V] + n * 28, 28 * sizeof *all);
  }
  width_buffer_store(&fused, all);
  width_call call = width_call_new(&c, GDN2_BF16, &width_contiguous);
  gdn2_problem *p = &call.args.problem;
  const uint16_t *base = (const uint16_t *)(const void *)fused.first;
  p->q = (gdn2_input){base, GDN2_BF16, {19 * row, row, 9, 1}};
  p->k = (gdn2_input){base + 18, GDN2_BF16, {19 * row, row, 9, 1}};
  p->v = (gdn2_input){base + 36, GDN2_BF16, {19 * row, row, 7, 1}};
  const width_result got = width_call_run(&c, &call);
  width_expect_equal(&c, &got, &want);
}

/* A stride of 0 over batch, time or head broadcasts a 16-bit input. */
static void test_broadcast_axes(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++)
    for (int i = W_Q; i <= W_W; i++)
      for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
        const void *mark = test_mark();
        width_case c = width_new(230, 2, 19, 3, 3, 9, 6);
        width_set_dtypes(&c, (gdn2_dtype)type);
        const tensor t = width_tensor(&c, i);
        for (int64_t b = 0; b < t.shape[0]; b++)
          for (int64_t s = 0; s < t.shape[1]; s++)
            for (int64_t h = 0; h < t.shape[2]; h++)
              memmove(width_row(&c, i, b, s, h), width_row(&c, i, axis == 0 ? 0 : b, axis == 1 ? 0 : s, axis == 2 ? 0 : h),
                      (size_t)t.shape[3] * sizeof(double));
        const width_result want = width_run(&c, GDN2_F32);
        width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
        gdn2_problem *p = &call.args.problem;
        gdn2_input *const inputs[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w};
        inputs[i]->stride[axis] = 0;
        const width_result got = width_call_run(&c, &call);
        width_expect_equal(&c, &got, &want);
        test_release_to(mark);
      }
}

/* ---- States ---- */

/* Prefill into V x K, decode from it, and the other way; a state read in the wrong order is another state, K = V too. */
static void test_state_orders(void **state) {
  (void)state;
  const width_layout by_value = layouts[1];
  const int64_t shapes[][2] = {{13, 21}, {24, 24}};
  for (int n = 0; n < 2; n++)
    for (int first = 0; first < 2; first++) {
      const width_case c = width_new(240, 1, 32, 2, 4, shapes[n][0], shapes[n][1]);
      const width_result want = width_run(&c, GDN2_F32);
      width_case head = c, tail = c;
      head.T = tail.T = 16;
      for (int i = W_Q; i <= W_W; i++) tail.in[i] = width_row(&c, i, 0, 16, 0);
      width_call prefill = width_call_new(&head, GDN2_F32, first ? &by_value : &width_contiguous);
      width_call decode = width_call_new(&tail, GDN2_F32, first ? &width_contiguous : &by_value);
      width_call_run(&head, &prefill);
      decode.args.problem.h0 = width_input(&prefill.h_final);
      const width_result got = width_call_run(&tail, &decode);
      const tensor o = width_o_tensor(&tail), h = width_h_tensor(&c);
      expect_same_bits(&o, got.o, want.o + 16 * c.HV * c.V);
      expect_same_bits(&h, got.h_final, want.h_final);
      const int64_t swapped = decode.args.problem.h0.stride[2];
      if (c.K != c.V) continue;
      decode.args.problem.h0.stride[2] = decode.args.problem.h0.stride[3];
      decode.args.problem.h0.stride[3] = swapped;
      const width_result wrong = width_call_run(&tail, &decode);
      assert_true(memcmp(wrong.h_final, want.h_final, tensor_count(&h) * sizeof(float)) != 0);
    }
}

/* h_final in place of h0 with sequences, V x K, odd widths. */
static void test_state_in_place(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 0, 20, 33};
  width_case c = width_new(250, 1, 35, 2, 4, 13, 9);
  width_cut(&c, cu, 3, 251);
  const width_result want = width_run(&c, GDN2_F32);
  for (int which = 0; which < LAYOUTS; which++) {
    width_call call = width_call_new(&c, GDN2_F32, &layouts[which]);
    width_buffer_store(&call.h_final, c.in[W_H0]);
    call.args.problem.h0 = width_input(&call.h_final);
    const width_result got = width_call_run(&c, &call);
    width_expect_equal(&c, &got, &want);
  }
}

/* ---- Workspaces and absent outputs ---- */

static void test_exact_workspace(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 3, 30, 30, 61};
  width_case c = width_new(260, 1, 64, 2, 8, 33, 100);
  width_cut(&c, cu, 4, 261);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 262);
  c.l2norm = true;
  width_set_dtypes(&c, GDN2_BF16);
  const width_result want = width_run(&c, GDN2_BF16);
  for (int threads = 1; threads <= 4; threads++) {
    width_call call = width_call_new(&c, GDN2_BF16, &width_contiguous);
    size_t bytes = 0;
    call.args.exec.threads = threads;
    assert_int_equal(gdn2_forward_workspace(&call.args, &bytes), GDN2_OK);
    call.args.exec.workspace = test_workspace(bytes);
    call.args.exec.workspace_bytes = bytes;
    const width_result got = width_call_run(&c, &call);
    width_expect_equal(&c, &got, &want);
  }
}

static void test_absent_outputs(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 20, 33};
  width_case c = width_new(270, 1, 35, 2, 4, 13, 9);
  width_cut(&c, cu, 2, 271);
  const width_result want = width_run(&c, GDN2_F16);
  const tensor h = width_h_tensor(&c);
  for (int absent = 0; absent < 2; absent++) {
    width_call call = width_call_new(&c, GDN2_F16, &width_contiguous);
    (absent ? &call.args.h_final : &call.args.o)->data = NULL;
    assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
    const tensor o = width_o_tensor(&c);
    float *values = test_floats(tensor_count(absent ? &o : &h));
    width_buffer_load(absent ? &call.o : &call.h_final, values, NULL);
    expect_same_bits(absent ? &o : &h, values, absent ? want.o : want.h_final);
    width_buffer_expect_untouched(absent ? &call.h_final : &call.o);
  }
}

/* Nothing to do is no error: no batch row, no token, no head, neither output wanted. */
static void test_nothing_to_do(void **state) {
  (void)state;
  const int64_t empty[][4] = {{0, 5, 2, 4}, {2, 0, 2, 4}, {2, 5, 0, 0}, {0, 0, 0, 0}};
  for (int n = 0; n < 4; n++) {
    width_case c = width_new(280, empty[n][0], empty[n][1], empty[n][2], empty[n][3], 9, 7);
    width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 281);
    width_set_dtypes(&c, GDN2_F16);
    const width_result got = width_run(&c, GDN2_BF16);
    for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true((double)got.h_final[i] == c.in[W_H0][i]);
  }
  const width_case c = width_new(282, 2, 5, 2, 4, 9, 7);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  call.args.o.data = call.args.h_final.data = NULL;
  assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_odd_widths),        TEST(test_options_in_every_layout), TEST(test_default_strides),
      TEST(test_slices_of_one_row), TEST(test_broadcast_axes),          TEST(test_state_orders),
      TEST(test_state_in_place),    TEST(test_exact_workspace),         TEST(test_absent_outputs),
      TEST(test_nothing_to_do),
  };
  return TEST_RUN(tests);
}
