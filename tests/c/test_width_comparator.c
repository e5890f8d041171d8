/* The tests of this group tested: what a library with a known fault would compute is rejected by the comparisons they use. */
#include <math.h>

#include "test.h"
#include "width.h"

static const int64_t cu[] = {0, 17, 36, 50}, shifted[] = {0, 16, 36, 50};

/* A problem with every option on. */
static width_case full(void) {
  width_case c = width_new(600, 1, 50, 2, 6, 24, 24);
  width_make_key_gate(&c, W_G);
  width_cut(&c, cu, 3, 601);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 602);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 603);
  width_set_dtypes(&c, GDN2_BF16);
  for (int i = W_G; i <= W_W; i++) {
    width_set_dtype(&c, i, GDN2_F32);
    for (size_t x = 0; x < width_count(&c, i); x++) c.in[i][x] += 0x1p-12; /* not bfloat16 numbers */
  }
  c.l2norm = true;
  return c;
}

/* ---- Faults, put into the problem that the oracle solves ---- */

static void swapped_map(width_case *c) { c->map = GDN2_HEADS_TILED; }

static void gates_per_value_head(width_case *c) {
  /* The key gate of head j % H instead of the map's: what reading g by the other map would give. */
  width_case other = *c;
  other.map = GDN2_HEADS_TILED;
  width_case whole = width_repeated(&other);
  const width_case right = width_repeated(c);
  for (int i = 0; i < W_INPUTS; i++)
    if (i != W_G && i != W_A && i != W_DT) whole.in[i] = right.in[i];
  *c = whole;
}

static void erase_once(width_case *c) { c->erase = GDN2_GATE_SIGMOID; }
static void write_raw(width_case *c) { c->write = GDN2_GATE_GIVEN; }
static void no_norm(width_case *c) { c->l2norm = false; }
static void no_bias(width_case *c) { c->in[W_DT] = NULL; }
static void bias_per_head(width_case *c) { width_make_per_head(c, W_DT); }
static void finished_decay(width_case *c) { c->decay = GDN2_DECAY_BOUNDED; }

static void rate_of_head_zero(width_case *c) {
  width_own(c, W_A);
  c->in[W_A][1] = c->in[W_A][0];
}

static void coarse_rate(width_case *c) { width_set_dtype(c, W_A, GDN2_BF16); }
static void coarse_decays(width_case *c) { width_set_dtype(c, W_G, GDN2_BF16); }
static void coarse_erase(width_case *c) { width_set_dtype(c, W_B, GDN2_BF16); }
static void coarse_write(width_case *c) { width_set_dtype(c, W_W, GDN2_BF16); }
static void other_offsets(width_case *c) { c->cu = shifted; }
static void no_state(width_case *c) { c->in[W_H0] = NULL; }

static void state_of_next_sequence(width_case *c) {
  const size_t count = width_count(c, W_H0) / 3;
  double *h0 = test_doubles(3 * count);
  for (size_t n = 0; n < 3; n++) memcpy(h0 + n * count, c->in[W_H0] + (n + 1) % 3 * count, count * sizeof *h0);
  c->in[W_H0] = h0;
}

static void transposed_state(width_case *c) {
  const size_t K = (size_t)c->K;
  double *h0 = test_doubles(width_count(c, W_H0));
  for (size_t i = 0; i < width_count(c, W_H0); i++) h0[i] = c->in[W_H0][i / (K * K) * K * K + i % K * K + i / K % K];
  c->in[W_H0] = h0;
}

static void scale_of_values(width_case *c) {
  static const double scale = 0.25;
  c->scale = &scale;
}

static void one_sequence(width_case *c) {
  static const int64_t all[] = {0, 50, 50, 50};
  c->cu = all;
}

typedef void fault(width_case *c);

static void test_faults_are_rejected(void **state) {
  (void)state;
  static fault *const faults[] = {
      swapped_map,    gates_per_value_head,   erase_once,       write_raw,       no_norm,      no_bias,      bias_per_head,
      finished_decay, rate_of_head_zero,      coarse_rate,      coarse_decays,   coarse_erase, coarse_write, other_offsets,
      no_state,       state_of_next_sequence, transposed_state, scale_of_values, one_sequence};
  const width_case c = full();
  const width_truth want = width_oracle(&c);
  const width_result got = width_run(&c, GDN2_F32);
  width_expect_right(&c, &got, &want, 1e-6);
  for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) {
    width_case wrong = c;
    faults[n](&wrong);
    const width_truth other = width_oracle(&wrong);
    const double error = width_error(&c, &got, &other);
    if (!(error > 1e-5)) fail_msg("fault %zu moves o by %.2e only: the tests would not see it", n, error);
  }
}

