#include "random.h"

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

uint64_t lm_random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed) + stream) + (index + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

double lm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return ((double)(lm_random_bits(seed, stream, index) >> 12) + 0.5) * 0x1p-52;
}

float lm_random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  int32_t sum = 0;
  for (uint64_t draw = 0; draw < 3; draw++) {
    uint64_t bits = lm_random_bits(seed, stream, 3 * index + draw);
    for (int field = 0; field < 4; field++) sum += (int32_t)((bits >> (16 * field)) & 0xFFFF);
  }
  /* Each term has mean 65535 / 2 and variance (2^32 - 1) / 12; twelve of them have standard deviation 2^16 to ten digits. */
  return (float)(sum - 6 * 65535) * 0x1p-16f;
}
