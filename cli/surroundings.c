#include "surroundings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gdn2.h"

/* Returns whether it was not set before and is now. */
static int set(const char *name, const char *value) { return value && !getenv(name) && !setenv(name, value, 1); }

#ifdef GDN2_WITH_OPENBLAS
char *openblas_get_corename(void);

static const char *core_wanted(void) {
  const uint32_t avx512 = GDN2_CPU_AVX512F | GDN2_CPU_AVX512BW | GDN2_CPU_AVX512DQ | GDN2_CPU_AVX512VL;
  const uint32_t has = gdn2_cpu_features();
  if (strcmp(openblas_get_corename(), "Prescott") != 0) return NULL;
  if ((has & avx512) == avx512) return "SkylakeX";
  return has & GDN2_CPU_AVX2 && has & GDN2_CPU_FMA ? "Haswell" : NULL;
}
#else
static const char *core_wanted(void) { return NULL; }
#endif

void surroundings_set(char **argv) {
  const int core = set("OPENBLAS_CORETYPE", core_wanted()), wait = set("OMP_WAIT_POLICY", "passive");
  char path[4096]; /* by its own name: that of the link would be the name of the process */
  const ssize_t length = core || wait ? readlink("/proc/self/exe", path, sizeof path - 1) : -1;
  if (length < 0) return;
  path[length] = 0;
  execv(path, argv);
}
