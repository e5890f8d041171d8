/* Gates finished by the library: both decays from raw input, sigmoids of b and w. */
#include <math.h>

#include "test.h"
#include "width.h"

/* ---- One decay, seen by itself: no key, h0 = 1, one token; h_final = e^g ---- */

enum { SWEPT = 241 };

static width_case decay_alone(gdn2_decay form, int64_t heads) {
  width_case c = width_new(1, 1, 1, heads, heads, SWEPT, 2);
  width_fill(&c, W_K, 0);
  width_fill(&c, W_H0, 1);
  c.decay = form;
  c.lower_bound = -5;
  width_fill(&c, W_A, 0);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t d = 0; d < SWEPT; d++) width_row(&c, W_G, 0, 0, h)[d] = (double)(float)(-200 + 400.0 * (double)d / (SWEPT - 1));
  return c;
}

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

static double decay_of(const width_case *c, double A_log, double x) {
  return c->decay == GDN2_DECAY_SOFTPLUS ? -exp(A_log) * softplus(x) : c->lower_bound * sigmoid(exp(A_log) * x);
}

/* g to about four roundings, and so e^g to |g| times as much. Below the normal numbers there is nothing. */
static void expect_decay(double got, double g, const char *which, double A_log, double x) {
  const double want = exp(g);
  if (!(fabs(got - want) <= (5e-7 * fabs(g) + 2e-7) * want + 0x1p-126))
    fail_msg("%s, A_log %g, x %g: decay %.9g, must be %.9g (g = %.9g)", which, A_log, x, got, want, g);
}

/* From -200 to 200, finished inside and before the call: neither overflow nor a wrong branch. */
static void test_sweep(void **state) {
  (void)state;
  const double rates[] = {-6, -1, 0, 2.7725887, 4};
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    width_case c = decay_alone((gdn2_decay)form, 5);
    for (int64_t h = 0; h < 5; h++) c.in[W_A][h] = (double)(float)rates[h];
    width_case separate = c;
    separate.decay = GDN2_DECAY_LOG;
    width_own(&separate, W_G);
    for (int64_t h = 0; h < 5; h++)
      for (int64_t d = 0; d < SWEPT; d++) {
        double *x = &width_row(&separate, W_G, 0, 0, h)[d];
        *x = (double)(float)decay_of(&c, c.in[W_A][h], *x);
      }
    const width_result fused = width_run(&c, GDN2_F32), given = width_run(&separate, GDN2_F32);
    int between = 0;
    for (int64_t h = 0; h < 5; h++)
      for (int64_t d = 0; d < SWEPT; d++) {
        const double A = c.in[W_A][h], x = width_row(&c, W_G, 0, 0, h)[d], g = decay_of(&c, A, x);
        const int64_t at = (h * SWEPT + d) * 2;
        expect_decay((double)fused.h_final[at], g, "fused", A, x);
        expect_decay((double)given.h_final[at], g, "separate", A, x);
        assert_true(fused.h_final[at] == fused.h_final[at + 1]);
        between += exp(g) > 1e-3 && exp(g) < 0.999;
      }
    assert_true(between > 100);
  }
}

static double one_decay(gdn2_decay form, double lower_bound, double A_log, double x) {
  const void *mark = test_mark();
  width_case c = decay_alone(form, 1);
  c.lower_bound = lower_bound;
  c.in[W_A][0] = A_log;
  width_fill(&c, W_G, x);
  const width_result r = width_run(&c, GDN2_F32);
  for (int64_t i = 1; i < SWEPT * 2; i++)
    if (!(r.h_final[i] == r.h_final[0]) && !isnan(r.h_final[0])) fail_msg("channels differ at A_log %g, x %g", A_log, x);
  const double decay = (double)r.h_final[0];
  test_release_to(mark);
  return decay;
}

static void test_softplus_extremes(void **state) {
  (void)state;
  const struct {
    double A_log, x, decay;
  } known[] = {
      {-6, 100, 0.78044}, /* g = -0.24788, where softplus without its linear branch gives a reset */
      {100, -200, 1},     {100, 0, 0},         {100, 50, 0},    {100, -100, 0.36788}, /* e^100 e^-100 = 1 */
      {-INFINITY, 0, 1},  {-INFINITY, 200, 1}, {-100, 100, 1},  {-INFINITY, -200, 1}, {0, INFINITY, 0},
      {0, -INFINITY, 1},  {3, -INFINITY, 1},   {88.5, -120, 1}, {89, -89, 0.36788},   {120, -118, 0.000617979},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const double got = one_decay(GDN2_DECAY_SOFTPLUS, 0, known[i].A_log, known[i].x);
    const bool exact = known[i].decay == 0 || known[i].decay == 1;
    if (!(exact ? got == known[i].decay : fabs(got / known[i].decay - 1) < 5e-5))
      fail_msg("A_log %g, x %g: decay %.9g, must be %.9g", known[i].A_log, known[i].x, got, known[i].decay);
  }
}

