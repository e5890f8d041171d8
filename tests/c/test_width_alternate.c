/* Calls of ever other types, sizes, head ratios and options in one process: each gives what it gives in a process of its own. */
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "width.h"

enum { KINDS = 14, CALLS = 200 };

static const int64_t cu[] = {0, 9, 9, 30};

/* Problem number n; no two alike. */
static width_case kind(int n) {
  static const int64_t K[] = {8, 64, 33, 100, 16, 5, 128}, V[] = {8, 7, 64, 36, 128, 16, 33};
  width_case c =
      width_new(300 + (uint64_t)n, 1, 5 + 26 * (n % 2), 1 + n % 3, (1 + n % 3) * (1 + n / 3 % 3), K[n % 7], V[n * 3 % 7]);
  if (n % 4 == 1) width_make_key_gate(&c, W_G);
  if (c.T == 31 && n % 3 == 0) width_cut(&c, cu, 3, 301);
  if (n % 5 == 2) width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 302);
  if (n % 5 == 3) width_make_raw_decay(&c, GDN2_DECAY_BOUNDED, 303);
  if (n % 4 == 3) width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 304);
  c.l2norm = n % 3 == 1;
  c.map = n % 2 ? GDN2_HEADS_TILED : GDN2_HEADS_GROUPED;
  for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, (gdn2_dtype)(n % 3));
  for (int i = W_G; i <= W_W; i++) width_set_dtype(&c, i, n % 2 ? GDN2_F32 : (gdn2_dtype)(n % 3));
  if (n % 6 == 4) width_make_per_head(&c, W_B);
  if (n % 6 == 5) c.in[W_G] = c.decay ? c.in[W_G] : NULL;
  return c;
}

static uint64_t hash_of(int n, int threads) {
  static const width_layout padded = {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 0, 5, 1}, {1, 1, 1, 1}, TEST_AT_END};
  const void *mark = test_mark();
  const width_case c = kind(n);
  const width_result r =
      width_run_as(&c, (gdn2_dtype)((n + n / 3) % 3), n % 4 < 2 ? &padded : &width_contiguous, (gdn2_exec){.threads = threads});
  const tensor o = width_o_tensor(&c), h = width_h_tensor(&c);
  const uint64_t hash = hash_bits(hash_bits(TEST_HASH, r.o, tensor_count(&o)), r.h_final, tensor_count(&h));
  test_release_to(mark);
  return hash;
}

/* The same, in a child that has called nothing before. */
static uint64_t fresh_hash(int n) {
  int ends[2], status;
  uint64_t hash = 0;
  if (pipe(ends) != 0) fail_msg("no pipe");
  const pid_t child = fork();
  if (child < 0) fail_msg("no child");
  if (child == 0) {
    hash = hash_of(n, 1);
    _exit(write(ends[1], &hash, sizeof hash) == sizeof hash ? 0 : 1);
  }
  close(ends[1]);
  const ssize_t got = read(ends[0], &hash, sizeof hash);
  close(ends[0]);
  assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(got, sizeof hash);
  return hash;
}

static void test_alternating_calls(void **state) {
  (void)state;
  uint64_t want[KINDS];
  for (int n = 0; n < KINDS; n++) want[n] = fresh_hash(n);
  for (int n = 0; n < KINDS; n++)
    for (int m = 0; m < n; m++) assert_true(want[n] != want[m]);
  rng r = {310};
  for (int call = 0; call < CALLS; call++) {
    const int n = (int)(rng_next(&r) % KINDS);
    if (hash_of(n, 1 + call % 2) != want[n]) fail_msg("call %d, problem %d: other bits than in a process of its own", call, n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_alternating_calls)};
  return TEST_RUN(tests);
}
