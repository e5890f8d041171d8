/* Where the library reads and writes: strided tensors with poisoned gaps, poisoned workspaces, strides beyond 2^31, states in
 * either order, gradients that nobody asked for. (Every array of these tests lies between guard pages, and every input on pages
 * that are read-only during the calls: see support/.) */
#include <math.h>
#include <sys/mman.h>

#include "exact.h"
#include "test.h"
#include "view.h"

/* ---- Strided tensors ---- */

typedef struct layout {
  const char *name;
  int order[4], sign[4];
  int64_t padding[4];
} layout;

static const layout token_layouts[] = {
    {"heads before time", {0, 2, 1, 3}, {1, 1, 1, 1}, {0, 0, 0, 0}},
    {"padded", {0, 1, 2, 3}, {1, 1, 1, 1}, {3, 5, 7, 2}},
    {"time first, padded", {1, 0, 2, 3}, {1, 1, 1, 1}, {1, 0, 9, 16}},
    {"time backwards", {0, 1, 2, 3}, {1, -1, 1, 1}, {0, 0, 1, 0}},
    {"all backwards", {2, 1, 0, 3}, {-1, -1, -1, 1}, {2, 3, 1, 5}},
    {"heads first, backwards", {2, 0, 1, 3}, {1, 1, -1, 1}, {0, 2, 0, 3}},
};
static const layout state_layouts[] = {
    {"V x K", {0, 1, 3, 2}, {1, 1, 1, 1}, {0, 0, 0, 0}},
    {"padded", {0, 1, 2, 3}, {1, 1, 1, 1}, {4, 3, 2, 1}},
    {"V x K, padded", {1, 0, 3, 2}, {1, 1, 1, 1}, {1, 2, 3, 4}},
    {"backwards", {0, 1, 2, 3}, {-1, 1, -1, 1}, {0, 1, 0, 1}},
    {"all backwards, heads innermost", {0, 2, 3, 1}, {-1, -1, -1, -1}, {0, 2, 1, 1}},
    {"V backwards x K", {0, 1, 3, 2}, {1, 1, 1, -1}, {0, 0, 1, 0}},
};
enum { LAYOUTS = 6 };

static view laid_out(const tensor *t, bool is_state, int which) {
  const layout *how = (is_state ? state_layouts : token_layouts) + which;
  int64_t stride[4];
  view_strides(t, how->order, how->padding, how->sign, stride);
  return view_new(t, stride);
}

typedef struct views {
  view in[INPUTS], out[OUTPUTS];
} views;

static views lay_out_all(const exact_case *c, int which) {
  views x;
  for (int i = 0; i < INPUTS; i++) {
    const tensor t = input_tensor(c, i);
    x.in[i] = laid_out(&t, i == IN_H0 || i == IN_DHF, which);
    view_store(&x.in[i], c->in[i]);
    test_lock(x.in[i].base);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    const tensor t = output_tensor(c, i);
    x.out[i] = laid_out(&t, i == OUT_HF || i == OUT_DH0, (which + 1) % LAYOUTS);
  }
  return x;
}

static gdn2_problem strided_problem(const exact_case *c, const views *x) {
  return (gdn2_problem){.B = c->B,
                        .T = c->T,
                        .H = c->H,
                        .K = c->K,
                        .V = c->V,
                        .q = view_input(&x->in[IN_Q]),
                        .k = view_input(&x->in[IN_K]),
                        .v = view_input(&x->in[IN_V]),
                        .g = view_input(&x->in[IN_G]),
                        .b = view_input(&x->in[IN_B]),
                        .w = view_input(&x->in[IN_W]),
                        .h0 = view_input(&x->in[IN_H0])};
}

static void run_strided(const exact_case *c, const views *x) {
  const gdn2_forward_args forward = {.struct_size = sizeof forward,
                                     .problem = strided_problem(c, x),
                                     .o = view_output(&x->out[OUT_O]),
                                     .h_final = view_output(&x->out[OUT_HF])};
  const gdn2_backward_args backward = {.struct_size = sizeof backward,
                                       .problem = strided_problem(c, x),
                                       .d_o = view_input(&x->in[IN_DO]),
                                       .dh_final = view_input(&x->in[IN_DHF]),
                                       .dq = view_output(&x->out[OUT_DQ]),
                                       .dk = view_output(&x->out[OUT_DK]),
                                       .dv = view_output(&x->out[OUT_DV]),
                                       .dg = view_output(&x->out[OUT_DG]),
                                       .db = view_output(&x->out[OUT_DB]),
                                       .dw = view_output(&x->out[OUT_DW]),
                                       .dh0 = view_output(&x->out[OUT_DH0])};
  assert_int_equal(gdn2_forward(&forward), GDN2_OK);
  assert_int_equal(gdn2_backward(&backward), GDN2_OK);
}

