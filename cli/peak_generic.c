/* The peak of the generic code: 128-bit vectors, multiplications and additions as separate instructions, since the generic code
 * may not fuse them. Half of the chains multiply and half add, so that none waits for the other kind: 14 chains and 2 constants
 * of 16 registers. */
#include "peak.h"

typedef float vf __attribute__((vector_size(16)));
enum { LANES = 4, CHAINS = 7 };

static float loop(int64_t rounds) {
  volatile float factor = 1, term = 0x1p-30f; /* products stay; sums of 1 and more stay too: nothing becomes tiny or infinite */
  const vf m = {factor, factor, factor, factor}, c = {term, term, term, term};
  vf x[CHAINS], y[CHAINS];
  for (int i = 0; i < CHAINS; i++) x[i] = y[i] = (vf){1, 1.25f, 1.5f, 1.75f};
  for (int64_t r = 0; r < rounds; r++)
    for (int i = 0; i < CHAINS; i++) {
      x[i] = x[i] * m;
      y[i] = y[i] + c;
    }
  for (int i = 1; i < CHAINS; i++) x[0] = x[0] + x[i] + y[i];
  return x[0][0] + y[0][1];
}

static void update(float *x, int64_t count) {
  volatile float factor = 1, term = 0;
  const float m = factor, c = term;
  for (int64_t i = 0; i < count; i++) x[i] = x[i] * m + c;
}

const peak_kernel peak_generic = {loop, 2 * CHAINS *LANES, update};
