/* peak.h - the most a core can do: independent multiply-adds in registers, in the widest vectors of an instruction set. */
#ifndef GDN2_CLI_PEAK_H
#define GDN2_CLI_PEAK_H
#include <stdint.h>

#include "gdn2.h"

/* A loop compiled for one instruction set. It returns a sum of what it computed. */
typedef float peak_loop(int64_t rounds);
typedef struct peak_kernel {
  peak_loop *loop;
  int flop; /* of one round */
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

#endif
