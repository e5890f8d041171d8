/* peak_tmpl.h - the fused multiply-add loop of peak_<isa>.c, which defines
 *   vf, LANES          a vector, its float32 lanes
 *   CHAINS             independent sums: at least latency x units of any processor (4 x 2; NEON 4 x 4), all in registers
 *   SET1(x), FMA(a, b, c)
 * x <- x m + c tends to 1: no number ever becomes tiny or infinite. The constants are volatile so that nothing is folded. */
#include "peak.h"

static float loop(int64_t rounds) {
  volatile float factor = 0.75f, term = 0.25f;
  const vf m = SET1(factor), c = SET1(term);
  vf x[CHAINS];
  for (int i = 0; i < CHAINS; i++) x[i] = SET1((float)i);
  for (int64_t r = 0; r < rounds; r++)
    for (int i = 0; i < CHAINS; i++) x[i] = FMA(x[i], m, c);
  float sum = 0;
  for (int i = 0; i < CHAINS; i++) sum += x[i][0];
  return sum;
}

enum { FLOP = 2 * CHAINS * LANES };