/* The expansion that the oracle works on, said in another way: a hand-written problem of one token. */
static void test_oracle_by_hand(void **state) {
  (void)state;
  static const double scale = 2;
  width_case c = width_new(610, 1, 1, 1, 2, 1, 1);
  c.scale = &scale;
  c.l2norm = true;
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 611);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 612);
  const width_truth got = width_oracle(&c);
  for (int j = 0; j < 2; j++) {
    const double q = c.in[W_Q][0] / sqrt(c.in[W_Q][0] * c.in[W_Q][0] + 1e-6);
    const double k = c.in[W_K][0] / sqrt(c.in[W_K][0] * c.in[W_K][0] + 1e-6);
    const double g = -exp(c.in[W_A][j]) * log(1 + exp(c.in[W_G][j] + c.in[W_DT][j]));
    const double b = 2 / (1 + exp(-c.in[W_B][j])), w = 1 / (1 + exp(-c.in[W_W][j]));
    const double old = exp(g) * c.in[W_H0][j], fresh = old + k * (w * c.in[W_V][j] - b * k * old);
    assert_true(fabs(got.h_final[j] - fresh) < 1e-14 && fabs(got.o[j] - 2 * q * fresh) < 1e-14);
  }
}

/* ---- Each of these must fail; the program runs them apart and counts the failures ---- */

static width_case planted;
static width_truth truth;

static width_result answer(gdn2_dtype type) {
  planted = full();
  truth = width_oracle(&planted);
  return width_run(&planted, type);
}

/* Cut off instead of rounded, everywhere. */
static void must_fail_cut_off(void **state) {
  (void)state;
  width_result r = answer(GDN2_BF16);
  const width_result single = width_run(&planted, GDN2_F32);
  for (int64_t i = 0; i < 50 * 6 * 24; i++) {
    uint32_t bits;
    memcpy(&bits, single.o + i, sizeof bits);
    r.bits[i] = (uint16_t)(bits >> 16);
    r.o[i] = (float)width_decode(GDN2_BF16, r.bits[i]);
  }
  width_expect_right(&planted, &r, &truth, 1e-6);
}

/* Rounded twice: to float16, then to bfloat16. */
static void must_fail_rounded_twice(void **state) {
  (void)state;
  width_result r = answer(GDN2_BF16);
  const width_result single = width_run(&planted, GDN2_F32);
  for (int64_t i = 0; i < 50 * 6 * 24; i++) r.bits[i] = width_encode(GDN2_BF16, width_round(GDN2_F16, (double)single.o[i]));
  width_expect_rounded(&planted, &r, &single);
}

static void must_fail_one_unit(void **state) {
  (void)state;
  const width_result r = answer(GDN2_F16), same = width_run(&planted, GDN2_F16);
  r.bits[777] ^= 1;
  width_expect_equal(&planted, &r, &same);
}

static void must_fail_state_bit(void **state) {
  (void)state;
  const width_result r = answer(GDN2_F16), same = width_run(&planted, GDN2_F16);
  r.h_final[99] = nextafterf(r.h_final[99], 9);
  width_expect_equal(&planted, &r, &same);
}

static void must_fail_rows_left_unwritten(void **state) {
  (void)state;
  const width_result r = answer(GDN2_F32);
  for (int i = 0; i < 24; i++) r.o[7000 + i] = NAN;
  width_expect_right(&planted, &r, &truth, 1e-6);
}

/* A 16-bit write just beside an addressed element, within one word of it. */
static void must_fail_write_in_a_gap(void **state) {
  (void)state;
  static const width_layout padded = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 1}, {1, 1, 1, 1}, TEST_AT_END};
  const tensor t = {"o", {1, 2, 2, 3}};
  const width_buffer x = width_buffer_new(t, GDN2_BF16, &padded, false, false);
  width_buffer_expect_gaps(&x);
  memset(x.first + 3 * 2, 0, 2);
  width_buffer_expect_gaps(&x);
}

static void must_fail_write_before(void **state) {
  (void)state;
  const tensor t = {"o", {1, 1, 1, 3}};
  const width_buffer x = width_buffer_new(t, GDN2_F16, &width_contiguous, false, false);
  width_buffer_expect_gaps(&x);
  memset(x.first - 2, 0, 2);
  width_buffer_expect_gaps(&x);
}

static void must_fail_touched(void **state) {
  (void)state;
  const tensor t = {"o", {1, 1, 1, 3}};
  const width_buffer x = width_buffer_new(t, GDN2_F16, &width_contiguous, false, false);
  width_buffer_expect_untouched(&x);
  memset(x.first + 2, 0, 2);
  width_buffer_expect_untouched(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_faults_are_rejected), TEST(test_oracle_by_hand)};
  const struct CMUnitTest failing[] = {
      TEST(must_fail_cut_off),
      TEST(must_fail_rounded_twice),
      TEST(must_fail_one_unit),
      TEST(must_fail_state_bit),
      TEST(must_fail_rows_left_unwritten),
      TEST(must_fail_write_in_a_gap),
      TEST(must_fail_write_before),
      TEST(must_fail_touched),
  };
  enum { FAILING = sizeof failing / sizeof *failing };
  const int missing = test_isa_missing();
  if (missing) return missing;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  const int caught = cmocka_run_group_tests_name("all of these must fail", failing, NULL, NULL);
  return failed || caught != FAILING;
}