/* Each layout gives the bits of the contiguous call, and writes no element that it does not address. */
static void test_layouts(void **state) {
  (void)state;
  const int64_t shapes[][5] = {{2, 37, 3, 5, 7}, {3, 18, 2, 33, 16}, {1, 1, 1, 1, 1}, {2, 2, 2, 16, 17}, {1, 19, 2, 24, 24}};
  for (int n = 0; n < 5; n++)
    for (int which = 0; which < LAYOUTS; which++) {
      const int64_t *s = shapes[n];
      const exact_case c = case_trained(60 + (uint64_t)n, s[0], s[1], s[2], s[3], s[4]);
      const results want = engine_run(&c);
      const views x = lay_out_all(&c, which);
      run_strided(&c, &x);
      for (int i = 0; i < OUTPUTS; i++) {
        float *got = test_floats(output_count(&c, i));
        view_load(&x.out[i], got);
        expect_same_bits(&x.out[i].t, got, want.out[i]);
        view_expect_gaps(&x.out[i]);
      }
    }
}

/* A stride of 0 over batch, time or head broadcasts an input. */
static void test_broadcast_axes(void **state) {
  (void)state;
  for (int axis = 0; axis < 3; axis++)
    for (int i = 0; i < IN_H0; i++) {
      exact_case c = case_trained(65, 2, 19, 3, 9, 6);
      const tensor t = input_tensor(&c, i);
      const int64_t width = t.shape[3];
      for (int64_t b = 0; b < c.B; b++)
        for (int64_t s = 0; s < c.T; s++)
          for (int64_t h = 0; h < c.H; h++)
            memcpy(case_row(&c, i, b, s, h), case_row(&c, i, axis == 0 ? 0 : b, axis == 1 ? 0 : s, axis == 2 ? 0 : h),
                   (size_t)width * sizeof(float));
      const results want = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0}), got = results_new(&c, OUT_FORWARD);
      gdn2_forward_args args = forward_args(&c, &got);
      gdn2_input *inputs[] = {&args.problem.q, &args.problem.k, &args.problem.v,
                              &args.problem.g, &args.problem.b, &args.problem.w};
      const int64_t strides[4] = {c.T * c.H * width, c.H * width, width, 1};
      for (int a = 0; a < 4; a++) inputs[i]->stride[a] = a == axis ? 0 : strides[a];
      assert_int_equal(gdn2_forward(&args), GDN2_OK);
      expect_equal(&c, &got, &want);
    }
}

/* One initial state for all heads, or one row of it, or one column: strides of 0 over batch and head, keys, or values. */
static void test_broadcast_h0(void **state) {
  (void)state;
  const int64_t strides[][4] = {{0, 0, 6, 1}, {54 * 3, 54, 0, 1}, {54 * 3, 54, 1, 0}, {0, 0, 0, 1}};
  for (int n = 0; n < 4; n++) {
    exact_case c = case_trained(66, 2, 19, 3, 9, 6);
    const exact_case given = case_copy(&c);
    for (int64_t b = 0; b < c.B; b++)
      for (int64_t h = 0; h < c.H; h++)
        for (int64_t d = 0; d < c.K; d++)
          for (int64_t e = 0; e < c.V; e++)
            c.in[IN_H0][((b * c.H + h) * c.K + d) * c.V + e] =
                given.in[IN_H0][b * strides[n][0] + h * strides[n][1] + d * strides[n][2] + e * strides[n][3]];
    const results want = engine_run(&c), got = results_new(&c, OUT_ALL);
    gdn2_forward_args forward = forward_args(&given, &got);
    gdn2_backward_args backward = backward_args(&given, &got);
    memcpy(forward.problem.h0.stride, strides[n], sizeof strides[n]);
    memcpy(backward.problem.h0.stride, strides[n], sizeof strides[n]);
    assert_int_equal(gdn2_forward(&forward), GDN2_OK);
    assert_int_equal(gdn2_backward(&backward), GDN2_OK);
    expect_equal(&c, &got, &want);
  }
}

