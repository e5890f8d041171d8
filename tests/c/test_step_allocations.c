/* With a caller's workspace, forward and backward ask no allocator for anything; a step never does. The linker leads every call
 * of an allocator by the library's own objects through the counters below (--wrap). */
#include "exact.h"
#include "test.h"

static int calls;

#define COUNTED(TYPE, NAME, PARAMETERS, ...)                                                                                     \
  TYPE __real_##NAME PARAMETERS;                                                                                                 \
  TYPE __wrap_##NAME PARAMETERS;                                                                                                 \
  TYPE __wrap_##NAME PARAMETERS {                                                                                                \
    calls++;                                                                                                                     \
    return __real_##NAME(__VA_ARGS__);                                                                                           \
  }
COUNTED(void *, malloc, (size_t bytes), bytes)
COUNTED(void *, calloc, (size_t count, size_t bytes), count, bytes)
COUNTED(void *, realloc, (void *old, size_t bytes), old, bytes)
COUNTED(void *, aligned_alloc, (size_t align, size_t bytes), align, bytes)
COUNTED(int, posix_memalign, (void **at, size_t align, size_t bytes), at, align, bytes)

void __real_free(void *x);
void __wrap_free(void *x);
void __wrap_free(void *x) {
  calls += x != NULL;
  __real_free(x);
}

static int counted(gdn2_status (*run)(const void *), const void *args) {
  calls = 0;
  const gdn2_status status = run(args);
  const int count = calls;
  if (status != GDN2_OK) fail_msg("%s", gdn2_last_error());
  return count;
}

static gdn2_status run_forward(const void *args) { return gdn2_forward(args); }
static gdn2_status run_backward(const void *args) { return gdn2_backward(args); }
static gdn2_status run_step(const void *args) { return gdn2_step(args); }

static const int threads[] = {1, 2, 5};

static void test_forward_and_backward(void **state) {
  (void)state;
  for (int n = 0; n < 3; n++) {
    const exact_case c = case_trained(1300, 2, 40, 3, 20, 33);
    const results r = results_new(&c, OUT_ALL);
    gdn2_forward_args forward = forward_args(&c, &r);
    gdn2_backward_args backward = backward_args(&c, &r);
    forward.exec.threads = backward.exec.threads = threads[n];
    /* Without a workspace there is one allocation, and its end: the counter is alive. */
    assert_true(counted(run_forward, &forward) >= 2);
    assert_true(counted(run_backward, &backward) >= 2);
    assert_int_equal(gdn2_forward_workspace(&forward, &forward.exec.workspace_bytes), GDN2_OK);
    assert_int_equal(gdn2_backward_workspace(&backward, &backward.exec.workspace_bytes), GDN2_OK);
    forward.exec.workspace = test_workspace(forward.exec.workspace_bytes);
    backward.exec.workspace = test_workspace(backward.exec.workspace_bytes);
    forward.snapshot_every = 16;
    forward.snapshots.data = test_floats(2 * 2 * 3 * 20 * 33);
    assert_int_equal(counted(run_forward, &forward), 0);
    assert_int_equal(counted(run_backward, &backward), 0);
  }
}

/* In place, carried over several tokens, with drafts, elsewhere in another type; enough work for threads. */
static void test_step(void **state) {
  (void)state;
  static const int32_t slots[4] = {3, 0, -1, 1}, accepted[4] = {1, 0, 0, 2};
  const exact_case c = case_trained(1310, 4, 3, 8, 64, 96);
  const size_t one = (size_t)(8 * 64 * 96);
  float *o = test_floats((size_t)(4 * 3 * 8 * 96)), *each = test_floats(4 * 3 * one);
  for (int n = 0; n < 3; n++)
    for (int kind = 0; kind < 4; kind++) {
      gdn2_step_args a = {.struct_size = sizeof a, .from = {.data = c.in[IN_H0]}, .to = {.data = c.in[IN_H0]}, .o = {.data = o}};
      a.problem = forward_args(&c, &(results){{NULL}}).problem;
      a.problem.h0.data = NULL;
      if (kind == 0) a.problem.T = 1;
      if (kind >= 2) a.each.data = each, a.slot = slots;
      if (kind == 3) a.history = a.each, a.history_length = 3, a.accepted = accepted, a.to = (gdn2_output){.data = NULL};
      a.exec.threads = threads[n];
      assert_int_equal(counted(run_step, &a), 0);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_forward_and_backward), TEST(test_step)};
  return TEST_RUN(tests);
}
