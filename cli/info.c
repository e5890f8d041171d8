/* info.c - gdn2 info: what this library is, and what it finds on this machine. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "engine.h"

static void print_features(void) {
  uint32_t features = gdn2_cpu_features();
  printf("features   ");
  for (uint32_t bit = 1; bit; bit <<= 1) {
    const char *name = features & bit ? gdn2_cpu_feature_name(bit) : NULL;
    if (name) printf(" %s", name);
  }
  printf("%s\n", features ? "" : " none that the library uses");
}

/* The model's name from /proc/cpuinfo, where there is one. */
static void print_processor(void) {
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f && fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    if (!colon || strncmp(line, "model name", 10)) continue;
    printf("processor   %s", colon + 2);
    break;
  }
  if (f) fclose(f);
}

#ifdef _SC_LEVEL1_DCACHE_SIZE
static void print_caches(void) {
  static const struct {
    const char *name;
    int key;
  } caches[] = {{"L1d", _SC_LEVEL1_DCACHE_SIZE}, {"L2", _SC_LEVEL2_CACHE_SIZE}, {"L3", _SC_LEVEL3_CACHE_SIZE}};
  printf("caches     ");
  for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
    long bytes = sysconf(caches[i].key);
    if (bytes > 0) printf(" %s %ld KiB", caches[i].name, bytes / 1024);
  }
  printf("\n");
}
#else
static void print_caches(void) {}
#endif

int verb_info(const settings *s) {
  gdn2_isa isa;
  int code = engine_code(gdn2_isa_choose((gdn2_isa)s->isa, &isa));
  if (code) return code;
  printf("gdn2 %s (header %d.%d.%d)\n", gdn2_version(), GDN2_VERSION_MAJOR, GDN2_VERSION_MINOR, GDN2_VERSION_PATCH);
  print_processor();
  print_features();
  print_caches();
  printf("isa         %s%s\n", gdn2_isa_name(isa), s->isa ? " (forced)" : "");
  printf("threads     %d of %ld processors\n", gdn2_threads(s->threads), sysconf(_SC_NPROCESSORS_ONLN));
  printf("limits      K and V from 1 to %d; files of at most %d dimensions\n", GDN2_MAX_DIM, IO_MAX_RANK);
  return DONE;
}
