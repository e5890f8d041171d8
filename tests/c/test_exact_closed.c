/* Problems whose answer is known in closed form, and the older rules of the family in their own notation. */
#include <math.h>

#include "loop.h"
#include "test.h"

/* ---- One repeated key: k = q = e0, scale 1, no decay, no initial state ---- */

static const double one = 1;

static exact_case repeated_key(int64_t T, double gate) {
  exact_case c = case_trained(1, 1, T, 2, 8, 5);
  c.scale = &one;
  c.in[IN_G] = c.in[IN_H0] = NULL;
  case_fill(&c, IN_K, 0);
  case_fill(&c, IN_Q, 0);
  for (int64_t t = 0; t < T; t++)
    for (int64_t h = 0; h < c.H; h++) case_row(&c, IN_K, 0, t, h)[0] = case_row(&c, IN_Q, 0, t, h)[0] = 1;
  case_fill(&c, IN_B, gate);
  case_fill(&c, IN_W, gate);
  return c;
}

static void expect_exactly(const exact_case *c, int output, const float *got, const double *want) {
  const tensor t = output_tensor(c, output);
  expect_close_to_unit(&t, got, want, 0, 1);
}

/* Each write replaces the last: o_t = v_t and h_final = e0 v_T^T, to the bit, although powers of the chunk's matrix are huge. */
static void test_repeated_key_overwrites(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 16, 64, 256, 4096};
  for (int n = 0; n < 5; n++) {
    exact_case c = repeated_key(lengths[n], 1);
    rng r = {7};
    double *o = test_doubles(output_count(&c, OUT_O)), *h_final = test_doubles(output_count(&c, OUT_HF));
    memset(h_final, 0, output_count(&c, OUT_HF) * sizeof *h_final);
    for (size_t i = 0; i < output_count(&c, OUT_O); i++) o[i] = c.in[IN_V][i] = (float)(int)rng_uniform(&r, -9, 9);
    for (int64_t h = 0; h < c.H; h++)
      for (int64_t e = 0; e < c.V; e++) h_final[h * c.K * c.V + e] = case_row(&c, IN_V, 0, c.T - 1, h)[e];
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    expect_exactly(&c, OUT_O, got.out[OUT_O], o);
    expect_exactly(&c, OUT_HF, got.out[OUT_HF], h_final);
  }
}

/* Gates of 2: the state swings between 2 and 0. */
static void test_gates_of_two_alternate(void **state) {
  (void)state;
  const int64_t lengths[] = {1, 16, 33, 256, 1001};
  for (int n = 0; n < 5; n++) {
    exact_case c = repeated_key(lengths[n], 2);
    case_fill(&c, IN_V, 1);
    double *o = test_doubles(output_count(&c, OUT_O));
    for (int64_t t = 0; t < c.T; t++)
      for (int64_t i = 0; i < c.H * c.V; i++) o[t * c.H * c.V + i] = t % 2 ? 0 : 2;
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    expect_exactly(&c, OUT_O, got.out[OUT_O], o);
  }
}

/* Nothing erased, a constant decay: a geometric series. */
static void test_geometric_series(void **state) {
  (void)state;
  const double decays[] = {0, -0x1p-10, -0.5, -3, -90};
  for (int n = 0; n < 5; n++) {
    exact_case c = repeated_key(70, 1);
    c.in[IN_G] = test_floats(input_count(&c, IN_G));
    case_fill(&c, IN_G, decays[n]);
    case_fill(&c, IN_B, 0);
    case_fill(&c, IN_V, 1);
    double *o = test_doubles(output_count(&c, OUT_O));
    for (int64_t t = 0; t < c.T; t++) {
      const double sum = n == 0 ? (double)(t + 1) : expm1(decays[n] * (double)(t + 1)) / expm1(decays[n]);
      for (int64_t i = 0; i < c.H * c.V; i++) o[t * c.H * c.V + i] = sum;
    }
    const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
    const tensor t = output_tensor(&c, OUT_O);
    expect_close(&t, got.out[OUT_O], o, 3e-7);
  }
}

/* ---- Nothing written: k = 0 ---- */

/* S_T = e^{G_T} S0, o_t = scale S_t^T q_t; by a loss of the state alone dS0 = e^{G_T} dS_T, dg_t[d] = sum_e dS_T[d,e] S_T[d,e].
 */