/* h_final may be h0 itself. */
static void test_state_in_place(void **state) {
  (void)state;
  for (int64_t T = 0; T < 40; T += 13) {
    const exact_case c = case_trained(67, 2, T, 3, 20, 12);
    const results want = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0}), got = results_new(&c, 1u << OUT_O);
    gdn2_forward_args args = forward_args(&c, &got);
    args.h_final.data = c.in[IN_H0];
    assert_int_equal(gdn2_forward(&args), GDN2_OK);
    const tensor o = output_tensor(&c, OUT_O), h = output_tensor(&c, OUT_HF);
    expect_same_bits(&o, got.out[OUT_O], want.out[OUT_O]);
    expect_same_bits(&h, c.in[IN_H0], want.out[OUT_HF]);
  }
}

/* ---- Workspaces ---- */

static size_t workspace_of(const exact_case *c, bool backward, int threads) {
  const results r = results_new(c, OUT_ALL);
  gdn2_forward_args f = forward_args(c, &r);
  gdn2_backward_args b = backward_args(c, &r);
  f.exec.threads = b.exec.threads = threads;
  size_t bytes = SIZE_MAX;
  assert_int_equal(backward ? gdn2_backward_workspace(&b, &bytes) : gdn2_forward_workspace(&f, &bytes), GDN2_OK);
  return bytes;
}

/* A workspace of exactly the size asked for, full of NaN, before a guard page: the same bits as a call without one. */
static void test_exact_workspace(void **state) {
  (void)state;
  const int64_t shapes[][5] = {{1, 1, 1, 1, 1}, {2, 37, 3, 5, 7}, {1, 130, 2, 100, 36}, {3, 300, 1, 16, 256}, {1, 0, 2, 8, 8}};
  for (int n = 0; n < 5; n++)
    for (int threads = 1; threads <= 3; threads++) {
      const int64_t *s = shapes[n];
      exact_case c = case_trained(70 + (uint64_t)n, s[0], s[1], s[2], s[3], s[4]);
      for (int i = IN_G; threads == 2 && i <= IN_W; i++) case_make_per_head(&c, i);
      const results want = engine_run(&c);
      const size_t forward = workspace_of(&c, false, threads), backward = workspace_of(&c, true, threads);
      const results f = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){threads, GDN2_ISA_AUTO, test_workspace(forward), forward});
      const results b =
          engine_run_some(&c, OUT_BACKWARD, (gdn2_exec){threads, GDN2_ISA_AUTO, test_workspace(backward), backward});
      expect_equal(&c, &f, &want);
      expect_equal(&c, &b, &want);
    }
}

/* Only as much of a larger workspace is used as was asked for. */
static void test_large_workspace(void **state) {
  (void)state;
  const exact_case c = case_trained(75, 2, 50, 2, 24, 20);
  for (int backward = 0; backward < 2; backward++) {
    const size_t bytes = workspace_of(&c, backward, 2), more = 4096;
    uint32_t *space = test_workspace(bytes + more);
    engine_run_some(&c, backward ? OUT_BACKWARD : OUT_FORWARD, (gdn2_exec){2, GDN2_ISA_AUTO, space, bytes + more});
    for (size_t i = (bytes + 3) / 4; i < (bytes + more) / 4; i++) assert_int_equal(space[i], TEST_POISON);
  }
}

/* What an earlier call left in the workspace, and what shape it had, does not matter. */
static void test_reused_workspace(void **state) {
  (void)state;
  const int64_t shapes[][5] = {{2, 37, 3, 5, 7}, {1, 64, 2, 100, 36}, {1, 3, 5, 64, 128}, {3, 90, 1, 16, 8}};
  const size_t bytes = 64u << 20;
  void *space = test_workspace(bytes);
  for (int n = 0; n < 24; n++) {
    const void *mark = test_mark();
    const int64_t *s = shapes[(n * 7 + n / 4) % 4];
    const exact_case c = case_trained(80 + (uint64_t)(n % 5), s[0], s[1], s[2], s[3], s[4]);
    const results want = engine_run(&c), got = engine_run_some(&c, OUT_ALL, (gdn2_exec){1 + n % 3, GDN2_ISA_AUTO, space, bytes});
    expect_equal(&c, &got, &want);
    test_release_to(mark);
  }
}

