/* Threads: any number of them gives the same bits, callers may run at once, and a child after fork() computes too. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exact.h"
#include "test.h"

static const int counts[] = {1, 2, 3, 4, 7, 16};

/* Fewer heads than threads, more heads than threads, lengths around a chunk's multiple: one hash each. */
static void test_thread_counts(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 63, 1}, {1, 64, 2}, {1, 65, 3}, {2, 130, 5}, {7, 33, 1}};
  for (int n = 0; n < 5; n++) {
    const exact_case c = case_trained(20 + (uint64_t)n, shapes[n][0], shapes[n][1], shapes[n][2], 24, 40);
    const results first = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = 1});
    const uint64_t hash = results_hash(&c, &first);
    for (int i = 0; i < 6; i++)
      for (int run = 0; run < 5; run++) {
        const void *mark = test_mark();
        const results again = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = counts[i]});
        if (results_hash(&c, &again) != hash) {
          print_error("%d threads, run %d:\n", counts[i], run);
          expect_equal(&c, &again, &first);
        }
        test_release_to(mark);
      }
  }
}

/* A gradient summed over channels is summed in one order. */
static void test_thread_counts_per_head(void **state) {
  (void)state;
  exact_case c = case_trained(30, 2, 70, 3, 40, 24);
  case_make_per_head(&c, IN_G);
  case_make_per_head(&c, IN_B);
  case_make_per_head(&c, IN_W);
  const results first = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = 1});
  for (int i = 0; i < 6; i++) {
    const results again = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = counts[i]});
    expect_equal(&c, &again, &first);
  }
}

/* ---- Several callers at once ---- */

enum { CALLERS = 4, CALLS = 20 };

typedef struct caller {
  exact_case c;
  results r, want;
  int wrong, failed, sentence_lost;
} caller;

/* Alternates right calls, checked by their bits, with wrong ones, whose sentence must stay this thread's own. */
static void *call_often(void *context) {
  caller *x = context;
  for (int n = 0; n < CALLS; n++) {
    gdn2_forward_args forward = forward_args(&x->c, &x->r);
    gdn2_backward_args backward = backward_args(&x->c, &x->r);
    forward.exec.threads = backward.exec.threads = 1 + n % 2;
    x->failed += gdn2_forward(&forward) != GDN2_OK;
    x->failed += gdn2_backward(&backward) != GDN2_OK;
    x->wrong += results_hash(&x->c, &x->r) != results_hash(&x->c, &x->want);
    char size[24];
    forward.problem.K = 1000 + x->c.K;
    snprintf(size, sizeof size, "%d", (int)forward.problem.K);
    x->failed += gdn2_forward(&forward) != GDN2_ERR_SHAPE;
    x->sentence_lost += !strstr(gdn2_last_error(), size);
  }
  return NULL;
}

static void test_callers_at_once(void **state) {
  (void)state;
  caller callers[CALLERS];
  pthread_t threads[CALLERS];
  for (int n = 0; n < CALLERS; n++) {
    callers[n] = (caller){.c = case_trained(40 + (uint64_t)n, 1, 33 + n, 3, 10 + 7 * n, 30 - 5 * n)};
    callers[n].want = engine_run(&callers[n].c);
    callers[n].r = results_new(&callers[n].c, OUT_ALL);
  }
  for (int n = 0; n < CALLERS; n++) assert_int_equal(pthread_create(threads + n, NULL, call_often, callers + n), 0);
  for (int n = 0; n < CALLERS; n++) pthread_join(threads[n], NULL);
  for (int n = 0; n < CALLERS; n++) {
    assert_int_equal(callers[n].failed, 0);
    assert_int_equal(callers[n].wrong, 0);
    assert_int_equal(callers[n].sentence_lost, 0);
  }
}

/* ---- After fork ---- */

/* qemu-user aborts (7.2, qemu_plugin_vcpu_init_hook) when the child of a process with threads starts one of its own. */
static void skip_under_emulator(void) {
  if (!getenv("GDN2_TEST_EMULATOR")) return;
  print_message("skipped: qemu-user cannot start threads in a child\n");
  skip();
}

/* In the child: 0 if the call gives the same bits. An alarm ends a child that hangs. */
static int child(const exact_case *c, const results *r, uint64_t hash) {
  alarm(20);
  gdn2_forward_args forward = forward_args(c, r);
  gdn2_backward_args backward = backward_args(c, r);
  forward.exec.threads = backward.exec.threads = 4;
  if (gdn2_forward(&forward) != GDN2_OK || gdn2_backward(&backward) != GDN2_OK) return 2;
  return results_hash(c, r) == hash ? 0 : 3;
}

static void expect_child_computes(const exact_case *c, const results *r, uint64_t hash) {
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(child(c, r, hash));
  int how = 0;
  assert_true(waitpid(pid, &how, 0) == pid);
  if (WIFSIGNALED(how))
    fail_msg("the child was ended by signal %d%s", WTERMSIG(how), WTERMSIG(how) == SIGALRM ? ": it hung" : "");
  assert_int_equal(WEXITSTATUS(how), 0);
}

static void test_child_after_fork(void **state) {
  (void)state;
  skip_under_emulator();
  const exact_case c = case_trained(50, 2, 65, 3, 24, 40);
  const results threaded = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = 4}), r = results_new(&c, OUT_ALL);
  for (int n = 0; n < 3; n++) {
    expect_child_computes(&c, &r, results_hash(&c, &threaded));
    const results again = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = 4});
    expect_equal(&c, &again, &threaded);
  }
}

/* The threads that do not survive the fork were started by the program itself, and the library never made any. First of the
 * tests: later the library has seen threads of its own. */
static void test_child_after_foreign_threads(void **state) {
  (void)state;
  skip_under_emulator();
#ifdef _OPENMP
  int started = 0;
#pragma omp parallel num_threads(2)
  {
#pragma omp atomic
    started++;
  }
  assert_int_equal(started, 2);
#endif
  const exact_case c = case_trained(51, 2, 65, 3, 24, 40);
  const results serial = engine_run_some(&c, OUT_ALL, (gdn2_exec){.threads = 1}), r = results_new(&c, OUT_ALL);
  expect_child_computes(&c, &r, results_hash(&c, &serial));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_child_after_foreign_threads),
      TEST(test_thread_counts),
      TEST(test_thread_counts_per_head),
      TEST(test_callers_at_once),
      TEST(test_child_after_fork),
  };
  return TEST_RUN(tests);
}
