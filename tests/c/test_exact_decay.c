/* Decays from none to total: errors must not grow with the decay, nothing may overflow, -infinity is a reset. */
#include <float.h>
#include <math.h>

#include "exact.h"
#include "test.h"

/* What counts as zero in a gradient whose true size is below the smallest float32. */
#define TINY 1e-30

static void expect_right_and_finite(const exact_case *c) {
  const void *mark = test_mark();
  const results got = engine_run(c);
  const oracle want = oracle_run(c);
  expect_right_to_unit(c, &got, &want, 2e-6, TINY);
  test_release_to(mark);
}

/* ---- Strong decays, in every place ---- */

typedef enum spread { EVERYWHERE, ONE_CHANNEL, ONE_TOKEN_IN_16, SPREADS } spread;

static void spread_decay(exact_case *c, double g, spread how, double elsewhere) {
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t t = 0; t < c->T; t++)
      for (int64_t h = 0; h < c->H; h++)
        for (int64_t d = 0; d < c->K; d++) {
          const bool strong = how == EVERYWHERE || (how == ONE_CHANNEL && d == 1) || (how == ONE_TOKEN_IN_16 && t % 16 == 5);
          case_row(c, IN_G, b, t, h)[d] = (float)(strong ? g : elsewhere);
        }
}

static void test_strong_decays(void **state) {
  (void)state;
  const double decays[] = {-20, log(1e-12), -88, -104, -150, -1000, -INFINITY};
  for (int n = 0; n < 7; n++)
    for (spread how = EVERYWHERE; how < SPREADS; how++) {
      exact_case c = case_trained(800, 1, 64, 2, 32, 32);
      spread_decay(&c, decays[n], how, how == ONE_CHANNEL ? 0 : -0.01);
      expect_right_and_finite(&c);
    }
}

/* A trained layer's decays with strong ones scattered through them, at lengths around a chunk. */
static void test_scattered_strong_decays(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 15, 16, 17, 63, 64, 65, 130};
  for (int n = 0; n < 8; n++) {
    exact_case c = case_trained(810 + (uint64_t)n, 1, lengths[n], 2, 24, 20);
    rng r = {(uint64_t)n};
    for (size_t i = 0; i < input_count(&c, IN_G); i++) {
      const double u = rng_uniform(&r, 0, 1);
      if (u < 0.1) c.in[IN_G][i] = u < 0.03 ? -INFINITY : u < 0.06 ? -150 : -20;
    }
    expect_right_and_finite(&c);
  }
}

static void test_uniform_strong_decays(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 63, 64, 65};
  for (int n = 0; n < 4; n++) {
    exact_case c = case_trained(820 + (uint64_t)n, 2, lengths[n], 2, 16, 12);
    rng r = {(uint64_t)n};
    for (size_t i = 0; i < input_count(&c, IN_G); i++) c.in[IN_G][i] = (float)rng_uniform(&r, -20, -5);
    expect_right_and_finite(&c);
  }
}

/* ---- Flatness: the relative error is the same at every decay ---- */

/* The error of each output at one decay; dg apart, since it vanishes below the smallest float32 beyond -87. */
static void errors_at(double g, bool per_head, double error[OUTPUTS]) {
  const void *mark = test_mark();
  exact_case c = case_trained(830, 1, 130, 2, 64, 64);
  spread_decay(&c, g, EVERYWHERE, 0);
  if (per_head) case_make_per_head(&c, IN_G);
  const results got = engine_run(&c);
  const oracle want = oracle_run(&c);
  for (int i = 0; i < OUTPUTS; i++) {
    const tensor t = output_tensor(&c, i);
    error[i] = expect_close_to_unit(&t, got.out[i], want.out[i], 1e-6, TINY);
  }
  test_release_to(mark);
}

static void expect_flat(bool per_head) {
  const double sweep[] = {-0.1, -1, -2, -2.5, -3, -4, -5, -5.9, -6, -8, -20, -60, -88, -104, -1e3};
  double first[OUTPUTS], here[OUTPUTS];
  errors_at(sweep[0], per_head, first);
  for (size_t n = 1; n < sizeof sweep / sizeof *sweep; n++) {
    errors_at(sweep[n], per_head, here);
    for (int i = 0; i < OUTPUTS; i++)
      if (here[i] > 2 * first[i] + 1e-7)
        fail_msg("output %d: error %.2e at g = %g, but %.2e at -0.1", i, here[i], sweep[n], first[i]);
  }
}

