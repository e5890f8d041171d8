/* Gradients through the gates that the library finishes and through the L2 norm, at ordinary and at extreme places. */
#include <math.h>

#include "gradient.h"
#include "test.h"

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

/* ---- One decay, seen by itself: no key, h0 = 1, one token, dh_final = 1: by g, the gradient is V e^g ---- */

enum { SWEPT = 241, VALUES = 2 };

static gradient_case decay_alone(gdn2_decay form, int64_t heads) {
  width_case c = width_new(1, 1, 1, heads, heads, SWEPT, VALUES);
  width_fill(&c, W_K, 0);
  width_fill(&c, W_H0, 1);
  c.decay = form;
  c.lower_bound = -5;
  width_fill(&c, W_A, 0);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t d = 0; d < SWEPT; d++) width_row(&c, W_G, 0, 0, h)[d] = (double)(float)(-200 + 400.0 * (double)d / (SWEPT - 1));
  gradient_case x = gradient_of(c, 1);
  x.d_o = NULL;
  for (size_t i = 0; i < width_count(&c, W_H0); i++) x.dh_final[i] = 1;
  return x;
}

typedef struct slopes {
  double g, by_x, by_A; /* the decay, dg/dx, dg/dA_log */
} slopes;

static slopes slopes_of(const width_case *c, double A_log, double x) {
  const double rate = exp(A_log), z = rate * x;
  if (c->decay == GDN2_DECAY_SOFTPLUS) return (slopes){-rate * softplus(x), -rate * sigmoid(x), -rate * softplus(x)};
  const double slope = c->lower_bound * sigmoid(z) * sigmoid(-z);
  return (slopes){c->lower_bound * sigmoid(z), rate * slope, z * slope};
}

/* e^g carries |g| roundings; so does e^(A_log + x), of which a small softplus is made, and e^-z, the slope of a sigmoid at a
 * large z = exp(A_log) x. Below the normal numbers there is nothing, which may be so of exp(A_log) too. */
static void expect_gradient(const char *name, double got, double slope, double g, double A_log, double x) {
  const double want = exp(g) == 0 ? 0 : (double)VALUES * exp(g) * slope, size = fmin(fabs(x), 1000);
  const double exponents = size + fmin(fabs(A_log), 1000) + fmin(exp(A_log) * size, 1000);
  const double error = 1e-6 + (g == -INFINITY ? 0 : 5e-7 * fabs(g)) + 1e-7 * exponents;
  const double unit = 0x1p-126 * (double)VALUES * (8 + fabs(slope) + size);
  if (!(fabs(got - want) <= error * fabs(want) + unit))
    fail_msg("%s, A_log %g, x %g: %.9g, must be %.9g", name, A_log, x, got, want);
}

static void test_sweep(void **state) {
  (void)state;
  const double rates[] = {-6, -1, 0, 2.7725887, 4};
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    gradient_case x = decay_alone((gdn2_decay)form, 5);
    for (int64_t h = 0; h < 5; h++) x.c.in[W_A][h] = (double)(float)rates[h];
    const gradients got = gradient_run(&x);
    int between = 0, sums = 0;
    for (int64_t h = 0; h < 5; h++) {
      double sum = 0;
      for (int64_t d = 0; d < SWEPT; d++) {
        const double A = x.c.in[W_A][h], raw = width_row(&x.c, W_G, 0, 0, h)[d];
        const slopes s = slopes_of(&x.c, A, raw);
        const double dx = (double)got.values[D_G][h * SWEPT + d];
        expect_gradient("dg", dx, s.by_x, s.g, A, raw);
        assert_true(got.values[D_DT][h * SWEPT + d] == got.values[D_G][h * SWEPT + d]);
        sum += (double)VALUES * exp(s.g) * s.by_A;
        between += fabs(dx) > 1e-4;
      }
      sums += fabs(sum) > 1e-2;
      if (!(fabs((double)got.values[D_A][h] - sum) <= 3e-6 * fabs(sum) + 1e-30))
        fail_msg("dA_log[%ld] = %.9g, must be %.9g", (long)h, (double)got.values[D_A][h], sum);
    }
    assert_true(between > 50 && sums >= 3);
  }
}

