/* Tasks in any order, on threads that stop anywhere between them: the bits of one thread. The linker leads the library's
 * gdn2_par_for through the one below (--wrap), which shuffles the tasks and lets its threads yield and sleep between them. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/par_for.h"
#include "gradient.h"
#include "random.h"
#include "seed_functions.h"
#include "test.h"

enum { THREADS = 7, MOST_TASKS = 4096 };
void __real_gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context);
void __wrap_gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context);

static bool disturbed;
static rng shuffle = {80};
static int64_t most_tasks;

typedef struct {
  atomic_int_fast64_t *next;
  const int64_t *order;
  int64_t count;
  gdn2_task *run;
  void *context;
  int slot;
  rng pause;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  for (int64_t at; (at = atomic_fetch_add(w->next, 1)) < w->count;) {
    const uint64_t what = rng_next(&w->pause) % 8;
    if (what < 3) (void)sched_yield();
    if (what == 3) (void)usleep((useconds_t)(rng_next(&w->pause) % 60));
    w->run(w->context, w->order[at], w->slot);
  }
  return NULL;
}

void __wrap_gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context) {
  static int64_t order[MOST_TASKS];
  if (!disturbed || count > MOST_TASKS) {
    __real_gdn2_par_for(threads, count, run, context);
    return;
  }
  if (count > most_tasks) most_tasks = count;
  for (int64_t i = 0; i < count; i++) {
    const int64_t j = (int64_t)(rng_next(&shuffle) % (uint64_t)(i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  atomic_int_fast64_t next = 0;
  worker workers[THREADS];
  pthread_t ids[THREADS];
  assert_true(threads <= THREADS);
  for (int slot = 0; slot < threads; slot++) {
    workers[slot] = (worker){&next, order, count, run, context, slot, {rng_next(&shuffle)}};
    assert_int_equal(pthread_create(&ids[slot], NULL, work, &workers[slot]), 0);
  }
  for (int slot = 0; slot < threads; slot++) assert_int_equal(pthread_join(ids[slot], NULL), 0);
}

/* ---- The rule ---------------------------------------------------------------------------------------------------------------
 */

static void expect_bits(const gradient_case *x) {
  const width_result want = width_run_as(&x->c, GDN2_F32, &width_contiguous, (gdn2_exec){.threads = 1});
  const gradients slopes = gradient_run_as(x, GDN2_F32, &width_contiguous, (gdn2_exec){.threads = 1});
  for (int n = 0; n < 10; n++) {
    const void *mark = test_mark();
    disturbed = true;
    const width_result got = width_run_as(&x->c, GDN2_F32, &width_contiguous, (gdn2_exec){.threads = 2 + n % (THREADS - 1)});
    const gradients made = gradient_run_as(x, GDN2_F32, &width_contiguous, (gdn2_exec){.threads = 2 + n % (THREADS - 1)});
    disturbed = false;
    width_expect_equal(&x->c, &got, &want);
    gradient_expect_equal(x, &made, &slopes);
    test_release_to(mark);
  }
}

/* Fewer heads than threads, lengths around four chunks. */
static void test_few_heads(void **state) {
  (void)state;
  for (int64_t H = 1; H <= 3; H++)
    for (int64_t T = 63; T <= 65; T++) {
      const gradient_case x = gradient_of(width_new((uint64_t)(80 + H), 1, T, H, H, 12, 19), (uint64_t)T);
      expect_bits(&x);
    }
  assert_true(most_tasks > 1 || gdn2_threads(2) == 1); /* without OpenMP heads are not cut up */
}

static void test_every_option(void **state) {
  (void)state;
  static const int64_t cuts[] = {0, 3, 3, 40, 65};
  const gradient_case one = gradient_with_options(81, 2, 65, 12, 19, NULL, 0);
  const gradient_case packed = gradient_with_options(82, 1, 65, 12, 19, cuts, 4);
  expect_bits(&one);
  expect_bits(&packed);
}

/* ---- The seed's pipeline ----------------------------------------------------------------------------------------------------
 */

static void test_seed(void **state) {
  (void)state;
  static float memory[2][SEED_MOST_ARRAYS][SEED_LARGEST_ARRAY];
  for (size_t n = 0; n < seed_function_count; n++) {
    const seed_function *f = &seed_functions[n];
    for (int run = 0; run < 2; run++) {
      gdn2_seed_call call = seed_small_call;
      float *array[SEED_MOST_ARRAYS];
      rng r = {n};
      call.exec.threads = run ? THREADS : 1;
      for (int x = 0; x < SEED_MOST_ARRAYS; x++) {
        array[x] = memory[run][x];
        for (int i = 0; i < SEED_LARGEST_ARRAY; i++) array[x][i] = (float)-rng_uniform(&r, 0, 0.5);
      }
      disturbed = run;
      assert_int_equal(f->run(&call, array), GDN2_OK);
      disturbed = false;
    }
    assert_memory_equal(memory[0], memory[1], sizeof memory[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_few_heads), TEST(test_every_option), TEST(test_seed)};
  return TEST_RUN(tests);
}