static void test_error_is_flat(void **state) {
  (void)state;
  expect_flat(false);
}

static void test_error_is_flat_per_head(void **state) {
  (void)state;
  expect_flat(true);
}

/* Where e^g is close to 1 its rounding repeats at every token, and a token loop in float32 is off by 1e-5 after 1000 of them. */
static void test_long_memories(void **state) {
  (void)state;
  const double decays[] = {-1e-2, -1e-3, -1e-4};
  for (int n = 0; n < 3; n++)
    for (int erase = 0; erase < 2; erase++) {
      const void *mark = test_mark();
      exact_case c = case_trained(835, 1, 1000, 1, 64, 48);
      case_fill(&c, IN_G, decays[n]);
      if (!erase) c.in[IN_B] = NULL;
      const results got = engine_run(&c);
      const oracle want = oracle_run(&c);
      expect_right(&c, &got, &want, 1e-6, 2e-6);
      test_release_to(mark);
    }
}

/* dg is e^g in size: a difference of totals of size 1 would have lost it. */
static void test_dg_keeps_its_relative_precision(void **state) {
  (void)state;
  const double decays[] = {-1e-3, -0.1, -1, -5, -20, -60};
  for (int n = 0; n < 6; n++) {
    exact_case c = case_trained(840, 1, 200, 2, 48, 40);
    spread_decay(&c, decays[n], EVERYWHERE, 0);
    const results got = engine_run_some(&c, 1u << OUT_DG, (gdn2_exec){0});
    const oracle want = oracle_run(&c);
    const tensor t = output_tensor(&c, OUT_DG);
    assert_true(root_mean_square(want.out[OUT_DG], tensor_count(&t)) > 1e-3 * exp(decays[n]));
    expect_close_to_unit(&t, got.out[OUT_DG], want.out[OUT_DG], 1e-6, 0);
  }
}

/* Where the decay is total in float32 the gradient is the smallest number or zero. */
static void test_dg_of_saturated_gates(void **state) {
  (void)state;
  const double decays[] = {-30, -60, -100};
  for (int n = 0; n < 3; n++) {
    exact_case c = case_trained(850, 1, 40, 2, 16, 16);
    for (int64_t t = 0; t < c.T; t++)
      for (int64_t h = 0; h < c.H; h++) case_row(&c, IN_G, 0, t, h)[t % c.K] = (float)decays[n];
    const results got = engine_run_some(&c, 1u << OUT_DG, (gdn2_exec){0});
    const oracle want = oracle_run(&c);
    for (size_t i = 0; i < output_count(&c, OUT_DG); i++)
      if (c.in[IN_G][i] == (float)decays[n]) {
        const double size = fabs(want.out[OUT_DG][i]);
        if (!(fabs((double)got.out[OUT_DG][i] - want.out[OUT_DG][i]) <= 1e-5 * size + 1e-4 * exp(decays[n]) + 1e-37))
          fail_msg("dg at element %zu is %g, must be %g", i, (double)got.out[OUT_DG][i], want.out[OUT_DG][i]);
      }
  }
}

/* ---- Subnormal numbers, which a strong decay passes through in every chunk: a processor takes a hundred cycles for each ---- */

/* The caller keeps subnormal numbers, before and after; the library's are zeros, also where they are inputs. */
static void test_mode_of_the_caller(void **state) {
  (void)state;
  exact_case c = case_trained(861, 1, 40, 2, 16, 16);
  spread_decay(&c, -9, EVERYWHERE, -9);
  case_row(&c, IN_V, 0, 0, 0)[0] = test_halved(FLT_MIN);
  const results got = engine_run(&c);
  assert_true(test_halved(FLT_MIN) > 0);
  for (int i = 0; i < OUTPUTS; i++)
    for (size_t n = 0; n < output_count(&c, i); n++)
      assert_true(got.out[i][n] == 0 || fabsf(got.out[i][n]) >= FLT_MIN || !TEST_FLUSHES);
}

