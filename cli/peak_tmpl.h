/* peak_tmpl.h - the fused multiply-add loop of peak_<isa>.c, which defines
 *   vf, LANES          a vector, its float32 lanes
 *   CHAINS             independent sums: at least latency x units of any processor (4 x 2; NEON 4 x 4), all in registers
 *   SET1(x), FMA(a, b, c)
 * x <- x + m c, the form that every instruction set has without a copy. The product is too small to change x, so that nothing
 * ever becomes tiny or infinite; m and c are volatile, so that no compiler knows it. */
#include "peak.h"

/* Whole, and early enough that the array becomes registers. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static float loop(int64_t rounds) {
  volatile float small = 0x1p-15f;
  const vf m = SET1(small), c = SET1(small);
  vf x[CHAINS];
  UNROLL
  for (int i = 0; i < CHAINS; i++) x[i] = SET1((float)(i + 1));
  for (int64_t r = 0; r < rounds; r++) {
    UNROLL
    for (int i = 0; i < CHAINS; i++) x[i] = FMA(m, c, x[i]);
  }
  UNROLL
  for (int i = 1; i < CHAINS; i++) x[0] = x[0] + x[i];
  return x[0][0];
}

static void update(float *x, int64_t count) {
  volatile float factor = 1, term = 0;
  const vf m = SET1(factor), c = SET1(term);
  for (int64_t i = 0; i < count; i += LANES) {
    vf v;
    __builtin_memcpy(&v, x + i, sizeof v);
    v = FMA(v, m, c);
    __builtin_memcpy(x + i, &v, sizeof v);
  }
}

enum { FLOP = 2 * CHAINS * LANES };
