#include "peak.h"

#include <stdlib.h>

#include "cli.h"
#include "pages.h"

static const peak_kernel *kernel_of(gdn2_isa isa) {
#if defined(__x86_64__)
  if (isa == GDN2_ISA_AVX2) return &peak_avx2;
  if (isa == GDN2_ISA_AVX512) return &peak_avx512;
#elif defined(__aarch64__)
  if (isa == GDN2_ISA_NEON) return &peak_neon;
#endif
  (void)isa;
  return &peak_generic;
}

/* GFLOP/s of the calling thread. */
static double rate(const peak_kernel *kernel, int64_t rounds) {
  double start = cli_now();
  volatile float keep = kernel->loop(rounds);
  (void)keep;
  return 1e-9 * kernel->flop * (double)rounds / (cli_now() - start);
}

double peak_gflops(const peak *p) {
  double sum = 0;
#ifdef _OPENMP
#pragma omp parallel num_threads(p->threads) reduction(+ : sum)
  {
#pragma omp barrier
    sum += rate(p->kernel, p->rounds);
  }
  return sum / p->threads;
#else
  sum = rate(p->kernel, p->rounds);
  return sum;
#endif
}

#define SECONDS 3e-3

peak peak_start(gdn2_isa isa, int threads) {
  peak p = {kernel_of(isa), threads, 1 << 14};
  for (;;) {
    double seconds = 1e-9 * p.kernel->flop * (double)p.rounds / peak_gflops(&p);
    if (seconds >= SECONDS) return p;
    p.rounds *= 2;
  }
}

/* ---- Memory --------------------------------------------------------------------------------------------------------------- */

enum { LINE_FLOATS = 16 };

int bandwidth_start(bandwidth *b, gdn2_isa isa, int threads, size_t bytes) {
  int64_t lines = (int64_t)(bytes / (LINE_FLOATS * sizeof(float))) + 1;
  *b = (bandwidth){kernel_of(isa), threads, NULL, lines * LINE_FLOATS};
  b->x = pages_allocate((size_t)b->count * sizeof(float));
  if (!b->x) return cli_failed("not enough memory");
  for (int64_t i = 0; i < b->count; i++) b->x[i] = 1;
  return DONE;
}

void bandwidth_end(bandwidth *b) { free(b->x); }

static void update_part(const bandwidth *b, int part) {
  int64_t lines = b->count / LINE_FLOATS, first = lines * part / b->threads, last = lines * (part + 1) / b->threads;
  b->kernel->update(b->x + first * LINE_FLOATS, (last - first) * LINE_FLOATS);
}

double bandwidth_seconds(const bandwidth *b, int runs) {
  double start = cli_now();
  for (int run = 0; run < runs; run++) {
    if (b->threads == 1) {
      update_part(b, 0);
      continue;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(b->threads) schedule(static, 1)
#endif
    for (int part = 0; part < b->threads; part++) update_part(b, part);
  }
  return (cli_now() - start) / runs;
}
