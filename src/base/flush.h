/* Subnormal numbers as zeros, for a stretch of code on this thread: a state that fades away passes through them, and processors
 * take a hundred cycles for each. float32 == 0: nothing changes. */
#ifndef GDN2_BASE_FLUSH_H
#define GDN2_BASE_FLUSH_H
#include <stdint.h>

#if defined(__SSE__)
#include <xmmintrin.h>
/* MXCSR: subnormal results (bit 15) and subnormal operands (bit 6) become 0. Returns what gdn2_flush_end is to restore. */
static inline uint64_t gdn2_flush_begin(int float32) {
  const uint32_t before = _mm_getcsr();
  if (float32) _mm_setcsr(before | 0x8040u);
  return before;
}
static inline void gdn2_flush_end(uint64_t before) { _mm_setcsr((uint32_t)before); }
#elif defined(__aarch64__)
/* FPCR: bit 24 does both. */
static inline uint64_t gdn2_flush_begin(int float32) {
  uint64_t before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  if (float32) __asm__ volatile("msr fpcr, %0" : : "r"(before | UINT64_C(1) << 24) : "memory");
  return before;
}
static inline void gdn2_flush_end(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory"); }
#else
static inline uint64_t gdn2_flush_begin(int float32) { return (void)float32, 0; }
static inline void gdn2_flush_end(uint64_t before) { (void)before; }
#endif
#endif
