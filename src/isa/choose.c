/* Which table a call runs on: the one asked for, else GDN2_ISA from the environment, else the best this machine has. */
#include "base/error.h"
#include "isa/table.h"
#include <stdlib.h>
#include <string.h>

#define NEED_AVX2 (GDN2_CPU_AVX2 | GDN2_CPU_FMA | GDN2_CPU_F16C)
#define NEED_AVX512 (NEED_AVX2 | GDN2_CPU_AVX512F | GDN2_CPU_AVX512CD | GDN2_CPU_AVX512BW | GDN2_CPU_AVX512DQ | GDN2_CPU_AVX512VL)

/* What this build has, in rising order: the last one available is the best. Several may be one gdn2_isa, the same but for
 * instructions that only some machines have. */
static const struct {
  const char *name;
  const gdn2_table *table;
  uint32_t needs;
} levels[] = {
    {"generic", &gdn2_table_generic, 0},
#if defined(__x86_64__)
    {"avx2", &gdn2_table_avx2, NEED_AVX2},
    {"avx512", &gdn2_table_avx512, NEED_AVX512},
    {"avx512_bf16", &gdn2_table_avx512_bf16, NEED_AVX512 | GDN2_CPU_AVX512_BF16},
#elif defined(__aarch64__)
    {"neon", &gdn2_table_neon, GDN2_CPU_NEON},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };

#if defined(__x86_64__)
#define NAMES "generic, avx2, avx512"
#define MORE_NAMES ", avx512_bf16"
#elif defined(__aarch64__)
#define NAMES "generic, neon"
#define MORE_NAMES ""
#else
#define NAMES "generic"
#define MORE_NAMES ""
#endif

static int available(int level) { return (gdn2_cpu_features() & levels[level].needs) == levels[level].needs; }

static gdn2_status take(int level, const char *origin, const gdn2_table **table) {
  if (!available(level))
    return gdn2_fail(GDN2_ERR_ISA, "%s is %s, but this machine does not have the instructions of %s", origin, levels[level].name,
                     levels[level].name);
  *table = levels[level].table;
  return GDN2_OK;
}

static gdn2_status from_environment(const char *value, const gdn2_table **table) {
  for (int level = 0; level < LEVELS; level++)
    if (strcmp(value, levels[level].name) == 0) return take(level, "GDN2_ISA", table);
  return gdn2_fail(GDN2_ERR_ISA, "GDN2_ISA is \"%.64s\"; it must be one of those that this build has: " NAMES MORE_NAMES, value);
}

gdn2_status gdn2_table_choose(gdn2_isa wanted, const gdn2_table **table) {
  const char *value = getenv("GDN2_ISA");
  if (wanted != GDN2_ISA_AUTO) {
    int best = -1; /* of the levels that are `wanted` the one that the environment names, else the highest available */
    for (int level = 0; level < LEVELS; level++) {
      if (levels[level].table->isa != wanted || (best >= 0 && !available(level))) continue;
      best = level;
      if (value && strcmp(value, levels[level].name) == 0) break;
    }
    if (best >= 0) return take(best, "exec.isa", table);
    return gdn2_fail(GDN2_ERR_ISA, "exec.isa is %d (%s); it must be auto or one that this build has: " NAMES, (int)wanted,
                     gdn2_isa_name(wanted));
  }
  if (value && *value) return from_environment(value, table);
  int best = LEVELS - 1;
  while (!available(best)) best--;
  return take(best, "the default", table);
}

gdn2_status gdn2_isa_choose(gdn2_isa wanted, gdn2_isa *chosen) {
  if (!chosen) return gdn2_fail(GDN2_ERR_ARGUMENT, "chosen is NULL; it must point to a gdn2_isa");
  const gdn2_table *table = NULL;
  const gdn2_status status = gdn2_table_choose(wanted, &table);
  if (table) *chosen = table->isa;
  return status;
}

const char *gdn2_isa_name(gdn2_isa isa) {
  switch (isa) {
  case GDN2_ISA_AUTO: return "auto";
  case GDN2_ISA_GENERIC: return "generic";
  case GDN2_ISA_AVX2: return "avx2";
  case GDN2_ISA_AVX512: return "avx512";
  case GDN2_ISA_NEON: return "neon";
  }
  return "unknown";
}
