/* The body of every vec/<isa>.c, after its vocabulary. What is exact is compared bit by bit, with the C library or with a
 * restatement in double; what is rounded freely, in units of the last place. Arrays end at a page that may not be touched. */
#include <float.h>
#include <math.h>

#include "random.h"
#include "test.h"
#include "words.h"

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The same number, to the sign of a zero; or both NaN. */
static bool same(float x, float y) { return isnan(x) ? isnan(y) : bits_of(x) == bits_of(y); }

static void expect_same(const char *word, float got, float want) {
  if (!same(got, want)) fail_msg("%s: %.9g (%08x), not %.9g (%08x)", word, got, bits_of(got), want, bits_of(want));
}

static const float special[] = {0.0f,  -0.0f,  1.0f,     -1.0f,     0.5f, 2.5f,   3.5f,       -0.5f,   1e-45f,  -1e-40f,
                                3e38f, -3e38f, INFINITY, -INFINITY, NAN,  1e-20f, 8388607.5f, FLT_MIN, FLT_MAX, -7.0f};
enum { SPECIALS = sizeof special / sizeof *special };

/* Any pair of the special numbers, then numbers of all sizes. */
static float operand(rng *r, int n, int which) {
  if (n < SPECIALS * SPECIALS) return special[which ? n / SPECIALS : n % SPECIALS];
  return ldexpf((float)rng_uniform(r, -2, 2), (int)rng_uniform(r, -60, 60));
}
enum { PAIRS = SPECIALS * SPECIALS + 4000 };

/* Fills a, b and c with VL operands from the n-th on. */
static void operands(rng *r, int n, float *a, float *b, float *c) {
  for (int i = 0; i < VL; i++) {
    a[i] = operand(r, n + i, 0);
    b[i] = operand(r, n + i, 1);
    c[i] = operand(r, n + i, n & 1);
  }
}

static void test_partial_access(void **state) {
  (void)state;
  float full[VL];
  for (int i = 0; i < VL; i++) full[i] = (float)(i + 1);
  for (int n = 0; n <= VL; n++) {
    float *edge = test_floats((size_t)n), *inner = test_floats(VL), got[VL];
    v_store_n(edge, v_load(full), n);
    v_store_n(inner, v_load(full), n);
    v_store(got, v_load_n(edge, n));
    for (int i = 0; i < VL; i++) {
      expect_same("v_load_n", got[i], i < n ? full[i] : 0);
      assert_int_equal(bits_of(inner[i]), i < n ? bits_of(full[i]) : TEST_POISON);
    }
    test_lock(edge);
    v_store(got, v_load_upto(edge, n));
    for (int i = 0; i < VL; i++) expect_same("v_load_upto", got[i], i < n ? full[i] : 0);
  }
}

static void test_arithmetic(void **state) {
  (void)state;
  rng r = {1};
  for (int n = 0; n < PAIRS; n += VL) {
    float a[VL], b[VL], c[VL], got[8][VL];
    operands(&r, n, a, b, c);
    const vf x = v_load(a), y = v_load(b), z = v_load(c);
    v_store(got[0], v_add(x, y)), v_store(got[1], v_sub(x, y)), v_store(got[2], v_mul(x, y)), v_store(got[3], v_div(x, y));
    v_store(got[4], v_fma(x, y, z)), v_store(got[5], v_fnma(x, y, z)), v_store(got[6], v_abs(x)), v_store(got[7], v_round(x));
    for (int i = 0; i < VL; i++) {
      expect_same("v_add", got[0][i], a[i] + b[i]);
      expect_same("v_sub", got[1][i], a[i] - b[i]);
      expect_same("v_mul", got[2][i], a[i] * b[i]);
      expect_same("v_div", got[3][i], a[i] / b[i]);
      expect_same("v_fma", got[4][i], FUSED ? fmaf(a[i], b[i], c[i]) : a[i] * b[i] + c[i]);
      expect_same("v_fnma", got[5][i], FUSED ? fmaf(-a[i], b[i], c[i]) : c[i] - a[i] * b[i]);
      expect_same("v_abs", got[6][i], fabsf(a[i]));
      expect_same("v_round", got[7][i], rintf(a[i]));
    }
  }
}