/* dg and dA_log at one place. */
static void one_place(gdn2_decay form, double A_log, double x, double *dx, double *dA) {
  const void *mark = test_mark();
  gradient_case y = decay_alone(form, 1);
  y.c.in[W_A][0] = A_log;
  width_fill(&y.c, W_G, x);
  const gradients got = gradient_run(&y);
  for (int64_t d = 1; d < SWEPT; d++) assert_true(got.values[D_G][d] == got.values[D_G][0]);
  *dx = (double)got.values[D_G][0];
  *dA = (double)got.values[D_A][0] / (double)SWEPT;
  test_release_to(mark);
}

static void test_extremes(void **state) {
  (void)state;
  const struct {
    gdn2_decay form;
    double A_log, x, g, by_x, by_A; /* g = -inf: the gradients vanish, whatever the slopes */
  } known[] = {
      {GDN2_DECAY_SOFTPLUS, 100, -200, -3.7200760e-44, -3.7200760e-44, -3.7200760e-44},
      {GDN2_DECAY_SOFTPLUS, 100, 0, -INFINITY, 0, 0},
      {GDN2_DECAY_SOFTPLUS, 100, 50, -INFINITY, 0, 0},
      {GDN2_DECAY_SOFTPLUS, 100, -100, -1, -1, -1},
      {GDN2_DECAY_SOFTPLUS, -INFINITY, 0, 0, 0, 0},
      {GDN2_DECAY_SOFTPLUS, -INFINITY, 200, 0, 0, 0},
      {GDN2_DECAY_SOFTPLUS, -INFINITY, -200, 0, 0, 0},
      {GDN2_DECAY_SOFTPLUS, -100, 100, -3.7200760e-42, -3.7200760e-44, -3.7200760e-42},
      {GDN2_DECAY_SOFTPLUS, -6, 100, -0.24787522, -2.4787522e-3, -0.24787522},
      {GDN2_DECAY_SOFTPLUS, 89, -89, -1, -1, -1},
      {GDN2_DECAY_SOFTPLUS, 0, INFINITY, -INFINITY, 0, 0},
      {GDN2_DECAY_SOFTPLUS, 0, -INFINITY, 0, 0, 0},
      {GDN2_DECAY_BOUNDED, 0, 200, -5, 0, 0},
      {GDN2_DECAY_BOUNDED, 0, INFINITY, -5, 0, 0},
      {GDN2_DECAY_BOUNDED, 0, -INFINITY, 0, 0, 0},
      {GDN2_DECAY_BOUNDED, 100, 1e-3, -5, 0, 0},
      {GDN2_DECAY_BOUNDED, 100, -1e-3, 0, 0, 0},
      {GDN2_DECAY_BOUNDED, -INFINITY, 3, -2.5, 0, 0},
      {GDN2_DECAY_BOUNDED, 0, 0, -2.5, -1.25, 0},
      {GDN2_DECAY_BOUNDED, 2, 1, -4.99691201, -0.0228032146, -0.0228032146},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    double dx, dA;
    one_place(known[i].form, known[i].A_log, known[i].x, &dx, &dA);
    expect_gradient("dg", dx, known[i].by_x, known[i].g, known[i].A_log, known[i].x);
    expect_gradient("dA_log", dA, known[i].by_A, known[i].g, known[i].A_log, known[i].x);
    if (known[i].by_x == 0) assert_true(dx == 0);
    if (known[i].by_A == 0) assert_true(dA == 0);
  }
  /* The slope of a step, met exactly: beyond the numbers of float32, as large as they are, and not NaN. */
  double dx, dA;
  one_place(GDN2_DECAY_BOUNDED, 100, 0, &dx, &dA);
  assert_true(isfinite(dx) && dx < -1e37 && dA == 0);
}

/* ---- A sequence ---- */

static gradient_case raw(uint64_t seed, gdn2_decay form) {
  width_case c = width_new(seed, 2, 64, 2, 2, 16, 12);
  width_make_raw_decay(&c, form, seed);
  return gradient_of(c, seed);
}

