#include "base/par_for.h"
#include "gdn2.h"

static void serial(int64_t count, gdn2_task *run, void *context) {
  for (int64_t task = 0; task < count; task++) run(context, task, 0);
}

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Set once, in a forked child only. Process state, not the caller's: it tells whether OpenMP's threads can exist here. */
static atomic_bool forked_after_threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void) { atomic_store(&forked_after_threads, true); }
static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, in_child); }

void gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context) {
  if (threads > count) threads = (int)count;
  if (threads <= 1 || atomic_load(&forked_after_threads)) {
    serial(count, run, context);
    return;
  }
  (void)pthread_once(&once, watch_fork);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < count; task++) run(context, task, omp_get_thread_num());
}

int gdn2_threads(int wanted) { return wanted > 0 ? wanted : omp_get_max_threads(); }

#else

void gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context) {
  (void)threads;
  serial(count, run, context);
}

int gdn2_threads(int wanted) {
  (void)wanted;
  return 1;
}
#endif