static void test_choice(void **state) {
  (void)state;
  rng r = {2};
  for (int n = 0; n < PAIRS; n += VL) {
    float a[VL], b[VL], c[VL], got[6][VL];
    operands(&r, n, a, b, c);
    const vf x = v_load(a), y = v_load(b);
    v_store(got[0], v_max(x, y)), v_store(got[1], v_min(x, y)), v_store(got[2], v_keep(v_le(x, y), x));
    v_store(got[3], v_select(v_le(x, y), x, v_load(c))), v_store(got[4], v_nan_to_zero(x)),
        v_store(got[5], v_select(v_le(y, x), x, y));
    for (int i = 0; i < VL; i++) {
      if (a[i] != 0 || b[i] != 0) { /* which zero of two is free */
        expect_same("v_max", got[0][i], a[i] > b[i] ? a[i] : b[i]);
        expect_same("v_min", got[1][i], a[i] < b[i] ? a[i] : b[i]);
      }
      expect_same("v_keep", got[2][i], a[i] <= b[i] ? a[i] : 0);
      expect_same("v_select", got[3][i], a[i] <= b[i] ? a[i] : c[i]);
      expect_same("v_nan_to_zero", got[4][i], isnan(a[i]) ? 0 : a[i]);
      expect_same("v_select", got[5][i], b[i] <= a[i] ? a[i] : b[i]);
    }
  }
}

/* Whole numbers: their sums are exact in any order. */
static void test_sums(void **state) {
  (void)state;
  rng r = {3};
  for (int n = 0; n < 100; n++) {
    float rows[8][VL], *a = test_floats(4), *b = test_floats(4), want[8];
    vf v[8];
    for (int i = 0; i < 8; i++) {
      (i < 4 ? a : b)[i % 4] = want[i] = (float)(1000 * i + n);
      float sum = 0;
      for (int x = 0; x < VL; x++) sum += rows[i][x] = rintf((float)rng_uniform(&r, -1e5, 1e5));
      v[i] = v_load(rows[i]);
      expect_same("v_sum", v_sum(v[i]), sum + 0.0f);
      want[i] += sum;
    }
    v_add_sums(v, a, b);
    for (int i = 0; i < 8; i++) expect_same("v_add_sums", (i < 4 ? a : b)[i % 4], want[i]);
  }
}

static void test_transposed(void **state) {
  (void)state;
  for (int ld = VL; ld < VL + 4; ld++) {
    float *at = test_floats((size_t)((VL - 1) * ld + VL)), got[VL];
    for (int i = 0; i < VL; i++)
      for (int j = 0; j < VL; j++) at[i * ld + j] = (float)(100 * i + j);
    vf r[VL];
    v_load_transposed(at, ld, r);
    for (int j = 0; j < VL; j++) {
      v_store(got, r[j]);
      for (int i = 0; i < VL; i++) expect_same("v_load_transposed", got[i], (float)(100 * i + j));
    }
  }
}

/* x near 1, as the exponential's, and x of any size while the result is normal. */
static void test_ldexp(void **state) {
  (void)state;
  rng r = {4};
  for (int n = -250; n <= 250; n++) {
    float x[VL], e[VL], got[VL];
    for (int i = 0; i < VL; i++) {
      x[i] = (float)rng_uniform(&r, 0.5, 2);
      if (i % 2 && n > -100 && n < 100) x[i] = ldexpf(-x[i], (int)rng_uniform(&r, -20, 20));
      e[i] = (float)n;
    }
    v_store(got, v_ldexp(v_load(x), v_load(e)));
    for (int i = 0; i < VL; i++) expect_same("v_ldexp", got[i], ldexpf(x[i], n));
  }
}

