/* The backward from the states that the forward kept: the bits of the one that computes them again. */
#include "gradient.h"
#include "test.h"

static const int64_t lengths_of_packed[] = {0, 17, 30, 30, 130, 290};

/* Grouped heads, raw inputs; packed: sequences of several lengths, one of them empty. */
static gradient_case options(bool is_packed) {
  return gradient_with_options(700, is_packed ? 1 : 2, 300, 19, 21, is_packed ? lengths_of_packed : NULL, 5);
}

/* The forward's snapshots, every so many tokens. */
static gdn2_states keep(const width_case *c, int64_t every, bool by_rows) {
  const gdn2_states s = width_snapshots_new(c, c->T / every, GDN2_F32, by_rows);
  width_call call = width_call_new(c, GDN2_F32, &width_contiguous);
  call.args.snapshots = s;
  call.args.snapshot_every = every;
  (void)width_call_run(c, &call);
  return s;
}

static gradients run_from(const gradient_case *x, gdn2_states s, int64_t every, int threads) {
  gradient_call call = gradient_call_new(x, GDN2_F32, &width_contiguous);
  size_t bytes = 0;
  call.args.snapshots = s;
  call.args.snapshot_every = every;
  call.args.exec.threads = threads;
  assert_int_equal(gdn2_backward_workspace(&call.args, &bytes), GDN2_OK);
  call.args.exec = (gdn2_exec){threads, GDN2_ISA_AUTO, test_workspace(bytes), bytes};
  return gradient_call_run(x, &call);
}

static void test_same_bits(void **state) {
  (void)state;
  const int64_t every[] = {16, 32, 48, 128, 160, 304};
  for (int is_packed = 0; is_packed < 2; is_packed++) {
    const gradient_case x = options(is_packed);
    const gradients want = gradient_run(&x);
    for (int n = 0; n < 6; n++) {
      const void *mark = test_mark();
      const gradients got = run_from(&x, keep(&x.c, every[n], n % 2), every[n], 1 + n % 3);
      gradient_expect_equal(&x, &got, &want);
      test_release_to(mark);
    }
  }
}

/* Many plain heads, more and fewer than threads. */
static void test_plain_heads(void **state) {
  (void)state;
  const int64_t heads[] = {1, 5, 20};
  for (int n = 0; n < 3; n++) {
    const gradient_case x = gradient_of(width_new(710, 1, 100, heads[n], heads[n], 16, 32), 711);
    const gradients want = gradient_run(&x);
    for (int threads = 1; threads <= 4; threads++) {
      const gradients got = run_from(&x, keep(&x.c, 32, false), 32, threads);
      gradient_expect_equal(&x, &got, &want);
    }
  }
}

/* They are read: a wrong state gives other gradients, of the tokens after it and, by dS, of none before but through its own. */
static void test_wrong_state_shows(void **state) {
  (void)state;
  const gradient_case x = gradient_of(width_new(720, 1, 64, 1, 1, 8, 8), 721);
  const gdn2_states s = keep(&x.c, 32, false);
  const gradients want = gradient_run(&x);
  ((float *)s.data)[0] += 1.0f;
  const gradients got = run_from(&x, s, 32, 1);
  const size_t half = 32 * 8;
  assert_memory_equal(got.values[D_V] + half, want.values[D_V] + half, half * sizeof(float));
  assert_memory_not_equal(got.values[D_Q] + half, want.values[D_Q] + half, half * sizeof(float));
  assert_memory_equal(got.values[D_Q], want.values[D_Q], half * sizeof(float));
}

/* The memory does not grow with the sequence. */
static void test_bytes(void **state) {
  (void)state;
  size_t bytes[2];
  for (int n = 0; n < 2; n++) {
    const gradient_case x = gradient_of(width_new(730, 1, n ? 4096 : 256, 1, 1, 16, 16), 731);
    gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
    call.args.snapshots = width_snapshots_new(&x.c, x.c.T / 128, GDN2_F32, false);
    call.args.snapshot_every = 128;
    assert_int_equal(gdn2_backward_workspace(&call.args, &bytes[n]), GDN2_OK);
  }
  assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
}

static void expect_refused(gradient_call *call, gdn2_status status, const char *word) {
  assert_int_equal(gdn2_backward(&call->args), status);
  if (!strstr(gdn2_last_error(), word)) fail_msg("the sentence does not name %s: \"%s\"", word, gdn2_last_error());
  for (int i = 0; i < GRADIENTS; i++)
    if (call->out[i].base) width_buffer_expect_untouched(&call->out[i]);
}

static void test_refused(void **state) {
  (void)state;
  const gradient_case x = gradient_of(width_new(740, 1, 64, 1, 1, 8, 8), 741);
  gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
  gdn2_backward_args *a = &call.args;
  const int64_t wrong[] = {-16, 0, 24};
  a->snapshots = keep(&x.c, 32, false);
  for (int n = 0; n < 3; n++) {
    a->snapshot_every = wrong[n];
    expect_refused(&call, GDN2_ERR_SHAPE, "snapshot_every");
  }
  a->snapshot_every = 32;
  a->checkpoint_every = 2;
  expect_refused(&call, GDN2_ERR_ARGUMENT, "checkpoint_every is 2; it must be 0 where snapshots are given");
  a->checkpoint_every = 0;
  a->snapshots.dtype = GDN2_BF16;
  expect_refused(&call, GDN2_ERR_DTYPE, "snapshots");
  a->snapshots.dtype = GDN2_F32;
  a->snapshots.data = (char *)a->snapshots.data + 1;
  expect_refused(&call, GDN2_ERR_ARGUMENT, "snapshots");
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_same_bits), TEST(test_plain_heads), TEST(test_wrong_state_shows), TEST(test_bytes),
                                     TEST(test_refused)};
  return TEST_RUN(tests);
}
