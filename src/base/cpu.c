/* What the processor has and the operating system has enabled. */
#include "gdn2.h"
#include <string.h>

static const struct {
  uint32_t bit;
  const char *name;
} names[] = {
    {GDN2_CPU_AVX2, "avx2"},
    {GDN2_CPU_FMA, "fma"},
    {GDN2_CPU_F16C, "f16c"},
    {GDN2_CPU_AVX512F, "avx512f"},
    {GDN2_CPU_AVX512CD, "avx512cd"},
    {GDN2_CPU_AVX512BW, "avx512bw"},
    {GDN2_CPU_AVX512DQ, "avx512dq"},
    {GDN2_CPU_AVX512VL, "avx512vl"},
    {GDN2_CPU_AVX512_BF16, "avx512_bf16"},
    {GDN2_CPU_AVX512_FP16, "avx512_fp16"},
    {GDN2_CPU_AMX_TILE, "amx_tile"},
    {GDN2_CPU_AMX_BF16, "amx_bf16"},
    {GDN2_CPU_NEON, "neon"},
};

const char *gdn2_cpu_feature_name(uint32_t bit) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].bit == bit) return names[i].name;
  return NULL;
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <stdatomic.h>

/* Which register files the operating system saves (XCR0); reading it needs OSXSAVE. */
static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static uint32_t when(uint32_t word, int position, uint32_t feature) { return (word >> position & 1u) ? feature : 0; }

static uint32_t ask(void) {
  uint32_t a, b, c, d, found = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1u)) return 0;
  const uint64_t xcr0 = saved_registers();
  const int ymm = (xcr0 & 0x6) == 0x6, zmm = (xcr0 & 0xe6) == 0xe6, tile = (xcr0 & 0x60000) == 0x60000;
  const uint32_t fma_f16c = when(c, 12, GDN2_CPU_FMA) | when(c, 29, GDN2_CPU_F16C);
  if (ymm) found |= fma_f16c;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  if (ymm) found |= when(b, 5, GDN2_CPU_AVX2);
  if (zmm)
    found |= when(b, 16, GDN2_CPU_AVX512F) | when(b, 17, GDN2_CPU_AVX512DQ) | when(b, 28, GDN2_CPU_AVX512CD) |
             when(b, 30, GDN2_CPU_AVX512BW) | when(b, 31, GDN2_CPU_AVX512VL) | when(d, 23, GDN2_CPU_AVX512_FP16);
  if (tile) found |= when(d, 24, GDN2_CPU_AMX_TILE) | when(d, 22, GDN2_CPU_AMX_BF16);
  if (zmm && __get_cpuid_count(7, 1, &a, &b, &c, &d)) found |= when(a, 5, GDN2_CPU_AVX512_BF16);
  return found;
}

/* Asked once: in a virtual machine every question is a trip to its host, longer than a small call. The answer is the same for all
 * threads, and none of its bits is this one. */
#define ASKED (1u << 31)
uint32_t gdn2_cpu_features(void) {
  static atomic_uint_least32_t known;
  uint32_t features = atomic_load_explicit(&known, memory_order_relaxed);
  if (!features) atomic_store_explicit(&known, features = ask() | ASKED, memory_order_relaxed);
  return features & ~ASKED;
}
#elif defined(__aarch64__)
/* Part of the base of AArch64: the compiler has used it already for this very code. */
uint32_t gdn2_cpu_features(void) { return GDN2_CPU_NEON; }
#else
uint32_t gdn2_cpu_features(void) { return 0; }
#endif
