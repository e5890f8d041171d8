#include "test.h"

static bool machine_has(const char *name) {
#if defined(__x86_64__)
  if (strcmp(name, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (strcmp(name, "avx512") == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd");
  if (strcmp(name, "avx512_bf16") == 0) return machine_has("avx512") && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
  if (strcmp(name, "neon") == 0) return true;
#endif
  return strcmp(name, "generic") == 0;
}

int test_isa_missing(void) {
  const char *name = getenv("GDN2_ISA");
  if (!name || !*name) return 0;
  gdn2_isa chosen;
  const gdn2_status status = gdn2_isa_choose(GDN2_ISA_AUTO, &chosen);
  if (status == GDN2_OK) {
    const char *family = strcmp(name, "avx512_bf16") == 0 ? "avx512" : name;
    if (strcmp(gdn2_isa_name(chosen), family) == 0) return 0;
    fprintf(stderr, "GDN2_ISA=%s, but the library chose %s\n", name, gdn2_isa_name(chosen));
    return 1;
  }
  if (status == GDN2_ERR_ISA && !machine_has(name)) {
    fprintf(stderr, "skipped: this machine lacks %s\n", name);
    return 77;
  }
  fprintf(stderr, "GDN2_ISA=%s: %s: %s\n", name, gdn2_status_name(status), gdn2_last_error());
  return 1;
}

float test_halved(float x) {
  volatile float y = x;
  return y / 2;
}