static void expect_pure_decay(exact_case *c) {
  case_fill(c, IN_K, 0);
  c->in[IN_DO] = NULL;
  oracle want = {{NULL}};
  for (int i = 0; i < OUTPUTS; i++) want.out[i] = test_doubles(output_count(c, i));
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t e = 0; e < c->V; e++)
        for (int64_t t = 0; t < c->T; t++) want.out[OUT_O][((b * c->T + t) * c->H + h) * c->V + e] = 0;
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t d = 0; d < c->K; d++) {
        double G = 0, along = 0;
        const int64_t row = ((b * c->H + h) * c->K + d) * c->V;
        for (int64_t t = 0; t < c->T; t++) {
          G += case_row(c, IN_G, b, t, h)[d];
          for (int64_t e = 0; e < c->V; e++)
            want.out[OUT_O][((b * c->T + t) * c->H + h) * c->V + e] +=
                exp(G) * case_row(c, IN_Q, b, t, h)[d] * c->in[IN_H0][row + e] / sqrt((double)c->K);
        }
        for (int64_t e = 0; e < c->V; e++) {
          want.out[OUT_HF][row + e] = exp(G) * c->in[IN_H0][row + e];
          want.out[OUT_DH0][row + e] = exp(G) * c->in[IN_DHF][row + e];
          along += want.out[OUT_HF][row + e] * c->in[IN_DHF][row + e];
        }
        for (int64_t t = 0; t < c->T; t++) want.out[OUT_DG][((b * c->T + t) * c->H + h) * c->K + d] = along;
      }
  const unsigned wanted = OUT_FORWARD | 1u << OUT_DH0 | 1u << OUT_DG;
  const results got = engine_run_some(c, wanted, (gdn2_exec){0});
  /* Each step rounds its e^g once; where g repeats, so does the rounding. */
  expect_right_to_unit(c, &got, &want, 3e-7 + 6e-8 * (double)c->T, 1e-12);
}

static void test_pure_decay(void **state) {
  (void)state;
  exact_case c = case_trained(2, 2, 37, 3, 5, 7);
  expect_pure_decay(&c);
  case_fill(&c, IN_G, -0.2);
  expect_pure_decay(&c);
  for (int64_t T = 1; T < 20; T += 6) {
    c = case_trained(3, 1, T, 2, 16, 8);
    case_fill(&c, IN_G, -0.7);
    expect_pure_decay(&c);
  }
}

/* Values that a 16-bit format could not carry: a state of 65536 and a gradient of 2^-25. */
static void test_pure_decay_of_extremes(void **state) {
  (void)state;
  exact_case c = case_trained(4, 1, 1, 1, 6, 3);
  case_fill(&c, IN_V, 0);
  case_fill(&c, IN_G, -4);
  case_fill(&c, IN_H0, 65536);
  case_fill(&c, IN_DHF, 0x1p-25);
  expect_pure_decay(&c);
  const results got = engine_run(&c);
  assert_true(fabs((double)got.out[OUT_HF][0] - 1200.3337) < 1e-3);
  assert_true(fabs((double)got.out[OUT_DH0][0] / (0x1p-25 * exp(-4)) - 1) < 3e-7);
  assert_true(fabs((double)got.out[OUT_DG][0] / (3 * 65536 * exp(-4) * 0x1p-25) - 1) < 3e-7);
}

/* g is a natural logarithm: 0 keeps the state, ln 1/2 halves it, -infinity clears it. */
static void test_meaning_of_g(void **state) {
  (void)state;
  exact_case c = case_trained(5, 1, 1, 2, 9, 4);
  case_fill(&c, IN_K, 0);
  const tensor t = output_tensor(&c, OUT_HF);
  case_fill(&c, IN_G, 0);
  expect_same_bits(&t, engine_run(&c).out[OUT_HF], c.in[IN_H0]);
  double *half = test_doubles(tensor_count(&t));
  for (size_t i = 0; i < tensor_count(&t); i++) half[i] = 0.5 * c.in[IN_H0][i];
  case_fill(&c, IN_G, log(0.5));
  expect_close(&t, engine_run(&c).out[OUT_HF], half, 2e-7);
  case_fill(&c, IN_G, -INFINITY);
  expect_all_zero(&t, engine_run(&c).out[OUT_HF]);
}

/* ---- Definitions ---- */

/* 1 x 1: the key reads the decayed state. S = 1/2 - 1/2 = 0; read before the decay it would be -1/2. */
static void test_decay_before_erase(void **state) {
  (void)state;
  exact_case c = case_trained(6, 1, 1, 1, 1, 1);
  case_fill(&c, IN_G, log(0.5));
  case_fill(&c, IN_V, 0);
  const int ones[] = {IN_H0, IN_K, IN_B, IN_W};
  for (int i = 0; i < 4; i++) case_fill(&c, ones[i], 1);
  assert_true(fabs((double)engine_run(&c).out[OUT_HF][0]) < 1e-7);
}

