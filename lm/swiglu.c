#include "lm/parts.h"
#include <string.h>

/* The same C for each instruction set; without contraction, the same bits. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(LM_ONE_ISA) && !defined(LM_FLOAT64)
#define EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_ISA
#endif

#ifdef LM_FLOAT64
static inline real exponential(real x) { return exp(x); }
#else
/* e^x to 2 ulp, in operations that a compiler makes vectors of: x = n log 2 + r, |r| <= log(2) / 2, e^x = 2^n e^r. Below -87 it
 * stays at e^-87, which no sum with 1 notices; so above 87. */
static inline real exponential(real x) {
  const float low = -87, high = 87;
  x = x < low ? low : x > high ? high : x;
  const float shifted = x * 1.44269504f + 0x1.8p23f, n = shifted - 0x1.8p23f;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1;
  sum = sum * r + 1;
  /* The low bits of `shifted` are n: moved up, with the bias, they are the exponent of 2^n. */
  uint32_t bits;
  float power;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + (UINT32_C(127) << 23);
  memcpy(&power, &bits, sizeof power);
  return sum * power;
}
#endif

/* h = a s b, s = sigmoid(a). */
EACH_ISA static void row_forward(real *restrict h, const real *restrict a, const real *restrict b, int64_t F) {
  for (int64_t i = 0; i < F; i++) h[i] = a[i] / (1 + exponential(-a[i])) * b[i];
}

/* da = dh b s (1 + a (1 - s)), db = dh a s. */
EACH_ISA static void row_backward(real *restrict da, real *restrict db, const real *restrict dh, const real *restrict a,
                                  const real *restrict b, int64_t F) {
  for (int64_t i = 0; i < F; i++) {
    const real s = 1 / (1 + exponential(-a[i])), d = dh[i];
    da[i] = d * b[i] * s * (1 + a[i] * (1 - s));
    db[i] = d * a[i] * s;
  }
}

void lm_swiglu_forward(real *h, const real *u, int64_t T, int64_t F) {
  LM_PARALLEL_FOR(16 * T * F)
  for (int64_t t = 0; t < T; t++) row_forward(h + t * F, u + t * 2 * F, u + t * 2 * F + F, F);
}

void lm_swiglu_backward(real *du, const real *dh, const real *u, int64_t T, int64_t F) {
  LM_PARALLEL_FOR(16 * T * F)
  for (int64_t t = 0; t < T; t++) {
    const int64_t row = t * 2 * F;
    row_backward(du + row, du + row + F, dh + t * F, u + row, u + row + F, F);
  }
}
