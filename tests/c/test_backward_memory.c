/* Memory and threads of the backward with its options: no bit depends on them. */
#include <math.h>

#include "gradient.h"
#include "test.h"

/* Grouped heads, raw inputs; packed: sequences of several lengths. */
static gradient_case large(bool is_packed, int64_t T) {
  static const int64_t cu[] = {0, 17, 30, 30, 400};
  return gradient_with_options(300, is_packed ? 1 : 3, T, 8, 7, is_packed ? cu : NULL, 4);
}

static size_t bytes_of(const gradient_case *x, int64_t every, int threads) {
  const void *mark = test_mark();
  gradient_call call = gradient_call_new(x, GDN2_F32, &width_contiguous);
  size_t bytes = 0;
  call.args.checkpoint_every = every;
  call.args.exec.threads = threads;
  assert_int_equal(gdn2_backward_workspace(&call.args, &bytes), GDN2_OK);
  test_release_to(mark);
  return bytes;
}

/* With a workspace of exactly the bytes that are named, full of NaN; and nothing written with one byte less. */
static gradients run_with(const gradient_case *x, int64_t every, int threads) {
  gradient_call call = gradient_call_new(x, GDN2_F32, &width_contiguous);
  const size_t bytes = bytes_of(x, every, threads);
  call.args.checkpoint_every = every;
  call.args.exec = (gdn2_exec){threads, GDN2_ISA_AUTO, test_workspace(bytes), bytes - 1};
  assert_int_equal(gdn2_backward(&call.args), GDN2_ERR_WORKSPACE);
  for (int i = 0; i < GRADIENTS; i++)
    if (gradient_has(x, i)) width_buffer_expect_untouched(&call.out[i]);
  call.args.exec.workspace_bytes = bytes;
  return gradient_call_run(x, &call);
}

static void test_any_number_of_states(void **state) {
  (void)state;
  const int64_t every[] = {1, 2, 3, 7, 8, 13, 24, 25, 1000, INT64_MAX};
  for (int is_packed = 0; is_packed < 2; is_packed++) {
    const gradient_case x = large(is_packed, 410);
    const gradients want = run_with(&x, 0, 1);
    for (size_t n = 0; n < sizeof every / sizeof *every; n++) {
      const gradients got = run_with(&x, every[n], 1 + (int)n % 3);
      gradient_expect_equal(&x, &got, &want);
    }
  }
}

/* The bytes: the states of both heads go as 1/N, the records of a segment as N; beyond the sequence, nothing changes. The states
 * are those of the heads that a thread walks, so that more threads have no more of them. */
static void test_bytes(void **state) {
  (void)state;
  width_case c = width_new(310, 1, 4096, 2, 2, 64, 64);
  gradient_case x = gradient_of(c, 311);
  const size_t head = (size_t)64 * 64 * sizeof(float), kept = 2 * head, all = bytes_of(&x, 1, 1), two = bytes_of(&x, 2, 1);
  const size_t standard = bytes_of(&x, 0, 1), none = bytes_of(&x, 256, 1);
  assert_true(all > 256 * kept && all < 256 * kept + 400000);
  assert_true(two < all && two > 128 * kept);
  assert_true(standard < two && standard < none);
  assert_true(none > 256 * 3 * head && none == bytes_of(&x, 257, 1) && none == bytes_of(&x, INT64_MAX, 1));
  assert_true(standard < (4096 / 128) * kept + ((size_t)4 << 20));
  const size_t threads = (size_t)gdn2_threads(2); /* 1 without OpenMP */
  assert_true(bytes_of(&x, 0, 2) < (4096 / 128) * kept + threads * ((size_t)4 << 20));
  assert_true(bytes_of(&x, 0, 2) == bytes_of(&x, 0, 7));
  x.wanted = 1u << D_V;
  assert_true(bytes_of(&x, 0, 1) <= standard);
}

/* A negative number is refused, as are gradients of parameters that there are none of. */
static void expect_refused(gradient_call *call, const char *word) {
  size_t bytes = 77;
  assert_int_equal(gdn2_backward(&call->args), GDN2_ERR_ARGUMENT);
  if (!strstr(gdn2_last_error(), word)) fail_msg("the sentence does not name %s: \"%s\"", word, gdn2_last_error());
  assert_int_equal(gdn2_backward_workspace(&call->args, &bytes), GDN2_ERR_ARGUMENT);
  assert_int_equal(bytes, 77);
  for (int i = 0; i < GRADIENTS; i++)
    if (call->out[i].base) width_buffer_expect_untouched(&call->out[i]);
}