/* Every strength of decay, by A_log: as right as a mild one, each channel by itself. */
static void test_strengths(void **state) {
  (void)state;
  const double strengths[] = {1e-3, 0.1, 1, 2, 3, 5.9, 6, 8, 20, 60, 88, 104, 1000};
  for (size_t n = 0; n < sizeof strengths / sizeof *strengths; n++) {
    const void *mark = test_mark();
    gradient_case x = raw(20, GDN2_DECAY_SOFTPLUS);
    width_fill(&x.c, W_DT, 2);
    width_fill_normal(&x.c, W_G, 21, 0.1);
    width_fill(&x.c, W_A, log(strengths[n] / softplus(2)));
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    const tensor dg = gradient_tensor(&x, D_G);
    const double sizes = root_mean_square(want.values[D_G], tensor_count(&dg));
    gradient_expect_finite(&x, &got);
    for (int i = 0; i < GRADIENTS; i++) {
      const tensor t = gradient_tensor(&x, i);
      const bool decays = i == D_G || i == D_A || i == D_DT;
      /* e^g has |g| roundings of g in it, and below 1e-38 float32 has nothing. */
      const double bound = 1e-6 + (decays || i == D_H0 ? 2e-7 * strengths[n] : 0);
      const double small = strengths[n] > 60 ? 1e-30 : 1e-33; /* beyond, e^g itself is subnormal or nearly so */
      const double unit = decays || i == D_H0 ? small : 1e-3;
      expect_close_to_unit(&t, got.values[i], want.values[i], bound, fmax(unit, want.spread[i]));
    }
    assert_true(sizes > 1e-28 || strengths[n] > 60);
    test_release_to(mark);
  }
}

/* Decays drawn from [-20, -5], as raw input. */
static void test_strong_random_decays(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 65; T += T == 1 ? 62 : 1) {
    width_case c = width_new(30, 1, T, 1, 1, 16, 12);
    rng r = {31};
    width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 30);
    width_fill(&c, W_A, 0);
    width_fill(&c, W_DT, 0);
    for (size_t i = 0; i < width_count(&c, W_G); i++) c.in[W_G][i] = (double)(float)rng_uniform(&r, 5, 20);
    const gradient_case x = gradient_of(c, 32);
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    gradient_expect_finite(&x, &got);
    gradient_expect_right_to_unit(&x, &got, &want, 3e-6, 1e-6);
  }
}

/* Tiny but positive decays, everywhere, in one channel, in one token of a chunk. */
static void test_tiny_decays(void **state) {
  (void)state;
  for (int where = 0; where < 3; where++) {
    gradient_case x = gradient_of(width_new(40, 1, 64, 1, 1, 32, 32), 40);
    width_fill(&x.c, W_G, 0);
    for (int64_t t = 0; t < 64; t++)
      for (int64_t d = 0; d < 32; d++)
        if (where == 0 || (where == 1 && d == 5) || (where == 2 && t % 16 == 7))
          width_row(&x.c, W_G, 0, t, 0)[d] = (double)(float)log(1e-12);
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    gradient_expect_right_to_unit(&x, &got, &want, 3e-6, 1e-12);
  }
}

/* dg by the log-decay itself: relative to its own size, as long as what it is made of are normal numbers. */
static void test_dg_of_strong_decays(void **state) {
  (void)state;
  const double decays[] = {-5, -20, -30, -60, -80};
  for (int n = 0; n < 5; n++) {
    gradient_case x = gradient_of(width_new(45, 1, 40, 2, 2, 24, 16), 45);
    width_fill(&x.c, W_G, decays[n]);
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    const tensor t = gradient_tensor(&x, D_G);
    assert_true(root_mean_square(want.values[D_G], tensor_count(&t)) > 0.01 * exp(decays[n]));
    expect_close_to_unit(&t, got.values[D_G], want.values[D_G], 1e-6, decays[n] < -60 ? 1e-31 : 1e-36);
  }
}

