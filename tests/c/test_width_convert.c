/* Element types: every 16-bit number through the library's loads, and the rounding of outputs at every boundary.
 *
 * A value passes unchanged through one token of the recurrence with K = 1, k = q = scale = 1 and no gates: o = v. */
#include <float.h>
#include <math.h>

#include "test.h"
#include "width.h"

enum { WIDE = GDN2_MAX_DIM, ALL = 65536 };

/* o = v for `count` numbers, a multiple of WIDE, as one sequence of one token for each WIDE of them. */
static void pass(const void *v, gdn2_dtype v_dtype, void *o, gdn2_dtype o_dtype, int64_t count) {
  static const float one = 1;
  static const double scale = 1;
  const gdn2_input unit = {&one, GDN2_F32, {0, 0, 0, 1}};
  const gdn2_forward_args args = {
      .struct_size = sizeof args,
      .problem =
          {.B = count / WIDE, .T = 1, .H = 1, .K = 1, .V = WIDE, .q = unit, .k = unit, .v = {v, v_dtype, {0}}, .scale = &scale},
      .o = {o, o_dtype, {0}}};
  if (gdn2_forward(&args) != GDN2_OK) fail_msg("gdn2_forward: %s", gdn2_last_error());
}

static uint16_t *halves(size_t count) { return (uint16_t *)(void *)test_floats((count + 1) / 2); }

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* What the engine makes of a number: subnormal float32 numbers are zeros to it. */
static double kept(double x) { return fabs(x) < (double)FLT_MIN ? 0 : x; }

/* ---- Loads ---- */

static void expect_every_number(gdn2_dtype dtype) {
  uint16_t *v = halves(ALL), *back = halves(ALL);
  float *o = test_floats(ALL);
  for (unsigned i = 0; i < ALL; i++) v[i] = (uint16_t)i;
  pass(v, dtype, o, GDN2_F32, ALL);
  pass(v, dtype, back, dtype, ALL);
  int finite = 0;
  for (unsigned i = 0; i < ALL; i++) {
    const double want = kept(width_decode(dtype, (uint16_t)i));
    finite += isfinite(want) && want != 0;
    if (!same_number((double)o[i], want))
      fail_msg("%s %#06x is read as %a, must be %a", width_dtype_name(dtype), i, (double)o[i], want);
    if (!same_number(width_decode(dtype, back[i]), want))
      fail_msg("%s %#06x comes back as %#06x", width_dtype_name(dtype), i, back[i]);
  }
  assert_int_equal(finite, dtype == GDN2_BF16 ? 65536 - 4 * 128 : 65536 - 2 * 1024 - 2); /* bfloat16 has 254 subnormal ones */
}

static void test_every_bf16(void **state) {
  (void)state;
  expect_every_number(GDN2_BF16);
}

static void test_every_f16(void **state) {
  (void)state;
  expect_every_number(GDN2_F16);
}

/* A 16-bit gate per head is read by another path: here w, one number per row, and v = 1. */
static void expect_every_gate(gdn2_dtype dtype) {
  static const double scale = 1;
  uint16_t *w = halves(ALL);
  float *ones = test_floats(1), *o = test_floats(ALL);
  ones[0] = 1;
  for (unsigned i = 0; i < ALL; i++) w[i] = (uint16_t)i;
  const gdn2_input unit = {ones, GDN2_F32, {0, 0, 0, 1}};
  const gdn2_forward_args args = {.struct_size = sizeof args,
                                  .problem = {.B = ALL,
                                              .T = 1,
                                              .H = 1,
                                              .K = 1,
                                              .V = 1,
                                              .q = unit,
                                              .k = unit,
                                              .v = unit,
                                              .w = gdn2_per_head(w, dtype, 1, 1),
                                              .scale = &scale},
                                  .o = {o, GDN2_F32, {0}}};
  assert_int_equal(gdn2_forward(&args), GDN2_OK);
  for (unsigned i = 0; i < ALL; i++)
    if (!same_number((double)o[i], kept(width_decode(dtype, (uint16_t)i))))
      fail_msg("gate %s %#06x is read as %a", width_dtype_name(dtype), i, (double)o[i]);
}

static void test_every_gate(void **state) {
  (void)state;
  expect_every_gate(GDN2_BF16);
  expect_every_gate(GDN2_F16);
}

/* ---- Stores ---- */

static float moved(float x, int steps) { return steps < 0 ? nextafterf(x, -INFINITY) : steps > 0 ? nextafterf(x, INFINITY) : x; }

/* Of every number x of the type: x, the middle between x and the next number away from 0, and the floats beside both. Beyond the
 * largest number, "the next" is what it would be without the limit. */
enum { AROUND = 6 };
static void around(gdn2_dtype dtype, uint16_t bits, float *six) {
  const double x = width_decode(dtype, bits);
  const double step =
      fabs(x) == INFINITY || isnan(x) ? 0 : fabs(width_decode(dtype, bits & 0x7fff) - width_decode(dtype, (bits & 0x7fff) ^ 1));
  const double middle = x + copysign(step / 2, x);
  for (int i = 0; i < AROUND; i++) six[i] = moved((float)(i < 3 ? x : middle), i % 3 - 1);
}