/* The forward's does not depend on T; the backward's grows by a state every 128 tokens. */
static void test_workspace_growth(void **state) {
  (void)state;
  size_t bytes[2][3];
  const int64_t lengths[] = {1024, 16384, 262144};
  for (int n = 0; n < 3; n++)
    for (int backward = 0; backward < 2; backward++) {
      const void *mark = test_mark();
      exact_case c = case_trained(90, 1, 1, 1, 64, 64);
      c.T = lengths[n];
      const results r = {
          {c.in[IN_V], c.in[IN_H0], c.in[IN_Q], c.in[IN_K], c.in[IN_V], c.in[IN_G], c.in[IN_B], c.in[IN_W], c.in[IN_H0]}};
      gdn2_forward_args f = forward_args(&c, &r);
      gdn2_backward_args b = backward_args(&c, &r);
      f.exec.threads = b.exec.threads = 1;
      assert_int_equal(backward ? gdn2_backward_workspace(&b, &bytes[1][n]) : gdn2_forward_workspace(&f, &bytes[0][n]), GDN2_OK);
      test_release_to(mark);
    }
  assert_true(bytes[0][0] == bytes[0][1] && bytes[0][1] == bytes[0][2]);
  assert_true(bytes[1][1] > bytes[1][0] && bytes[1][2] > bytes[1][1]);
  const size_t state_bytes = sizeof(float) * 64 * 64;
  assert_true(bytes[1][1] - bytes[1][0] == (16384 - 1024) / 128 * state_bytes);
  assert_true(bytes[1][2] - bytes[1][1] == (262144 - 16384) / 128 * state_bytes);
}

/* ---- Strides beyond 2^31 elements, on address space without memory behind it ---- */

static const int64_t far = ((int64_t)1 << 31) + 64;

/* A tensor whose axis `axis` (of two elements) has the stride `far`. The pages between are never touched. */
static view far_view(const tensor *t, int axis) {
  view x = {.t = *t, .span = (size_t)(far + (int64_t)tensor_count(t))};
  int64_t step = 1;
  for (int a = 3; a >= 0; a--) {
    x.stride[a] = a == axis ? far : step;
    step *= a == axis ? 1 : t->shape[a];
  }
  x.base = mmap(NULL, x.span * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (x.base == MAP_FAILED) skip();
  x.first = x.base;
  return x;
}

static void expect_far(int axis) {
  const exact_case c = case_trained(95, 2, 2, 2, 9, 8);
  const results want = engine_run(&c);
  views x;
  for (int i = 0; i < INPUTS; i++) {
    const tensor t = input_tensor(&c, i);
    const bool is_state = i == IN_H0 || i == IN_DHF;
    x.in[i] = far_view(&t, is_state ? axis > 0 : axis);
    view_store(&x.in[i], c.in[i]);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    const tensor t = output_tensor(&c, i);
    const bool is_state = i == OUT_HF || i == OUT_DH0;
    x.out[i] = far_view(&t, is_state ? axis > 0 : axis);
  }
  run_strided(&c, &x);
  for (int i = 0; i < OUTPUTS; i++) {
    float *got = test_floats(output_count(&c, i));
    view_load(&x.out[i], got);
    expect_same_bits(&x.out[i].t, got, want.out[i]);
  }
  for (int i = 0; i < INPUTS; i++) munmap(x.in[i].base, x.in[i].span * sizeof(float));
  for (int i = 0; i < OUTPUTS; i++) munmap(x.out[i].base, x.out[i].span * sizeof(float));
}

static void test_far_batch_rows(void **state) {
  (void)state;
  expect_far(0);
}

static void test_far_tokens(void **state) {
  (void)state;
  expect_far(1);
}

static void test_far_heads(void **state) {
  (void)state;
  expect_far(2);
}

/* ---- Inputs ---- */

/* The bits of every input are what they were. (They also lie on read-only pages; this would see a write through another mapping.)
 */
static void test_inputs_keep_their_bits(void **state) {
  (void)state;
  const exact_case c = case_trained(96, 2, 70, 2, 33, 20);
  uint64_t before = TEST_HASH, after = TEST_HASH;
  for (int i = 0; i < INPUTS; i++) before = hash_bits(before, c.in[i], input_count(&c, i));
  engine_run(&c);
  for (int i = 0; i < INPUTS; i++) after = hash_bits(after, c.in[i], input_count(&c, i));
  assert_true(before == after);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_layouts),         TEST(test_broadcast_axes),  TEST(test_broadcast_h0),     TEST(test_state_in_place),
      TEST(test_exact_workspace), TEST(test_large_workspace), TEST(test_reused_workspace), TEST(test_workspace_growth),
      TEST(test_far_batch_rows),  TEST(test_far_tokens),      TEST(test_far_heads),        TEST(test_inputs_keep_their_bits),
  };
  return TEST_RUN(tests);
}