/* A reset in the middle, by raw input: what lies before gets nothing from behind it, the gate at it 0. */
static void test_reset(void **state) {
  (void)state;
  const int64_t places[] = {0, 1, 15, 16, 31, 32, 63};
  for (int n = 0; n < 7; n++) {
    const void *mark = test_mark();
    gradient_case x = raw(50, GDN2_DECAY_SOFTPLUS);
    const int64_t p = places[n], row = x.c.HV * x.c.V;
    width_own(&x.c, W_G);
    for (int64_t b = 0; b < 2; b++)
      for (int64_t h = 0; h < 2; h++)
        for (int64_t d = 0; d < x.c.K; d++) width_row(&x.c, W_G, b, p, h)[d] = INFINITY;
    for (int64_t b = 0; b < 2; b++)
      for (int64_t i = 0; i < p * row; i++) x.d_o[b * x.c.T * row + i] = 0;
    const gradients got = gradient_run(&x);
    gradient_expect_finite(&x, &got);
    for (int i = 0; i < D_H0; i++) {
      const tensor t = gradient_tensor(&x, i);
      const int64_t width = t.shape[2] * t.shape[3], before = i == D_G ? p + 1 : p;
      for (int64_t b = 0; b < 2; b++)
        for (int64_t m = 0; m < before * width; m++) assert_true(got.values[i][b * x.c.T * width + m] == 0);
    }
    const tensor h0 = gradient_tensor(&x, D_H0);
    expect_all_zero(&h0, got.values[D_H0]);
    test_release_to(mark);
  }
}

/* A head with A_log = -inf: no decay, and nothing for A_log to learn from; heads beside it as ever. */
static void test_head_at_rest(void **state) {
  (void)state;
  gradient_case x = raw(60, GDN2_DECAY_SOFTPLUS);
  x.c.in[W_A][1] = -INFINITY;
  const gradients got = gradient_run(&x);
  const gradient_truth want = gradient_oracle(&x);
  gradient_expect_finite(&x, &got);
  gradient_expect_right(&x, &got, &want, 1e-6);
  assert_true(got.values[D_A][1] == 0 && got.values[D_A][0] != 0);
  for (int64_t t = 0; t < 2 * x.c.T; t++)
    for (int64_t d = 0; d < x.c.K; d++) assert_true(got.values[D_G][(t * 2 + 1) * x.c.K + d] == 0);
}

/* Without h0 the first token's decay and erasure reach nothing. */
static void test_first_token(void **state) {
  (void)state;
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    gradient_case x = raw(65, (gdn2_decay)form);
    width_make_raw_gates(&x.c, GDN2_GATE_SIGMOID, GDN2_GATE_SIGMOID, 65);
    gradient_case zeros = x;
    x.c.in[W_H0] = NULL;
    width_fill(&zeros.c, W_H0, 0);
    const gradients got = gradient_run(&x), same = gradient_run(&zeros);
    gradient_expect_equal(&x, &got, &same);
    for (int64_t b = 0; b < 2; b++)
      for (int64_t i = 0; i < 2 * x.c.K; i++)
        assert_true(got.values[D_G][b * x.c.T * 2 * x.c.K + i] == 0 && got.values[D_B][b * x.c.T * 2 * x.c.K + i] == 0);
  }
}

/* Saturated sigmoids: the slope keeps its digits on both sides. */
static void test_saturated_gates(void **state) {
  (void)state;
  for (int form = GDN2_GATE_SIGMOID; form <= GDN2_GATE_TWO_SIGMOID; form++)
    for (int side = -1; side <= 1; side += 2) {
      gradient_case x = gradient_of(width_new(70, 1, 20, 1, 2, 9, 8), 70);
      width_make_raw_gates(&x.c, (gdn2_gate)form, GDN2_GATE_SIGMOID, 70);
      width_fill(&x.c, W_B, side * 12);
      width_fill(&x.c, W_W, side * 12);
      const gradients got = gradient_run(&x);
      const gradient_truth want = gradient_oracle(&x);
      gradient_expect_right_to_unit(&x, &got, &want, 1e-6, 1e-6);
      const tensor b = gradient_tensor(&x, D_B), w = gradient_tensor(&x, D_W);
      expect_close_to_unit(&b, got.values[D_B], want.values[D_B], 1e-6, 1e-9);
      expect_close_to_unit(&w, got.values[D_W], want.values[D_W], 1e-6, 1e-9);
    }
}

