/* States of bfloat16 on machines that round to it themselves: the bits are those of the arithmetic that stands in for it
 * elsewhere. */
#include <math.h>

#include "isa/table.h"
#include "test.h"

enum { B = 2, H = 2, SPECIAL = 16 };

typedef struct {
  int64_t T, K, V;
  const uint16_t *before; /* [B, H, K, V] */
  bool by_rows;           /* V x K */
  float size;             /* of q, k and v: small ones leave every bit of the state its weight */
} decode_case;

static uint64_t mixed(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static float *numbers(size_t count, uint64_t seed, float low, float high) {
  float *x = test_floats(count);
  for (size_t i = 0; i < count; i++) x[i] = low + (high - low) * (float)(mixed(&seed) % 65536) / 65536;
  return x;
}

static size_t state_count(const decode_case *c) { return (size_t)(B * H * c->K * c->V); }

/* Numbers of every exponent that stays finite here, subnormal ones among them, and for a few values infinities and NaN. */
static const uint16_t *states(int64_t K, int64_t V, bool by_rows, uint64_t seed) {
  static const uint16_t special[SPECIAL] = {0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fff, 0xffff,
                                            0x0001, 0x8001, 0x007f, 0x807f, 0x0080, 0x8080, 0x0000, 0x8000};
  uint16_t *x = test_workspace((size_t)(B * H * K * V) * sizeof *x);
  for (int64_t i = 0; i < B * H * K * V; i++) {
    const uint64_t bits = mixed(&seed);
    x[i] = (uint16_t)(bits % 3 ? bits >> 8 & 0xbfff : (bits >> 8 & 0x807f) | 0x3f00); /* below 2, a third near 1 */
    if ((by_rows ? i / K % V : i % V) % 16 == 3 && bits % 8 == 0) x[i] = special[(bits >> 10) % SPECIAL];
  }
  return x;
}

/* The states after the tokens, on GDN2_ISA=isa. */
static uint16_t *decode(const decode_case *c, const char *isa, float *o) {
  const size_t rows = (size_t)(B * c->T * H), bytes = state_count(c) * sizeof(uint16_t);
  const int64_t K = c->K, V = c->V;
  uint16_t *state = memcpy(test_workspace(bytes), c->before, bytes);
  gdn2_step_args a = {.struct_size = sizeof a, .problem = {.B = B, .T = c->T, .H = H, .K = K, .V = V}, .exec = {.threads = 1}};
  gdn2_problem *p = &a.problem;
  p->q.data = numbers(rows * (size_t)K, 1, -c->size, c->size);
  p->k.data = numbers(rows * (size_t)K, 2, -c->size, c->size);
  p->v.data = numbers(rows * (size_t)V, 3, -c->size, c->size);
  p->g.data = numbers(rows * (size_t)K, 4, -0.5f, -0.001f);
  p->b.data = numbers(rows * (size_t)K, 5, 0, 1);
  p->w.data = numbers(rows * (size_t)V, 6, 0, 1);
  a.o.data = o;
  a.from = (gdn2_input){.data = state, .dtype = GDN2_BF16};
  a.to = (gdn2_output){.data = state, .dtype = GDN2_BF16};
  const int64_t steps[4] = {H * K * V, K * V, 1, K};
  if (c->by_rows) memcpy(a.from.stride, steps, sizeof steps), memcpy(a.to.stride, steps, sizeof steps);
  assert_int_equal(setenv("GDN2_ISA", isa, 1), 0);
  assert_int_equal(gdn2_step(&a), GDN2_OK);
  return state;
}

static bool is_nan(uint16_t x) { return (x & 0x7fff) > 0x7f80; }

static size_t differing(const uint16_t *x, const uint16_t *y, size_t count) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++) n += x[i] != y[i] && !(is_nan(x[i]) && is_nan(y[i]));
  return n;
}

static void expect_same_bits(const decode_case *c) {
  const size_t count = state_count(c), outputs = (size_t)(B * c->T * H * c->V);
  float *o = test_floats(outputs), *emulated_o = test_floats(outputs);
  const uint16_t *got = decode(c, "avx512_bf16", o), *want = decode(c, "avx512", emulated_o);
  assert_int_equal(differing(got, want, count), 0);
  for (size_t i = 0; i < outputs; i++) assert_true(o[i] == emulated_o[i] || (isnan(o[i]) && isnan(emulated_o[i])));
  size_t nan = 0;
  for (size_t i = 0; i < count; i++) nan += is_nan(want[i]);
  assert_true(differing(want, c->before, count) > count / 4 && nan > 0 && nan < count / 4);
}

static const gdn2_table *chosen(gdn2_isa wanted, const char *environment) {
  const gdn2_table *table = NULL;
  assert_int_equal(setenv("GDN2_ISA", environment, 1), 0);
  assert_int_equal(gdn2_table_choose(wanted, &table), GDN2_OK);
  assert_int_equal(table->isa, GDN2_ISA_AVX512);
  return table;
}

/* Else the bits below would be compared with themselves. */
static void test_choice(void **state) {
  (void)state;
  const gdn2_table *plain = chosen(GDN2_ISA_AUTO, "avx512"), *best = chosen(GDN2_ISA_AUTO, "avx512_bf16");
  assert_ptr_not_equal(plain->step->walk, best->step->walk);
  assert_ptr_equal(chosen(GDN2_ISA_AVX512, "avx512"), plain);
  assert_ptr_equal(chosen(GDN2_ISA_AVX512, "avx512_bf16"), best);
  assert_ptr_equal(chosen(GDN2_ISA_AVX512, "generic"), best);
  assert_ptr_equal(chosen(GDN2_ISA_AVX512, ""), best);
  assert_ptr_equal(chosen(GDN2_ISA_AUTO, ""), best);
}

static void test_bits(void **state) {
  (void)state;
  static const int64_t K[] = {128, 64, 32, 40, 7, 256}, V[] = {128, 64, 96, 24, 33, 160};
  for (int n = 0; n < 6; n++)
    for (int by_rows = 0; by_rows < 2; by_rows++)
      for (int64_t T = 1; T <= 2; T++) {
        const void *mark = test_mark();
        const uint16_t *before = states(K[n], V[n], by_rows, (uint64_t)(10 + n));
        expect_same_bits(&(decode_case){T, K[n], V[n], before, by_rows, n % 2 ? 1 : 1e-3f});
        test_release_to(mark);
      }
}

int main(void) {
  setenv("GDN2_ISA", "avx512_bf16", 1);
  const struct CMUnitTest tests[] = {TEST(test_choice), TEST(test_bits)};
  return TEST_RUN(tests);
}
