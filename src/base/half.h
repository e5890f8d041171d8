/* The two 16-bit formats, one number at a time. Conversions to 16 bits round to nearest, ties to even; NaN stays NaN. */
#ifndef GDN2_BASE_HALF_H
#define GDN2_BASE_HALF_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float gdn2_float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t gdn2_bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float gdn2_from_bf16(uint16_t h) { return gdn2_float_of_bits((uint32_t)h << 16); }

static inline uint16_t gdn2_to_bf16(float x) {
  const uint32_t bits = gdn2_bits_of_float(x);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A subnormal is a whole multiple of 2^-24: no float on the way is subnormal, whatever the processor does with those. */
static inline float gdn2_from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
  if ((h & 0x7c00) == 0x7c00) return gdn2_float_of_bits(sign | rest | 0x7f800000);
  if ((h & 0x7c00) == 0) return gdn2_float_of_bits(sign | gdn2_bits_of_float((float)(h & 0x3ff) * 0x1p-24f));
  return gdn2_float_of_bits(sign | (rest + 0x38000000));
}

/* A float16 is a whole multiple of its unit in the last place, 2^-24 where it is subnormal: rintf rounds to that multiple. */
static inline uint16_t gdn2_to_f16(float x) {
  const uint32_t sign = gdn2_bits_of_float(x) >> 16 & 0x8000;
  const float size = fabsf(x);
  if (x != x) return (uint16_t)(sign | 0x7e00 | (gdn2_bits_of_float(x) >> 13 & 0x3ff));
  if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00);
  if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)rintf(size * 0x1p24f));
  const uint32_t bits = gdn2_bits_of_float(size);
  return (uint16_t)(sign | ((bits + 0xfff + (bits >> 13 & 1)) - 0x38000000) >> 13);
}
#endif