static void test_refused(void **state) {
  (void)state;
  const gradient_case x = large(false, 20);
  gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
  call.args.checkpoint_every = -1;
  expect_refused(&call, "checkpoint_every is -1");
  call.args.checkpoint_every = 1;
  call.args.problem.T = (int64_t)1 << 45; /* of one token that repeats */
  gdn2_input *const tokens[] = {&call.args.problem.q, &call.args.problem.k, &call.args.problem.v, &call.args.problem.g,
                                &call.args.problem.b, &call.args.problem.w, &call.args.d_o};
  for (int i = 0; i < 7; i++) tokens[i]->stride[0] = tokens[i]->stride[1] = 0;
  gdn2_backward_args endless = call.args;
  endless.dq = endless.dk = endless.dv = endless.dg = endless.db = endless.dw = (gdn2_output){.data = NULL};
  size_t bytes = 77;
  assert_int_equal(gdn2_backward(&endless), GDN2_ERR_MEMORY);
  assert_int_equal(gdn2_backward_workspace(&endless, &bytes), GDN2_ERR_MEMORY);
  assert_true(bytes == 77 && strstr(gdn2_last_error(), "checkpoint_every is 1"));
  call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
  const gdn2_problem raw = call.args.problem;
  call.args.problem.decay = GDN2_DECAY_LOG;
  call.args.problem.lower_bound = 0;
  call.args.problem.A_log.data = call.args.problem.dt_bias.data = NULL;
  expect_refused(&call, "dA_log is given");
  call.args.dA_log.data = NULL;
  expect_refused(&call, "ddt_bias is given");
  call.args.problem = raw;
  call.args.ddt_bias.dtype = GDN2_BF16;
  assert_int_equal(gdn2_backward(&call.args), GDN2_ERR_DTYPE);
  call.args.ddt_bias.dtype = GDN2_F32;
  call.args.ddt_bias.stride[3] = 2;
  assert_int_equal(gdn2_backward(&call.args), GDN2_ERR_STRIDE);
  width_buffer_expect_untouched(&call.out[D_Q]);
}

/* Many runs on many threads: one hash. Heads fewer than threads, and as many. */
static void test_threads(void **state) {
  (void)state;
  const int threads[] = {1, 2, 3, 4, 7, 16};
  for (int is_packed = 0; is_packed < 2; is_packed++) {
    const gradient_case x = large(is_packed, 410);
    uint64_t want = 0;
    for (int n = 0; n < 30; n++) {
      const void *mark = test_mark();
      const gradients got = gradient_run_as(&x, GDN2_F32, &width_contiguous, (gdn2_exec){.threads = threads[n % 6]});
      const uint64_t hash = gradient_hash(&x, &got);
      if (n == 0) want = hash;
      assert_true(hash == want);
      test_release_to(mark);
    }
  }
}

/* Like a layer in training, 1024 and 4096 tokens: every gradient within 1e-6. */
static void test_long_sequences(void **state) {
  (void)state;
  const int64_t lengths[] = {1024, 4096}, sizes[] = {64, 24};
  for (int n = 0; n < 2; n++) {
    rng r = {320};
    width_case c = width_new(320, 1, lengths[n], 1, 2, sizes[n], sizes[n]);
    width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 321);
    width_make_raw_gates(&c, GDN2_GATE_SIGMOID, GDN2_GATE_SIGMOID, 322);
    for (size_t i = 0; i < width_count(&c, W_A); i++) c.in[W_A][i] = width_round(GDN2_F32, log(rng_uniform(&r, 1, 16)));
    for (size_t i = 0; i < width_count(&c, W_DT); i++)
      c.in[W_DT][i] = width_round(GDN2_F32, log(expm1(exp(rng_uniform(&r, log(1e-3), log(0.1))))));
    for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, 323, 1);
    c.l2norm = true;
    const gradient_case x = gradient_of(c, 324);
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    gradient_expect_right(&x, &got, &want, 1e-6);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_any_number_of_states), TEST(test_bytes), TEST(test_refused), TEST(test_threads),
                                     TEST(test_long_sequences)};
  return TEST_RUN(tests);
}