/* |got - want| in units of the last place of want as a float; subnormal numbers have the smallest of them. */
static double units(float got, double want) {
  int exponent;
  frexp(want, &exponent);
  return fabs((double)got - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

/* The worst error of a function over [low, high], half of the points near 0. */
static double worst(vf (*function)(vf), double (*exact)(double), double low, double high) {
  rng r = {5};
  double most = 0;
  for (int n = 0; n < 20000; n += VL) {
    float x[VL], got[VL];
    for (int i = 0; i < VL; i++) {
      const double u = rng_uniform(&r, low, high);
      x[i] = (float)(i % 2 ? u * ldexp(1, (int)rng_uniform(&r, -40, 0)) : u);
    }
    v_store(got, function(v_load(x)));
    for (int i = 0; i < VL; i++) most = fmax(most, units(got[i], exact((double)x[i])));
  }
  return most;
}

static vf exp_word(vf x) { return v_exp(x); }
static vf log1p_word(vf x) { return v_log1p(x); }
static vf softplus_word(vf x) { return v_softplus(x); }
static vf sigmoid_word(vf x) { return v_sigmoid(x); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void test_functions(void **state) {
  (void)state;
  const struct {
    const char *name;
    double got, bound;
  } row[] = {{"v_exp", worst(exp_word, exp, -103, 88.7), 1.5},
             {"v_log1p", worst(log1p_word, log1p, 0, 1), 2},
             {"v_softplus", worst(softplus_word, softplus, -80, 80), 3},
             {"v_sigmoid", worst(sigmoid_word, sigmoid, -80, 80), 3}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    if (getenv("GDN2_TEST_VERBOSE")) print_message("  %s: %.2f units in the last place\n", row[i].name, row[i].got);
    assert_true(row[i].got > 0.4); /* no table of the answers */
    if (!(row[i].got <= row[i].bound)) fail_msg("%s is off by %.2f units in the last place", row[i].name, row[i].got);
  }
}

static void test_function_limits(void **state) {
  (void)state;
  const float in[] = {-INFINITY, -200, 0, 89, INFINITY, NAN};
  const float want_exp[] = {0, 0, 1, INFINITY, INFINITY, NAN}, want_softplus[] = {0, 0, (float)M_LN2, 89, INFINITY, NAN};
  const float want_sigmoid[] = {0, 0, 0.5f, 1, 1, NAN};
  for (size_t n = 0; n < sizeof in / sizeof *in; n++) {
    float got[VL];
    v_store(got, v_exp(v_set1(in[n])));
    for (int i = 0; i < VL; i++) expect_same("v_exp", got[i], want_exp[n]);
    v_store(got, v_softplus(v_set1(in[n])));
    expect_same("v_softplus", got[VL - 1], want_softplus[n]);
    v_store(got, v_sigmoid(v_set1(in[n])));
    expect_same("v_sigmoid", got[VL - 1], want_sigmoid[n]);
  }
}

/* The value of a 16-bit float with this many bits of exponent, whose bias is half its range. */
static float value_of(uint16_t h, int exponent_bits) {
  const int digits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1, e = (h & 0x7fff) >> digits;
  const int fraction = h & ((1 << digits) - 1);
  double x;
  if (e == (1 << exponent_bits) - 1)
    x = fraction ? (double)NAN : (double)INFINITY;
  else
    x = ldexp(fraction + (e ? 1 << digits : 0), (e ? e : 1) - bias - digits);
  return (float)(h & 0x8000 ? -x : x);
}

/* The float nearest to x that a 16-bit float can hold; of two, the even one. */
static float nearest(float x, int exponent_bits) {
  const int digits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  if (isnan(x) || isinf(x) || x == 0) return x;
  int e = ilogbf(x);
  if (e < 1 - bias) e = 1 - bias;
  const double rounded = ldexp(rint(ldexp((double)x, digits - e)), e - digits);
  return (float)(fabs(rounded) >= ldexp(1, bias + 1) ? copysign((double)INFINITY, (double)x) : rounded);
}

static vf load_16(const uint16_t *p, int n, int exponent_bits) {
  return exponent_bits == 8 ? v_load_bf16(p, n) : v_load_f16(p, n);
}
static void store_16(uint16_t *p, vf x, int n, int exponent_bits) {
  if (exponent_bits == 8)
    v_store_bf16(p, x, n);
  else
    v_store_f16(p, x, n);
}

/* All 16-bit numbers, and back; then floats between them, and at their middles. */
static void expect_16_bits(int exponent_bits) {
  rng r = {6};
  for (int h = 0; h < 65536; h += VL) {
    uint16_t in[VL], out[VL];
    float wide[VL], between[VL];
    for (int i = 0; i < VL; i++) in[i] = (uint16_t)(h + i);
    const vf x = load_16(in, VL, exponent_bits);
    v_store(wide, x);
    store_16(out, x, VL, exponent_bits);
    for (int i = 0; i < VL; i++) {
      expect_same("load of 16 bits", wide[i], value_of(in[i], exponent_bits));
      expect_same("store of what was loaded", value_of(out[i], exponent_bits), wide[i]);
      const float next = value_of((uint16_t)(in[i] + 1), exponent_bits);
      between[i] = i % 2 ? 0.5f * wide[i] + 0.5f * next : wide[i] + (float)rng_uniform(&r, 0, 1) * (next - wide[i]);
    }
    store_16(out, v_load(between), VL, exponent_bits);
    for (int i = 0; i < VL; i++)
      expect_same("store of 16 bits", value_of(out[i], exponent_bits), nearest(between[i], exponent_bits));
  }
  for (int n = 0; n < PAIRS; n += VL) {
    float a[VL], b[VL], c[VL];
    uint16_t out[VL];
    operands(&r, n, a, b, c);
    store_16(out, v_load(a), VL, exponent_bits);
    for (int i = 0; i < VL; i++) expect_same("store of 16 bits", value_of(out[i], exponent_bits), nearest(a[i], exponent_bits));
  }
}

/* NaN whose digits would round up to another number, or all away. */
static void expect_nan_16(int exponent_bits) {
  const uint32_t nans[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0xff800001, 0x7fc00000};
  for (size_t n = 0; n < sizeof nans / sizeof *nans; n++) {
    float x[VL];
    uint16_t out[VL];
    for (int i = 0; i < VL; i++) memcpy(x + i, nans + n, sizeof *x);
    store_16(out, v_load(x), VL, exponent_bits);
    for (int i = 0; i < VL; i++) assert_true(isnan(value_of(out[i], exponent_bits)));
  }
}

static void expect_partial_16(int exponent_bits) {
  float full[VL], got[VL];
  for (int i = 0; i < VL; i++) full[i] = (float)(i + 1);
  for (int n = 0; n <= VL + 2; n++) {
    const int count = n < VL ? n : VL;
    const size_t room = (size_t)(count + 1) / 2 * 2;
    uint16_t *edge = (uint16_t *)(void *)test_floats(room / 2) + room - (size_t)count, inner[VL];
    for (int i = 0; i < VL; i++) inner[i] = 0xabcd;
    store_16(edge, v_load(full), n, exponent_bits);
    store_16(inner, v_load(full), n, exponent_bits);
    v_store(got, load_16(edge, n, exponent_bits));
    for (int i = 0; i < VL; i++) {
      expect_same("part of 16-bit numbers", got[i], i < n ? full[i] : 0);
      if (i < n)
        expect_same("part of 16-bit numbers", value_of(inner[i], exponent_bits), full[i]);
      else
        assert_int_equal(inner[i], 0xabcd);
    }
  }
}

static void test_bf16(void **state) {
  (void)state;
  expect_16_bits(8);
  expect_nan_16(8);
  expect_partial_16(8);
}

static void test_f16(void **state) {
  (void)state;
  expect_16_bits(5);
  expect_nan_16(5);
  expect_partial_16(5);
}

#include "pairs_tmpl.c"

int WORDS(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_partial_access), TEST(test_arithmetic), TEST(test_choice),    TEST(test_sums),
      TEST(test_transposed),     TEST(test_ldexp),      TEST(test_functions), TEST(test_function_limits),
      TEST(test_bf16),           TEST(test_f16),        TEST(test_pairs),     TEST(test_two),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
