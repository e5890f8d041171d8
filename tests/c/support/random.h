/* The tests' own random numbers: seeded, the same on every machine. */
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H
#include <math.h>
#include <stdint.h>

typedef struct rng {
  uint64_t state;
} rng;

/* splitmix64 */
static inline uint64_t rng_next(rng *r) {
  uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline double rng_uniform(rng *r, double low, double high) {
  return low + (high - low) * ((double)(rng_next(r) >> 11) * 0x1p-53);
}

static inline double rng_normal(rng *r) {
  const double u = rng_uniform(r, 1e-300, 1.0), angle = rng_uniform(r, 0.0, 6.283185307179586);
  return sqrt(-2.0 * log(u)) * cos(angle);
}
#endif