static void test_bounded_extremes(void **state) {
  (void)state;
  const struct {
    double bound, A_log, x, g;
  } known[] = {
      {-5, 0, 200, -5},     {-5, 0, -200, 0},         {-5, 100, 0, -2.5},    {-5, 100, 1e-3, -5},
      {-5, 100, -1e-3, 0},  {-5, -INFINITY, 3, -2.5}, {-5, 0, INFINITY, -5}, {-5, 0, -INFINITY, 0},
      {-1e-3, 0, 0, -5e-4}, {-80, 1, 40, -80},        {-5, -100, 50, -2.5},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const double got = one_decay(GDN2_DECAY_BOUNDED, known[i].bound, known[i].A_log, known[i].x);
    expect_decay(got, known[i].g, "bounded", known[i].A_log, known[i].x);
    if (known[i].g == 0) assert_true(got == 1);
  }
}

/* g near -1 from every part of the curve: A_log undoes the size of softplus(x), so that each digit of g can be seen. */
static void test_digits(void **state) {
  (void)state;
  const int64_t heads = 120;
  width_case c = decay_alone(GDN2_DECAY_SOFTPLUS, heads);
  double worst = 0;
  for (int64_t h = 0; h < heads; h++) {
    const double middle = -86 + (double)h * 1.4;
    c.in[W_A][h] = (double)(float)-log(softplus(middle));
    for (int64_t d = 0; d < SWEPT; d++) width_row(&c, W_G, 0, 0, h)[d] = (double)(float)(middle + 0.01 * (double)(d - SWEPT / 2));
  }
  const width_result got = width_run(&c, GDN2_F32);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t d = 0; d < SWEPT; d++) {
      const double g = decay_of(&c, c.in[W_A][h], width_row(&c, W_G, 0, 0, h)[d]);
      assert_true(g < -0.2 && g > -4);
      worst = fmax(worst, fabs((double)got.h_final[(h * SWEPT + d) * 2] / exp(g) - 1) / (1 - g));
    }
  if (worst > 2.5e-7) fail_msg("worst error of e^g, over 1 - g: %.2e", worst);
}

/* ---- Whole problems ---- */

static width_case raw(uint64_t seed, gdn2_decay form) {
  width_case c = width_new(seed, 2, 50, 2, 4, 37, 21);
  width_make_raw_decay(&c, form, seed);
  return c;
}

static void expect_problem(const width_case *c) {
  const width_truth want = width_oracle(c);
  const width_result got = width_run(c, GDN2_F32);
  width_expect_right(c, &got, &want, 1e-6);
}

/* dt_bias per channel, per head, absent; the raw decay per channel and per head; in each type. */
static void test_biases(void **state) {
  (void)state;
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++)
    for (int bias = 0; bias < 3; bias++)
      for (int per_head = 0; per_head < 2; per_head++)
        for (int type = GDN2_F32; type <= GDN2_F16; type++) {
          width_case c = raw(10 + (uint64_t)bias, (gdn2_decay)form);
          width_set_dtypes(&c, (gdn2_dtype)type);
          if (per_head) width_make_per_head(&c, W_G);
          if (bias == 1) width_make_per_head(&c, W_DT);
          if (bias == 2) c.in[W_DT] = NULL;
          expect_problem(&c);
        }
}

/* A_log as a tensor of one number per head, or one number for all heads. */
static void test_strides_of_A_log(void **state) {
  (void)state;
  width_case c = raw(15, GDN2_DECAY_SOFTPLUS);
  const width_result want = width_run(&c, GDN2_F32);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  call.args.problem.A_log = gdn2_per_head(call.in[W_A].first, GDN2_F32, 1, c.HV);
  const width_result got = width_call_run(&c, &call);
  width_expect_equal(&c, &got, &want);
  width_fill(&c, W_A, 0.25);
  const width_result alike = width_run(&c, GDN2_F32);
  call = width_call_new(&c, GDN2_F32, &width_contiguous);
  call.args.problem.A_log.stride[2] = 0;
  const width_result broadcast = width_call_run(&c, &call);
  width_expect_equal(&c, &broadcast, &alike);
}

