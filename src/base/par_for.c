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

/* Set once, in a child of fork() only. OpenMP's threads, whoever started them, do not exist there, and libgomp would wait for
 * them for ever. Process state, not a caller's. */
static atomic_bool forked;

static void in_child(void) { atomic_store(&forked, true); }
__attribute__((constructor)) static void watch_fork(void) { (void)pthread_atfork(NULL, NULL, in_child); }

/* One worker of a forked child: takes tasks until there are none left. */
typedef struct {
  atomic_int_fast64_t *next;
  int64_t count;
  gdn2_task *run;
  void *context;
  int slot;
} worker;

static void *work(void *argument) {
  const worker *w = argument;
  for (int64_t task; (task = atomic_fetch_add(w->next, 1)) < w->count;) w->run(w->context, task, w->slot);
  return NULL;
}

/* Threads of the call's own, as many of them as can be had. */
#define MOST_SPAWNED 64
static void spawn(int threads, int64_t count, gdn2_task *run, void *context) {
  atomic_int_fast64_t next = 0;
  worker workers[MOST_SPAWNED];
  pthread_t ids[MOST_SPAWNED];
  int started = 0;
  if (threads > MOST_SPAWNED) threads = MOST_SPAWNED;
  for (int slot = 0; slot < threads; slot++) workers[slot] = (worker){&next, count, run, context, slot};
  while (started < threads - 1 && pthread_create(&ids[started], NULL, work, &workers[started + 1]) == 0) started++;
  (void)work(&workers[0]);
  for (int i = 0; i < started; i++) (void)pthread_join(ids[i], NULL);
}

void gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context) {
  if (threads > count) threads = (int)count;
  if (threads <= 1) {
    serial(count, run, context);
    return;
  }
  if (atomic_load(&forked)) {
    spawn(threads, count, run, context);
    return;
  }
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
