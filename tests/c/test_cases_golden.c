/* The bits of results, for every element type, against a table. The inputs are whole numbers over powers of two, and so small
 * that every sum and product in float32 is exact, in whatever order it is made: every instruction set, compiler and number of
 * threads must give these bits, and they move only if the arithmetic does, or if anything between the inputs and the last
 * rounding is kept in fewer than 24 bits. */
#include <math.h>

#include "gradient.h"
#include "random.h"
#include "test.h"

enum { B = 2, T = 53, H = 2, HV = 4, K = 8, V = 5, TYPES = 3 };

static double pick(rng *r, const double *from, uint64_t count) { return from[rng_next(r) % count]; }
/* One of -n/unit .. n/unit. */
static double fraction(rng *r, int n, double unit) { return ((double)(rng_next(r) % (uint64_t)(2 * n + 1)) - n) / unit; }

static void fill(double *x, size_t count, rng *r, int n, double unit) {
  for (size_t i = 0; i < count; i++) x[i] = fraction(r, n, unit);
}

/* Keys of one or two channels, +-1, with erase gates that turn, mirror or take away what they meet: states do not grow but for
 * what is written. */
static void fill_key(width_case *c, rng *r, int64_t b, int64_t t, int64_t h) {
  static const double single[] = {0, 1, 2}, sign[] = {-1, 1};
  double *k = width_row(c, W_K, b, t, h);
  const int i = (int)(rng_next(r) % K), j = (int)(rng_next(r) % K);
  const double other = rng_next(r) % 3 == 0 && i != j ? pick(r, sign, 2) : 0;
  memset(k, 0, K * sizeof *k);
  k[i] = pick(r, sign, 2);
  if (other != 0) k[j] = other;
  for (int64_t v = h * (HV / H); v < (h + 1) * (HV / H); v++)
    for (int d = 0; d < K; d++) width_row(c, W_B, b, t, v)[d] = other != 0 ? 1 : pick(r, single, 3);
}

static gradient_case golden(void) {
  static const double scale = 0.5, writes[] = {0.5, 1}, decays[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -INFINITY};
  rng r = {64};
  width_case c = width_new(64, B, T, H, HV, K, V);
  c.scale = &scale;
  fill(c.in[W_Q], width_count(&c, W_Q), &r, 2, 1);
  fill(c.in[W_V], width_count(&c, W_V), &r, 255, 64);
  fill(c.in[W_H0], width_count(&c, W_H0), &r, 255, 32);
  for (size_t i = 0; i < width_count(&c, W_G); i++) c.in[W_G][i] = pick(&r, decays, 16);
  for (size_t i = 0; i < width_count(&c, W_W); i++) c.in[W_W][i] = pick(&r, writes, 2);
  for (int64_t b = 0; b < B; b++)
    for (int64_t t = 0; t < T; t++)
      for (int64_t h = 0; h < H; h++) fill_key(&c, &r, b, t, h);
  gradient_case x = gradient_of(c, 65);
  fill(x.d_o, (size_t)(B * T * HV * V), &r, 7, 4);
  fill(x.dh_final, (size_t)(B * HV * K * V), &r, 7, 4);
  return x;
}

/* ---- Bits -------------------------------------------------------------------------------------------------------------------
 */

static uint64_t hash_of(uint64_t hash, uint32_t bits) {
  for (int i = 0; i < 4; i++) hash = (hash ^ (bits >> (8 * i) & 255)) * 0x100000001b3u;
  return hash;
}

static uint32_t bits_of(gdn2_dtype type, double exact) {
  const float x = (float)exact;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  /* Zeros of both signs are one result. */
  return exact == 0 ? 0 : type == GDN2_F32 ? bits : width_encode(type, exact);
}