/* Fused equals separate: the same decays rounded to float32 and given as g. */
static void test_fused_is_separate(void **state) {
  (void)state;
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    const width_case c = raw(20, (gdn2_decay)form);
    width_case separate = c;
    separate.decay = GDN2_DECAY_LOG;
    width_own(&separate, W_G);
    for (int64_t b = 0; b < c.B; b++)
      for (int64_t t = 0; t < c.T; t++)
        for (int64_t h = 0; h < c.HV; h++)
          for (int64_t d = 0; d < c.K; d++) {
            double *x = &width_row(&separate, W_G, b, t, h)[d];
            *x = (double)(float)decay_of(&c, c.in[W_A][h], *x + width_row(&c, W_DT, 0, 0, h)[d]);
          }
    const width_truth want = width_oracle(&separate);
    const width_result fused = width_run(&c, GDN2_F32), given = width_run(&separate, GDN2_F32);
    width_expect_right(&c, &fused, &want, 1e-6);
    width_expect_right(&c, &given, &want, 1e-6);
  }
}

/* Decays from -1e-3 to -1e3 a token, at the rate of a layer's strongest heads, per channel and per head: the error does not grow
 * with them. */
static void test_strengths(void **state) {
  (void)state;
  const double strengths[] = {1e-3, 0.1, 1, 2.5, 5, 5.9, 6, 8, 20, 60, 88, 104, 1e3};
  for (int per_head = 0; per_head < 2; per_head++)
    for (size_t n = 0; n < sizeof strengths / sizeof *strengths; n++) {
      const void *mark = test_mark();
      width_case c = width_new(30, 1, 130, 1, 2, 64, 32);
      width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 30);
      width_fill(&c, W_A, log(16));
      width_fill(&c, W_DT, 2);
      width_fill(&c, W_G, log(expm1(strengths[n] / 16)) - 2);
      if (strengths[n] > 100) width_fill(&c, W_G, strengths[n] / 16 - 2);
      if (per_head) width_make_per_head(&c, W_G);
      expect_problem(&c);
      test_release_to(mark);
    }
}

static void test_erase_and_write(void **state) {
  (void)state;
  for (int erase = GDN2_GATE_GIVEN; erase <= GDN2_GATE_TWO_SIGMOID; erase++)
    for (int write = GDN2_GATE_GIVEN; write <= GDN2_GATE_SIGMOID; write++)
      for (int per_head = 0; per_head < 2; per_head++)
        for (int type = GDN2_F32; type <= GDN2_F16; type++) {
          width_case c = width_new(40, 2, 50, 2, 4, 37, 21);
          width_make_raw_gates(&c, (gdn2_gate)erase, (gdn2_gate)write, 41);
          width_set_dtypes(&c, (gdn2_dtype)type);
          if (per_head) width_make_per_head(&c, W_B), width_make_per_head(&c, W_W);
          expect_problem(&c);
        }
}

/* ---- Saturation ---- */

/* k = q = e0, no decay, scale 1. */
static width_case one_key(int64_t T) {
  static const double scale = 1;
  width_case c = width_new(50, 1, T, 1, 1, 6, 5);
  c.scale = &scale;
  c.in[W_H0] = c.in[W_G] = NULL;
  for (int i = W_Q; i <= W_K; i++) {
    width_fill(&c, i, 0);
    for (int64_t t = 0; t < T; t++) width_row(&c, i, 0, t, 0)[0] = 1;
  }
  width_fill(&c, W_V, 2);
  return c;
}

/* b = 2, w = 1, v = 2: S' = v - S, so o = 2, 0, 2, 0, ... exactly, over many chunks. b = 1: o = v. b = 0: o = 2 (t + 1). w = 0:
 * 0. */
static void test_saturated_gates_are_exact(void **state) {
  (void)state;
  const double strong[] = {100, 1e30, INFINITY};
  for (int n = 0; n < 3; n++)
    for (int type = GDN2_F32; type <= GDN2_BF16; type++)
      for (int kind = 0; kind < 4; kind++) {
        width_case c = one_key(300);
        width_set_dtypes(&c, (gdn2_dtype)type);
        c.erase = kind == 1 ? GDN2_GATE_SIGMOID : GDN2_GATE_TWO_SIGMOID;
        c.write = GDN2_GATE_SIGMOID;
        width_fill(&c, W_B, kind == 2 ? -strong[n] - 100 : strong[n]);
        width_fill(&c, W_W, kind == 3 ? -strong[n] - 100 : strong[n]);
        const width_result r = width_run(&c, GDN2_F32);
        for (int64_t t = 0; t < c.T; t++) {
          const float want[] = {t % 2 ? 0 : 2, 2, 2 * (float)(t + 1), 0};
          for (int64_t e = 0; e < c.V; e++)
            if (r.o[t * c.V + e] != want[kind])
              fail_msg("kind %d, token %ld: %.9g, must be %g", kind, (long)t, (double)r.o[t * c.V + e], (double)want[kind]);
        }
      }
}