static void expect_rounded(gdn2_dtype dtype, const float *x, int64_t count) {
  uint16_t *o = halves((size_t)count);
  pass(x, GDN2_F32, o, dtype, count);
  for (int64_t i = 0; i < count; i++) {
    const uint16_t want = width_encode(dtype, (double)x[i]);
    const bool zero = kept((double)x[i]) == 0;
    const bool right = isnan(x[i]) ? isnan(width_decode(dtype, o[i])) : zero ? (o[i] & 0x7fff) == 0 : o[i] == want;
    if (!right)
      fail_msg("%s: %a (%.9g) is stored as %#06x, must be %#06x", width_dtype_name(dtype), (double)x[i], (double)x[i], o[i],
               want);
  }
}

static void expect_every_boundary(gdn2_dtype dtype) {
  float *x = test_floats((size_t)ALL * AROUND);
  for (unsigned i = 0; i < ALL; i++) around(dtype, (uint16_t)i, x + (size_t)i * AROUND);
  expect_rounded(dtype, x, (int64_t)ALL * AROUND);
}

static void test_every_boundary_bf16(void **state) {
  (void)state;
  expect_every_boundary(GDN2_BF16);
}

static void test_every_boundary_f16(void **state) {
  (void)state;
  expect_every_boundary(GDN2_F16);
}

/* Floats of random bits: every exponent, NaN of every kind among them. */
static void test_random_floats(void **state) {
  (void)state;
  rng r = {7};
  float *x = test_floats(ALL);
  int nans = 0;
  for (int i = 0; i < ALL; i++) {
    const uint32_t bits = (uint32_t)rng_next(&r);
    memcpy(x + i, &bits, sizeof bits);
    nans += isnan(x[i]);
  }
  assert_true(nans > 50);
  expect_rounded(GDN2_BF16, x, ALL);
  expect_rounded(GDN2_F16, x, ALL);
}

/* float32 goes through with its bits. */
static void test_floats_pass(void **state) {
  (void)state;
  rng r = {8};
  float *x = test_floats(ALL), *o = test_floats(ALL);
  for (int i = 0; i < ALL; i++) {
    const uint32_t bits = (uint32_t)rng_next(&r);
    memcpy(x + i, &bits, sizeof bits);
  }
  pass(x, GDN2_F32, o, GDN2_F32, ALL);
  for (int i = 0; i < ALL; i++)
    if (!same_number((double)o[i], kept((double)x[i]))) fail_msg("%a becomes %a", (double)x[i], (double)o[i]);
}

/* ---- The tests' own arithmetic, by known numbers ---- */

static void test_known_numbers(void **state) {
  (void)state;
  const struct {
    gdn2_dtype dtype;
    double x;
    uint16_t bits;
  } known[] = {
      {GDN2_BF16, 1, 0x3f80},          {GDN2_BF16, -2, 0xc000},       {GDN2_BF16, 0.9985, 0x3f80},
      {GDN2_BF16, 2.7726, 0x4031},     {GDN2_BF16, 0x1p-133, 0x0001}, {GDN2_BF16, 0x1p-134, 0x0000},
      {GDN2_BF16, 0x3p-134, 0x0002},   {GDN2_BF16, 0x1p128, 0x7f80},  {GDN2_BF16, 1 + 0x1p-8, 0x3f80},
      {GDN2_BF16, 1 + 0x3p-8, 0x3f82}, {GDN2_F16, 1, 0x3c00},         {GDN2_F16, 65504, 0x7bff},
      {GDN2_F16, 65519.99, 0x7bff},    {GDN2_F16, 65520, 0x7c00},     {GDN2_F16, 0x1p-24, 0x0001},
      {GDN2_F16, 0x1p-25, 0x0000},     {GDN2_F16, 0x1.8p-25, 0x0001}, {GDN2_F16, 0x1p-14, 0x0400},
      {GDN2_F16, -0x1p-14, 0x8400},    {GDN2_F16, 1.0 / 3, 0x3555},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    assert_int_equal(width_encode(known[i].dtype, known[i].x), known[i].bits);
  assert_true(width_decode(GDN2_F16, 0x3555) == 0.333251953125 && width_decode(GDN2_BF16, 0x4049) == 3.140625);
  for (unsigned i = 0; i < ALL; i++)
    for (int dtype = GDN2_BF16; dtype <= GDN2_F16; dtype++) {
      const double x = width_decode((gdn2_dtype)dtype, (uint16_t)i);
      if (!isnan(x)) assert_int_equal(width_encode((gdn2_dtype)dtype, x), i);
    }
}

/* Other roundings than the right one differ at the boundaries tried above: cut off, and half away from zero. */
static void test_boundaries_tell_roundings_apart(void **state) {
  (void)state;
  int cut = 0, away = 0;
  for (unsigned i = 0; i < 0x7f00; i++) {
    float six[AROUND];
    around(GDN2_BF16, (uint16_t)i, six);
    for (int n = 0; n < AROUND; n++) {
      uint32_t bits;
      memcpy(&bits, six + n, sizeof bits);
      cut += (uint16_t)(bits >> 16) != width_encode(GDN2_BF16, (double)six[n]);
      away += (uint16_t)((bits + 0x8000) >> 16) != width_encode(GDN2_BF16, (double)six[n]);
    }
  }
  assert_true(cut > 30000 && away > 15000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_known_numbers),      TEST(test_boundaries_tell_roundings_apart),
      TEST(test_every_bf16),         TEST(test_every_f16),
      TEST(test_every_gate),         TEST(test_every_boundary_bf16),
      TEST(test_every_boundary_f16), TEST(test_random_floats),
      TEST(test_floats_pass),
  };
  return TEST_RUN(tests);
}
