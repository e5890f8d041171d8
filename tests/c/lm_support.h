/* lm_support.h - what the tests of lm/ share: test data, and a comparison with float64 that cannot pass by being empty. */
#ifndef GDN2_TESTS_LM_SUPPORT_H
#define GDN2_TESTS_LM_SUPPORT_H
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Uniform in [-size, size); a sequence of its own for each seed, and not the generator under test. */
static inline void fill(float *x, int64_t count, uint32_t seed, float size) {
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < count; i++) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    x[i] = ((float)(state >> 8) * 0x1p-23f - 1) * size;
  }
}

/* |got - want| / |want| in the L2 norm; 1 if want is small, NaN if got has one. */
static inline double relative_l2(const float *got, const double *want, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return norm > 1e-6 * (double)count ? sqrt(difference / norm) : 1;
}

/* Fails unless got is within tolerance of want; want must not be small. */
static inline void assert_near(const char *what, const float *got, const double *want, int64_t count, double tolerance) {
  double error = relative_l2(got, want, count);
  if (!(error <= tolerance)) fail_msg("%s: relative L2 error %.3g, allowed %.3g", what, error, tolerance);
}
#endif
