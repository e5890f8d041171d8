#include "peak.h"

#include "cli.h"

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
