#include "blas.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gdn2.h"

#ifdef GDN2_WITH_OPENBLAS
char *openblas_get_corename(void);

static const char *core_by_features(void) {
  const uint32_t avx512 = GDN2_CPU_AVX512F | GDN2_CPU_AVX512BW | GDN2_CPU_AVX512DQ | GDN2_CPU_AVX512VL;
  const uint32_t has = gdn2_cpu_features();
  if ((has & avx512) == avx512) return "SkylakeX";
  return has & GDN2_CPU_AVX2 && has & GDN2_CPU_FMA ? "Haswell" : NULL;
}

void blas_wake(char **argv) {
  const char *core = core_by_features();
  if (!core || getenv("OPENBLAS_CORETYPE") || strcmp(openblas_get_corename(), "Prescott") != 0) return;
  /* Without success the work goes on, slowly. */
  if (!setenv("OPENBLAS_CORETYPE", core, 1)) execv("/proc/self/exe", argv);
}
#else
void blas_wake(char **argv) { (void)argv; }
#endif
