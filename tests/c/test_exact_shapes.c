/* Every length, every width: the library against the token loop in float64, all outputs and all gradients, on arrays that end (or
 * begin) at a guard page. */
#include <math.h>

#include "loop.h"
#include "test.h"

#define FORWARD 1e-6
#define BACKWARD 2e-6

static void expect_case(const exact_case *c) {
  const void *mark = test_mark();
  const results got = engine_run(c);
  const oracle want = oracle_run(c);
  expect_right(c, &got, &want, FORWARD, BACKWARD);
  test_release_to(mark);
}

/* Without an initial state: outputs and the final state are written whatever the length. */
static void expect_from_nothing(const exact_case *c) {
  const void *mark = test_mark();
  const results got = engine_run_some(c, OUT_FORWARD, (gdn2_exec){0});
  const oracle want = oracle_run(c);
  expect_right(c, &got, &want, FORWARD, 0);
  test_release_to(mark);
}

/* Each length around one, two, four chunks: a tail of every size. The final state is compared, not only the outputs. */
static void test_every_length(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 70; T++) {
    if (T > 33 && T % 16 > 1 && T % 16 < 15) continue;
    exact_case c = case_trained(100 + (uint64_t)T, 1, T, 2, 13, 11);
    expect_case(&c);
    c.in[IN_H0] = NULL;
    expect_from_nothing(&c);
  }
}

/* Distinct primes: no axis can stand in for another. h0 is not symmetric. */
static void test_prime_shapes(void **state) {
  (void)state;
  const int64_t shapes[][5] = {{2, 37, 3, 5, 7}, {3, 53, 2, 7, 5}, {5, 19, 7, 3, 2}, {2, 101, 3, 13, 11}, {3, 17, 5, 29, 31}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    const exact_case c = case_trained(200 + i, s[0], s[1], s[2], s[3], s[4]);
    expect_case(&c);
  }
}

static const int64_t widths[] = {1, 3, 7, 8, 15, 16, 17, 31, 32, 64, 80, 96, 100, 128, 192, 256};
enum { WIDTHS = sizeof widths / sizeof *widths };

/* Each width as K and as V with three partners; both ends of the arrays guarded. */
static void test_every_width(void **state) {
  (void)state;
  for (int i = 0; i < WIDTHS; i++)
    for (int n = 0; n < 3; n++) {
      const int64_t K = widths[i], V = widths[(i * (n + 1) + 5 * n) % WIDTHS];
      test_set_place(n % 2 ? TEST_AT_START : TEST_AT_END);
      const exact_case c = case_trained(300 + (uint64_t)(3 * i + n), 1, 16 + (i + n) % 6, 2, K, V);
      expect_case(&c);
    }
}

/* h_final depends on h0 and both agree with the loop, whatever the length. */
static void test_h0_counts_at_every_length(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 2, 3, 16, 64, 65};
  for (int n = 0; n < 6; n++) {
    exact_case c = case_trained(400 + (uint64_t)n, 1, lengths[n], 2, 17, 17);
    case_fill_normal(&c, IN_G, 4, 0.02); /* mild, so that h0 is seen at the end; a few decays are growths */
    expect_case(&c);
    const results with = engine_run(&c);
    c.in[IN_H0] = NULL;
    const oracle without = oracle_run(&c);
    assert_true(relative_error(with.out[OUT_HF], without.out[OUT_HF], output_count(&c, OUT_HF)) > 1e-2);
  }
}

/* Correlated keys, uneven decays, an initial state and several chunks together: what a decay applied to both factors gets wrong.
 */
static void test_smoke(void **state) {
  (void)state;
  exact_case c = case_trained(500, 1, 70, 1, 8, 6);
  rng r = {5};
  for (size_t i = 0; i < input_count(&c, IN_G); i++) c.in[IN_G][i] = (float)rng_uniform(&r, -2, 0);
  expect_case(&c);
}