/* What the library stored, beside what float64 has, which is exact; counts the numbers that the type cannot hold. */
static uint64_t compare(uint64_t hash, const char *name, gdn2_dtype type, size_t count, const float *values,
                        const uint16_t *coded, const double *exact, size_t *rounded) {
  for (size_t i = 0; i < count; i++) {
    if (exact[i] * 4096 != rint(exact[i] * 4096) || fabs(exact[i]) >= 4096) fail_msg("%s: %g is not exact", name, exact[i]);
    const uint32_t want = bits_of(type, exact[i]);
    const uint32_t got = values[i] == 0 ? 0 : type == GDN2_F32 ? bits_of(type, (double)values[i]) : coded[i];
    if (got != want) fail_msg("%s[%zu]: bits %#x instead of %#x, of %.9g", name, i, got, want, exact[i]);
    *rounded += type != GDN2_F32 && width_decode(type, (uint16_t)want) != exact[i];
    hash = hash_of(hash, got);
  }
  return hash;
}

/* FNV-1a over the bits of o and h_final, and of the seven gradients: float32, bfloat16, float16. A change of these numbers is a
 * change of the library's results, to be explained in CHANGELOG.md. */
static const uint64_t forward_table[TYPES] = {0xe2b92139f7f3acd8u, 0xd90d2c7e57d55b5bu, 0x8d727993d67b5121u};
static const uint64_t backward_table[TYPES] = {0x35925ed86829752cu, 0xb0fea29808c81e64u, 0x377312c4b145b3a7u};

static void expect_hash(const char *what, gdn2_dtype type, uint64_t got, uint64_t want) {
  if (got != want)
    fail_msg("%s, %s: the bits are %#llx, in the table %#llx", what, width_dtype_name(type), (unsigned long long)got,
             (unsigned long long)want);
}

static void test_forward(void **state) {
  (void)state;
  gradient_case x = golden();
  const width_truth exact = width_oracle(&x.c);
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    size_t rounded = 0, none = 0;
    gradient_set_type(&x, (gdn2_dtype)type);
    for (int threads = 1; threads <= 3; threads += 2) {
      const width_result got = width_run_as(&x.c, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){.threads = threads});
      uint64_t hash = 0xcbf29ce484222325u;
      hash = compare(hash, "o", (gdn2_dtype)type, (size_t)(B * T * HV * V), got.o, got.bits, exact.o, &rounded);
      hash = compare(hash, "h_final", GDN2_F32, (size_t)(B * HV * K * V), got.h_final, NULL, exact.h_final, &none);
      expect_hash("forward", (gdn2_dtype)type, hash, forward_table[type]);
    }
    assert_true(type == GDN2_F32 || rounded > 100); /* else the roundings are not seen */
  }
}

static void test_backward(void **state) {
  (void)state;
  gradient_case x = golden();
  const gradient_truth exact = gradient_oracle(&x);
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    size_t rounded = 0;
    gradient_set_type(&x, (gdn2_dtype)type);
    const gradients got = gradient_run_as(&x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = D_Q; i <= D_H0; i++) {
      const tensor t = gradient_tensor(&x, i);
      const gdn2_dtype stored = i == D_H0 ? GDN2_F32 : (gdn2_dtype)type;
      hash = compare(hash, t.name, stored, tensor_count(&t), got.values[i], got.bits[i], exact.values[i], &rounded);
    }
    expect_hash("backward", (gdn2_dtype)type, hash, backward_table[type]);
    assert_true(type == GDN2_F32 || rounded > 100);
  }
}

/* One bit of one number in another place gives another hash. */
static void test_the_hash_sees_a_bit(void **state) {
  (void)state;
  const float value[2] = {1.5F, 0.25F}, other[2] = {1.5F, 0.25390625F};
  const double exact[2] = {1.5, 0.25}, moved[2] = {1.5, 0.25390625};
  size_t none = 0;
  const uint64_t one = compare(1, "x", GDN2_F32, 2, value, NULL, exact, &none);
  assert_true(one != compare(1, "x", GDN2_F32, 2, other, NULL, moved, &none) &&
              one == compare(1, "x", GDN2_F32, 2, value, NULL, exact, &none));
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_forward), TEST(test_backward), TEST(test_the_hash_sees_a_bit)};
  return TEST_RUN(tests);
}