/* ---- g per head ---- */

/* One number a head, broadcast by a stride of 0, gives the bits of the same number written to every channel. */
static void test_per_head_equals_expanded(void **state) {
  (void)state;
  const int gates[] = {IN_G, IN_B, IN_W}, sums[] = {OUT_DG, OUT_DB, OUT_DW};
  for (int n = 0; n < 3; n++) {
    exact_case c = case_trained(860 + (uint64_t)n, 2, 37, 3, 21, 19);
    for (int64_t b = 0; b < c.B; b++)
      for (int64_t t = 0; t < c.T; t++)
        for (int64_t h = 0; h < c.H; h++) {
          float *row = case_row(&c, gates[n], b, t, h);
          for (int64_t d = 1; d < input_tensor(&c, gates[n]).shape[3]; d++) row[d] = row[0];
        }
    const results expanded = engine_run(&c);
    case_make_per_head(&c, gates[n]);
    const oracle want = oracle_run(&c);
    const results per_head = engine_run(&c);
    expect_right(&c, &per_head, &want, 1e-6, 2e-6);
    c.summed[sums[n]] = false; /* a gate per head, its gradient per channel */
    const results mixed = engine_run(&c);
    expect_equal(&c, &mixed, &expanded);
  }
}

/* ---- No decay ---- */

/* g = 0 in an array and g absent are the same function: the same bits, and no less exact than the rule without decay. */
static void test_zero_decay_is_no_decay(void **state) {
  (void)state;
  const int64_t lengths[] = {7, 50, 256};
  for (int n = 0; n < 3; n++) {
    exact_case c = case_trained(870 + (uint64_t)n, 1, lengths[n], 1, 100, 100);
    case_fill(&c, IN_G, 0);
    const results zeros = engine_run(&c);
    c.in[IN_G] = NULL;
    const results absent = engine_run(&c);
    expect_equal(&c, &absent, &zeros);
    const oracle want = oracle_run(&c);
    expect_right(&c, &absent, &want, 1e-6, 2e-6);
  }
}

static void test_mostly_zero_decays(void **state) {
  (void)state;
  const int64_t lengths[] = {7, 50, 256};
  for (int n = 0; n < 3; n++)
    for (int part = 1; part <= 9; part += 4) {
      exact_case c = case_trained(880 + (uint64_t)n, 1, lengths[n], 1, 100, 100);
      exact_case ungated = c;
      ungated.in[IN_G] = NULL;
      rng r = {(uint64_t)part};
      for (size_t i = 0; i < input_count(&c, IN_G); i++)
        if (rng_uniform(&r, 0, 10) < part) c.in[IN_G][i] = 0;
      const results got = engine_run(&c), plain = engine_run(&ungated);
      const oracle want = oracle_run(&c), plain_want = oracle_run(&ungated);
      for (int i = 0; i < OUTPUTS; i++) {
        const tensor t = output_tensor(&c, i);
        const double own = relative_error(plain.out[i], plain_want.out[i], tensor_count(&t));
        expect_close(&t, got.out[i], want.out[i], 1.5 * own + 1e-7);
      }
    }
}

/* ---- Resets ---- */

static void reset_at(exact_case *c, int64_t t) {
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t d = 0; d < c->K; d++) case_row(c, IN_G, b, t, h)[d] = -INFINITY;
}

static const int64_t resets[] = {0, 1, 15, 16, 31, 32, 63, 64};