static void test_scale(void **state) {
  (void)state;
  const double quarter = 0.25, half = 0.5, zero = 0;
  exact_case c = case_trained(7, 2, 21, 2, 16, 64);
  const results by_default = engine_run(&c);
  c.scale = &quarter;
  const results explicit = engine_run(&c);
  expect_equal(&c, &explicit, &by_default);
  c.scale = &half;
  const results doubled = engine_run(&c);
  const int scaled[] = {OUT_O, OUT_DQ};
  for (int n = 0; n < 2; n++) {
    const tensor t = output_tensor(&c, scaled[n]);
    for (size_t i = 0; i < tensor_count(&t); i++) explicit.out[scaled[n]][i] *= 2;
    expect_same_bits(&t, doubled.out[scaled[n]], explicit.out[scaled[n]]);
  }
  c.scale = &zero;
  const results none = engine_run(&c);
  const tensor o = output_tensor(&c, OUT_O), h = output_tensor(&c, OUT_HF), dq = output_tensor(&c, OUT_DQ);
  expect_all_zero(&o, none.out[OUT_O]);
  expect_all_zero(&dq, none.out[OUT_DQ]);
  expect_same_bits(&h, none.out[OUT_HF], by_default.out[OUT_HF]);
}

/* Without an initial state the first token has nothing to decay and nothing to erase: its dg and db are 0 to the bit. */
static void test_first_token_has_no_dg_db(void **state) {
  (void)state;
  exact_case c = case_trained(8, 3, 37, 2, 11, 6);
  c.in[IN_H0] = NULL;
  const results got = engine_run(&c);
  expect_zero_rows(&c, OUT_DG, got.out[OUT_DG], 0, 1);
  expect_zero_rows(&c, OUT_DB, got.out[OUT_DB], 0, 1);
  const oracle want = oracle_run(&c);
  expect_right(&c, &got, &want, 1e-6, 2e-6);
}

/* One-hot keys, each channel used once: no output depends on a decay. */
static void test_one_hot_keys_have_no_dg(void **state) {
  (void)state;
  exact_case c = case_trained(9, 1, 40, 2, 48, 7);
  c.in[IN_H0] = c.in[IN_DHF] = NULL;
  case_fill_unit(&c, IN_K, 1);
  case_fill_unit(&c, IN_Q, 1);
  const results got = engine_run(&c);
  const tensor t = output_tensor(&c, OUT_DG);
  expect_all_zero(&t, got.out[OUT_DG]);
}

/* ---- The family ---- */

static void expect_rule(exact_case *c, loop_rule rule) {
  double *o = test_doubles(output_count(c, OUT_O)), *h_final = test_doubles(output_count(c, OUT_HF));
  loop_rule_forward(c, rule, o, h_final);
  const results got = engine_run(c);
  const tensor to = output_tensor(c, OUT_O), th = output_tensor(c, OUT_HF);
  expect_close(&to, got.out[OUT_O], o, 1e-6);
  expect_close(&th, got.out[OUT_HF], h_final, 1e-6);
  const oracle want = oracle_run(c);
  expect_right(c, &got, &want, 1e-6, 2e-6);
}

/* The same beta for erasing and writing. */
static exact_case with_beta(void) {
  exact_case c = case_trained(10, 2, 37, 3, 5, 7);
  case_make_per_head(&c, IN_B);
  case_make_per_head(&c, IN_W);
  memcpy(c.in[IN_W], c.in[IN_B], input_count(&c, IN_B) * sizeof(float));
  return c;
}

static void test_family(void **state) {
  (void)state;
  exact_case c = with_beta();
  expect_rule(&c, RULE_KDA);
  case_make_per_head(&c, IN_G);
  expect_rule(&c, RULE_GDN);
  c.in[IN_G] = NULL;
  expect_rule(&c, RULE_DELTANET);
  c = case_trained(11, 2, 37, 3, 5, 7);
  c.in[IN_B] = c.in[IN_W] = NULL;
  expect_rule(&c, RULE_GLA);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_repeated_key_overwrites),
      TEST(test_gates_of_two_alternate),
      TEST(test_geometric_series),
      TEST(test_pure_decay),
      TEST(test_pure_decay_of_extremes),
      TEST(test_meaning_of_g),
      TEST(test_decay_before_erase),
      TEST(test_scale),
      TEST(test_first_token_has_no_dg_db),
      TEST(test_one_hot_keys_have_no_dg),
      TEST(test_family),
  };
  return TEST_RUN(tests);
}