/* ---- The L2 norm ---- */

static gradient_case normalised(double size, uint64_t seed) {
  width_case c = width_new(seed, 1, 20, 2, 2, 13, 9);
  for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, seed, size);
  c.l2norm = true;
  return gradient_of(c, seed);
}

/* From lengths whose squares vanish to lengths whose squares overflow; gradients grow as the rows shrink, up to 1000 dy. */
static void test_lengths_of_rows(void **state) {
  (void)state;
  const double sizes[] = {1e-41, 1e-30, 1e-12, 1e-4, 1e-3, 1, 100, 1e10, 1e25};
  for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
    const gradient_case x = normalised(sizes[n], 80);
    const gradients got = gradient_run(&x);
    const gradient_truth want = gradient_oracle(&x);
    gradient_expect_finite(&x, &got);
    for (int i = 0; i < D_H0; i++) {
      const tensor t = gradient_tensor(&x, i);
      const double size = root_mean_square(want.values[i], tensor_count(&t));
      if (i <= D_K) assert_true(size > 1e-6 * fmin(1000, 1 / sizes[n]) || sizes[n] < 1e-4);
      const double unit = sizes[n] < 1e-38 ? 1e-31 : 1e-37; /* subnormal rows are zeros */
      expect_close_to_unit(&t, got.values[i], want.values[i], 2e-6, i == D_B ? 1e-6 : unit);
    }
  }
}

/* A row of zeros: y = 0, and its gradient is that of y times 1000. */
static void test_zero_rows(void **state) {
  (void)state;
  gradient_case x = normalised(1, 85);
  for (int i = W_Q; i <= W_K; i++) {
    width_own(&x.c, i);
    for (int64_t d = 0; d < x.c.K; d++) width_row(&x.c, i, 0, 7, 1)[d] = 0;
  }
  gradient_case plain = x;
  plain.c.l2norm = false;
  for (int i = W_Q; i <= W_K; i++) plain.c.in[i] = width_finished(&x.c, i);
  for (int i = W_Q; i <= W_K; i++)
    for (size_t n = 0; n < width_count(&x.c, i); n++) plain.c.in[i][n] = (double)(float)plain.c.in[i][n];
  const gradients got = gradient_run(&x), dy = gradient_run(&plain);
  gradient_expect_finite(&x, &got);
  int large = 0;
  for (int i = D_Q; i <= D_K; i++)
    for (int64_t d = 0; d < x.c.K; d++) {
      const int64_t at = (7 * 2 + 1) * x.c.K + d;
      const double want = 1000 * (double)dy.values[i][at];
      if (!(fabs((double)got.values[i][at] - want) <= 1e-5 * fabs(want) + 1e-4))
        fail_msg("channel %ld: %.9g, must be %.9g", (long)d, (double)got.values[i][at], want);
      large += fabs(want) > 0.1;
    }
  assert_true(large > x.c.K);
}

/* The gradient is across the row: nothing is gained by making it longer, but for the 1e-6. */
static void test_across_the_row(void **state) {
  (void)state;
  const gradient_case x = normalised(1, 90);
  const gradients got = gradient_run(&x);
  for (int i = D_Q; i <= D_K; i++)
    for (int64_t t = 0; t < x.c.T; t++)
      for (int64_t h = 0; h < 2; h++) {
        const double *row = width_row(&x.c, i, 0, t, h);
        double along = 0, size = 0;
        for (int64_t d = 0; d < x.c.K; d++) {
          const double dx = (double)got.values[i][(t * 2 + h) * x.c.K + d];
          along += row[d] * dx, size += fabs(row[d] * dx);
        }
        assert_true(size > 1e-4 && fabs(along) < 2e-6 * size);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_sweep),           TEST(test_extremes),    TEST(test_strengths),    TEST(test_strong_random_decays),
      TEST(test_tiny_decays),     TEST(test_reset),       TEST(test_head_at_rest), TEST(test_dg_of_strong_decays),
      TEST(test_saturated_gates), TEST(test_first_token), TEST(test_zero_rows),    TEST(test_lengths_of_rows),
      TEST(test_across_the_row),
  };
  return TEST_RUN(tests);
}
