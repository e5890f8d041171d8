/* peak.h - the most a core can do: independent multiply-adds in registers, in the widest vectors of an instruction set. */
#ifndef GDN2_CLI_PEAK_H
#define GDN2_CLI_PEAK_H
#include <stdint.h>

#include "gdn2.h"

/* A loop compiled for one instruction set. It returns a sum of what it computed. */
typedef float peak_loop(int64_t rounds);
/* x <- m x + c in place, count a multiple of 16: what memory allows that is read, changed and written. */
typedef void peak_update(float *x, int64_t count);
typedef struct peak_kernel {
  peak_loop *loop;
  int flop; /* of one round */
  peak_update *update;
} peak_kernel;

/* Those of other processors are not linked. */
extern const peak_kernel peak_generic, peak_avx2, peak_avx512, peak_neon;

typedef struct peak {
  const peak_kernel *kernel;
  int threads;
  int64_t rounds; /* of one measurement */
} peak;

/* Warms up, and finds the rounds that take some milliseconds. isa: one that this machine has, not AUTO. */
peak peak_start(gdn2_isa isa, int threads);

/* GFLOP/s of one thread while all of them work: the mean over the threads, each with its own clock. */
double peak_gflops(const peak *p);

/* ---- Memory --------------------------------------------------------------------------------------------------------------- */

typedef struct bandwidth {
  const peak_kernel *kernel;
  int threads;
  float *x;
  int64_t count;
} bandwidth;

/* An array of its own, of at least so many bytes. Returns an exit code. */
int bandwidth_start(bandwidth *b, gdn2_isa isa, int threads, size_t bytes);
/* Seconds of one update of the whole array by all threads: the mean of `runs` in a row. */
double bandwidth_seconds(const bandwidth *b, int runs);
void bandwidth_end(bandwidth *b);

#endif