/* ---- Resets and NaN ---- */

/* x = inf is g = -inf: as if the sequence began at that token, with the same bits where that is the start of a chunk. */
static void test_reset(void **state) {
  (void)state;
  const int64_t places[] = {0, 1, 15, 16, 17, 31, 32, 48};
  for (int n = 0; n < 8; n++) {
    width_case c = raw(60, GDN2_DECAY_SOFTPLUS);
    const int64_t p = places[n];
    for (int64_t h = 0; h < c.HV; h++)
      for (int64_t d = 0; d < c.K; d++) width_row(&c, W_G, 0, p, h)[d] = width_row(&c, W_G, 1, p, h)[d] = INFINITY;
    const width_result got = width_run(&c, GDN2_F32);
    width_case first = width_sequence(&c, 0), tail = first;
    tail.T = c.T - p;
    tail.in[W_H0] = NULL;
    for (int i = W_Q; i <= W_W; i++) tail.in[i] = width_row(&first, i, 0, p, 0);
    const width_truth want = width_oracle(&tail);
    const width_result fresh = width_run(&tail, GDN2_F32);
    const tensor o = width_o_tensor(&tail), h = width_h_tensor(&tail);
    if (p % 16 == 0) expect_same_bits(&o, got.o + p * c.HV * c.V, fresh.o);
    if (p % 16 == 0) expect_same_bits(&h, got.h_final, fresh.h_final);
    expect_close(&o, got.o + p * c.HV * c.V, want.o, 1e-6);
    expect_close(&h, got.h_final, want.h_final, 1e-6);
  }
}

/* A NaN in raw input is not hidden: it reaches the state, and only where it belongs. */
static void test_nan_is_not_hidden(void **state) {
  (void)state;
  for (int input = W_G; input <= W_W; input++)
    for (int form = 1; form <= 2; form++)
      for (int type = GDN2_F32; type <= GDN2_F16; type++) {
        width_case c = raw(70, (gdn2_decay)form);
        width_make_raw_gates(&c, (gdn2_gate)form, GDN2_GATE_SIGMOID, 71);
        width_set_dtypes(&c, (gdn2_dtype)type);
        width_row(&c, input, 0, 20, 1)[3] = NAN;
        const width_result r = width_run(&c, GDN2_F32);
        const int64_t row = c.HV * c.V, head = c.V, states = c.K * c.V;
        assert_true(isnan(r.o[(20 * c.HV + 1) * head + 3]) && isnan(r.h_final[states + 3 * c.V + 3]));
        for (int64_t i = 0; i < 20 * row; i++) assert_true(isfinite(r.o[i]));
        for (int64_t t = 20; t < c.T; t++)
          for (int64_t e = 0; e < c.V; e++) assert_true(isfinite(r.o[t * row + e]));
        for (int64_t i = c.T * row; i < 2 * c.T * row; i++) assert_true(isfinite(r.o[i]));
      }
}

/* A head with A_log = -inf is never decayed: the bits of a call without decay, beside heads that are. */
static void test_head_at_rest(void **state) {
  (void)state;
  width_case c = raw(75, GDN2_DECAY_SOFTPLUS), still = c;
  c.in[W_A][2] = -INFINITY;
  still.decay = GDN2_DECAY_LOG;
  still.in[W_G] = NULL;
  const width_truth want = width_oracle(&c);
  const width_result got = width_run(&c, GDN2_F32), rest = width_run(&still, GDN2_F32);
  width_expect_right(&c, &got, &want, 1e-6);
  for (int64_t t = 0; t < c.B * c.T; t++)
    assert_memory_equal(got.o + (t * c.HV + 2) * c.V, rest.o + (t * c.HV + 2) * c.V, (size_t)c.V * sizeof(float));
  const int64_t state_size = c.K * c.V;
  assert_memory_equal(got.h_final + 2 * state_size, rest.h_final + 2 * state_size, (size_t)state_size * sizeof(float));
  assert_memory_not_equal(got.h_final + state_size, rest.h_final + state_size, (size_t)state_size * sizeof(float));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_sweep),
      TEST(test_digits),
      TEST(test_head_at_rest),
      TEST(test_softplus_extremes),
      TEST(test_bounded_extremes),
      TEST(test_biases),
      TEST(test_fused_is_separate),
      TEST(test_strides_of_A_log),
      TEST(test_strengths),
      TEST(test_erase_and_write),
      TEST(test_saturated_gates_are_exact),
      TEST(test_reset),
      TEST(test_nan_is_not_hidden),
  };
  return TEST_RUN(tests);
}
