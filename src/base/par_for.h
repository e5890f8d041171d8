/* par_for: the one place where threads are made. Back-ends: OpenMP, or serial where OpenMP is not built in. */
#ifndef GDN2_BASE_PAR_FOR_H
#define GDN2_BASE_PAR_FOR_H
#include <stdint.h>

/* One task: index 0 <= task < count, run by worker 0 <= slot < threads. A slot runs one task at a time. */
typedef void gdn2_task(void *context, int64_t task, int slot);

/* Runs the tasks 0 .. count-1 on at most `threads` threads, in any order; returns when all are done. In a child made by fork()
 * OpenMP's threads are gone and must not be waited for: there each call starts threads of its own. */
void gdn2_par_for(int threads, int64_t count, gdn2_task *run, void *context);
#endif