/* The loss may see the final state alone, or the outputs alone, at lengths of one and two tokens too. */
static void test_one_sided_losses(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 2, 3, 17, 40};
  for (int n = 0; n < 5; n++)
    for (int absent = IN_DO; absent <= IN_DHF; absent++) {
      exact_case c = case_trained(600 + (uint64_t)n, 2, lengths[n], 2, 9, 6);
      case_fill_normal(&c, IN_G, 4, 0.1);
      c.in[absent] = NULL;
      const oracle want = oracle_run(&c);
      const results got = engine_run(&c);
      for (int i = OUT_DQ; i < OUTPUTS; i++) {
        const tensor t = output_tensor(&c, i);
        if (i == OUT_DQ && absent == IN_DO)
          expect_all_zero(&t, got.out[i]);
        else
          expect_close(&t, got.out[i], want.out[i], BACKWARD);
      }
    }
}

/* ---- Keys that repeat ---- */

/* One random unit key a head, repeated, with a little noise: the chunk's system is as far from diagonal as unit keys allow. */
static void repeat_keys(exact_case *c, double noise) {
  rng r = {6};
  for (int64_t t = 0; t < c->T; t++)
    for (int64_t h = 0; h < c->H; h++) {
      float *key = case_row(c, IN_K, 0, t, h);
      const float *first = case_row(c, IN_K, 0, 0, h);
      for (int64_t d = 0; d < c->K; d++) key[d] = first[d] + (float)(noise * rng_normal(&r) / sqrt((double)c->K));
    }
}

static void test_repeated_keys(void **state) {
  (void)state;
  const double noises[] = {0, 1e-3, 1e-2}, decays[] = {0, -1e-3, -12};
  for (int n = 0; n < 3; n++)
    for (int m = 0; m < 3; m++) {
      exact_case c = case_trained(700 + (uint64_t)(3 * n + m), 1, 150, 2, 32, 24);
      repeat_keys(&c, noises[n]);
      case_fill(&c, IN_B, 1);
      case_fill(&c, IN_W, 1);
      case_fill(&c, IN_G, decays[m]);
      const results got = engine_run(&c);
      const oracle want = oracle_run(&c);
      /* A token loop in float32, forward and back, is itself off by up to 1.9e-6 here. */
      expect_right_to_unit(&c, &got, &want, 3e-6, 1e-4);
    }
}

/* Erase gates up to 2: the step is a reflection, nothing shrinks. */
static void test_erase_gates_up_to_two(void **state) {
  (void)state;
  for (int identical = 0; identical < 2; identical++) {
    exact_case c = case_trained(720 + (uint64_t)identical, 1, 150, 2, 32, 24);
    if (identical) repeat_keys(&c, 0);
    for (size_t i = 0; i < input_count(&c, IN_B); i++) c.in[IN_B][i] = identical ? 2 : 2 * c.in[IN_B][i];
    expect_case(&c);
  }
}

/* Keys that are not normalised: the recurrence itself may blow up, in every arithmetic. The chunks may not add more than the
 * float32 recurrence loses by its own rounding times a moderate factor. */
static void test_long_keys(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 4; seed++) {
    exact_case c = case_trained(740 + seed, 1, 32, 2, 64, 16);
    case_fill_normal(&c, IN_K, seed, 1);
    case_fill(&c, IN_G, seed % 2 ? -0.05 : 0);
    float *o = test_floats(output_count(&c, OUT_O)), *h_final = test_floats(output_count(&c, OUT_HF));
    loop_forward_f32(&c, o, h_final);
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    const oracle want = oracle_run(&c);
    const double o_own = relative_error(o, want.out[OUT_O], output_count(&c, OUT_O));
    const double h_own = relative_error(h_final, want.out[OUT_HF], output_count(&c, OUT_HF));
    const tensor to = output_tensor(&c, OUT_O), th = output_tensor(&c, OUT_HF);
    assert_true(o_own < 1e-3 && h_own < 1e-3);
    expect_close(&to, got.out[OUT_O], want.out[OUT_O], 30 * o_own);
    expect_close(&th, got.out[OUT_HF], want.out[OUT_HF], 30 * h_own);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_every_length), TEST(test_prime_shapes),     TEST(test_every_width),   TEST(test_h0_counts_at_every_length),
      TEST(test_smoke),        TEST(test_one_sided_losses), TEST(test_repeated_keys), TEST(test_erase_gates_up_to_two),
      TEST(test_long_keys),
  };
  return TEST_RUN(tests);
}
