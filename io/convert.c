/* convert.c - float32 and float64 from and to the element types of the files. */
#include <math.h>
#include <string.h>

#include "tensor_file.h"

static const struct {
  const char *name;
  size_t bytes;
} types[] = {[IO_F32] = {"F32", 4}, [IO_F64] = {"F64", 8}, [IO_F16] = {"F16", 2},    [IO_BF16] = {"BF16", 2},
             [IO_I32] = {"I32", 4}, [IO_I64] = {"I64", 8}, [IO_OTHER] = {"other", 0}};

size_t io_dtype_bytes(io_dtype dtype) { return types[dtype].bytes; }
const char *io_dtype_name(io_dtype dtype) { return types[dtype].name; }

static uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* The top bits of x after rounding away the low `drop` bits to nearest even. A carry into the exponent is the right result. */
static uint32_t round_off(uint32_t x, unsigned drop) { return (x + (1u << (drop - 1)) - 1 + ((x >> drop) & 1)) >> drop; }

float io_bf16_to_f32(uint16_t x) { return float_of((uint32_t)x << 16); }

uint16_t io_f32_to_bf16(float x) {
  uint32_t u = bits_of(x);
  if (isnan(x)) return (uint16_t)(u >> 16 | 0x40); /* quiet, so that a payload in the low bits alone does not become infinity */
  return (uint16_t)round_off(u, 16);
}

float io_f16_to_f32(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) return float_of(sign | bits_of((float)fraction * 0x1p-24f)); /* zero and subnormals */
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t io_f32_to_f16(float x) {
  uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520, half-way between the largest and 2^16, rounds up */
  /* Below 2^-14 the unit of float16 is 2^-24: adding 0.5, whose unit in float32 is the same, rounds to it. */
  if (magnitude < 0x38800000) return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
  return (uint16_t)(sign | round_off(magnitude - (112u << 23), 13));
}

static float element(io_dtype dtype, const void *from, int64_t i, int *fits) {
  if (dtype == IO_F32) return ((const float *)from)[i];
  if (dtype == IO_F16) return io_f16_to_f32(((const uint16_t *)from)[i]);
  if (dtype == IO_BF16) return io_bf16_to_f32(((const uint16_t *)from)[i]);
  double x = ((const double *)from)[i];
  float y = (float)x;
  *fits = isfinite(y) || !isfinite(x);
  return y;
}

int64_t io_to_f32(io_dtype dtype, const void *from, float *to, int64_t count) {
  int64_t bad = -1;
  for (int64_t i = 0; i < count; i++) {
    int fits = 1;
    to[i] = element(dtype, from, i, &fits);
    if (!fits && bad < 0) bad = i;
  }
  return bad;
}

int64_t io_from_f32(io_dtype dtype, const float *from, void *to, int64_t count) {
  int64_t lost = 0;
  for (int64_t i = 0; i < count; i++) {
    float x = from[i];
    if (dtype == IO_F32) ((float *)to)[i] = x;
    if (dtype == IO_F64) ((double *)to)[i] = (double)x;
    if (dtype == IO_F16) {
      ((uint16_t *)to)[i] = io_f32_to_f16(x);
      lost += isfinite(x) && isinf(io_f16_to_f32(((uint16_t *)to)[i]));
    }
    if (dtype == IO_BF16) {
      ((uint16_t *)to)[i] = io_f32_to_bf16(x);
      lost += isfinite(x) && isinf(io_bf16_to_f32(((uint16_t *)to)[i]));
    }
  }
  return lost;
}

/* x in float32, such that rounding it further to 16 bits is rounding x: cut off instead of rounded, and the last bit set where
 * anything was cut off. A number beyond float32 is cut to the largest of them, which becomes infinite in float16, and in bfloat16
 * too. */
static float cut(double x) {
  float y = (float)x;
  if (isnan(x) || (double)y == x) return y;
  if (fabs((double)y) > fabs(x)) y = float_of(bits_of(y) - 1);
  return float_of(bits_of(y) | 1);
}

int64_t io_from_f64(io_dtype dtype, const double *from, void *to, int64_t count) {
  int64_t lost = 0;
  for (int64_t i = 0; i < count; i++) {
    if (dtype == IO_F64) ((double *)to)[i] = from[i];
    if (dtype == IO_F32) ((float *)to)[i] = (float)from[i];
    if (dtype == IO_F32) lost += isfinite(from[i]) && isinf(((float *)to)[i]);
    if (dtype != IO_F16 && dtype != IO_BF16) continue;
    const float x = cut(from[i]);
    (void)io_from_f32(dtype, &x, (uint16_t *)to + i, 1);
    lost += isfinite(from[i]) && isinf(element(dtype, to, i, &(int){0}));
  }
  return lost;
}