/* What comes after a reset has the bits of the same tokens after any other history, and the values of a fresh start. */
static void test_reset_forgets(void **state) {
  (void)state;
  for (int n = 0; n < 8; n++) {
    const int64_t p = resets[n];
    exact_case c = case_trained(900, 1, 81, 2, 19, 14), other = case_trained(901, 1, 81, 2, 19, 14);
    reset_at(&c, p);
    for (int i = 0; i < IN_H0; i++)
      memcpy(case_row(&other, i, 0, p, 0), case_row(&c, i, 0, p, 0),
             (input_count(&c, i) / (size_t)c.T) * (size_t)(c.T - p) * sizeof(float));
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    const results again = engine_run_some(&other, OUT_FORWARD, (gdn2_exec){0});
    expect_equal_rows(&c, OUT_O, got.out[OUT_O], &other, again.out[OUT_O], p, c.T);
    const tensor t = output_tensor(&c, OUT_HF);
    expect_same_bits(&t, got.out[OUT_HF], again.out[OUT_HF]);

    exact_case fresh = case_tokens(&c, p, c.T);
    fresh.in[IN_H0] = NULL;
    const oracle want = oracle_run(&fresh);
    const tensor o = output_tensor(&fresh, OUT_O);
    expect_close(&t, got.out[OUT_HF], want.out[OUT_HF], 1e-6);
    expect_close(&o, got.out[OUT_O] + p * c.H * c.V, want.out[OUT_O], 1e-6);
  }
}

/* On the grid of chunks the fresh start has the same bits. */
static void test_reset_on_the_grid_is_a_fresh_start(void **state) {
  (void)state;
  for (int64_t p = 16; p <= 64; p += 16) {
    exact_case c = case_trained(910, 1, 81, 2, 19, 14);
    reset_at(&c, p);
    exact_case fresh = case_tokens(&c, p, c.T);
    fresh.in[IN_H0] = NULL;
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    const results want = engine_run_some(&fresh, OUT_FORWARD, (gdn2_exec){0});
    const tensor o = output_tensor(&fresh, OUT_O), h = output_tensor(&c, OUT_HF);
    expect_same_bits(&o, got.out[OUT_O] + p * c.H * c.V, want.out[OUT_O]);
    expect_same_bits(&h, got.out[OUT_HF], want.out[OUT_HF]);
  }
}

/* No gradient passes a reset: dh0 = 0, dg at the reset = 0, nothing reaches tokens before it from a loss after it. */
static void test_reset_stops_gradients(void **state) {
  (void)state;
  for (int n = 0; n < 8; n++) {
    const int64_t p = resets[n];
    exact_case c = case_trained(920, 1, 81, 2, 19, 14);
    reset_at(&c, p);
    if (n % 2 && p + 1 < c.T) reset_at(&c, p + 1);
    memset(c.in[IN_DO], 0, (size_t)(p * c.H * c.V) * sizeof(float));
    const results got = engine_run(&c);
    for (int i = OUT_DQ; i <= OUT_DW; i++) expect_zero_rows(&c, i, got.out[i], 0, p);
    expect_zero_rows(&c, OUT_DG, got.out[OUT_DG], p, p + 1);
    const tensor t = output_tensor(&c, OUT_DH0);
    expect_all_zero(&t, got.out[OUT_DH0]);
    const oracle want = oracle_run(&c);
    expect_right_to_unit(&c, &got, &want, 2e-6, TINY);
  }
}

/* One channel, and runs of several tokens. */
static void test_partial_resets(void **state) {
  (void)state;
  for (int n = 0; n < 8; n++) {
    exact_case c = case_trained(930 + (uint64_t)n, 1, 81, 2, 19, 14);
    for (int64_t t = resets[n]; t < c.T && t < resets[n] + 1 + n % 4; t++)
      for (int64_t h = 0; h < c.H; h++) case_row(&c, IN_G, 0, t, h)[(n * 5) % c.K] = -INFINITY;
    expect_right_and_finite(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_strong_decays),
      TEST(test_scattered_strong_decays),
      TEST(test_uniform_strong_decays),
      TEST(test_error_is_flat),
      TEST(test_error_is_flat_per_head),
      TEST(test_long_memories),
      TEST(test_dg_keeps_its_relative_precision),
      TEST(test_dg_of_saturated_gates),
      TEST(test_mode_of_the_caller),
      TEST(test_per_head_equals_expanded),
      TEST(test_zero_decay_is_no_decay),
      TEST(test_mostly_zero_decays),
      TEST(test_reset_forgets),
      TEST(test_reset_on_the_grid_is_a_fresh_start),
      TEST(test_reset_stops_gradients),
      TEST(test_partial_resets),
  };
  return TEST_RUN(tests);
}
