/* Gradients of the float64 path through every option: against derivatives of the recurrence on complex numbers, against central
 * differences of the library's own float64 forward, and against ref/ at sizes that are not tiny. */
#include <math.h>

#include "double.h"
#include "ref.h"
#include "test.h"

#define EVERYTHING (DOUBLE_O | DOUBLE_H_FINAL | DOUBLE_GRADIENTS)

static unsigned all_of(const double_problem *x) { return DOUBLE_O | DOUBLE_H_FINAL | double_gradients(x); }

static void expect_like(const double_problem *x, const double_result *got, const double_result *want, double bound, double unit) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  if (got->o) double_expect_near(&o, got->o, want->o, bound, unit);
  if (got->h_final) double_expect_near(&h, got->h_final, want->h_final, bound, unit);
  for (int i = 0; i < W_INPUTS; i++) {
    const tensor t = double_tensor(x, i);
    if (got->grad[i] && want->grad[i]) double_expect_near(&t, got->grad[i], want->grad[i], bound, unit);
  }
}

/* ---- Every option ---- */

/* How often each choice occurred, and how often each gradient was of a size that shows something. */
typedef struct coverage {
  int decay[3], erase[3], write[2], norm[2], map[2], ratio[4], g_keys[2], b_keys[2], cut[2], absent[W_INPUTS], per_head[W_INPUTS];
  int summed[W_INPUTS], sized[W_INPUTS], without_d_o, without_dh;
} coverage;

static void count(coverage *n, const double_problem *x, const double_result *want) {
  const width_case *c = &x->c;
  n->decay[c->decay]++, n->erase[c->erase]++, n->write[c->write]++, n->norm[c->l2norm]++, n->map[c->map]++;
  n->ratio[c->HV / c->H]++, n->g_keys[c->g_key_heads]++, n->b_keys[c->b_key_heads]++, n->cut[c->cu != NULL]++;
  n->without_d_o += !x->d_o, n->without_dh += !x->dh_final;
  for (int i = 0; i < W_INPUTS; i++) {
    const tensor t = double_tensor(x, i);
    n->absent[i] += !c->in[i], n->per_head[i] += c->per_head[i], n->summed[i] += x->summed[i];
    n->sized[i] += want->grad[i] && root_mean_square(want->grad[i], tensor_count(&t)) > 1e-2;
  }
}

static void expect_all_covered(const coverage *n) {
  for (int i = 0; i < 3; i++) assert_true(n->decay[i] > 4 && n->erase[i] > 4 && n->ratio[i + 1] > 4);
  for (int i = 0; i < 2; i++) {
    assert_true(n->write[i] > 4 && n->norm[i] > 4 && n->map[i] > 4 && n->cut[i] > 4);
    assert_true(n->g_keys[i] > 4 && n->b_keys[i] > 4);
  }
  for (int i = W_G; i <= W_W; i++) assert_true(n->per_head[i] > 4 && n->summed[i] > 4 && n->absent[i] > 1);
  assert_true(n->per_head[W_DT] > 4 && n->absent[W_DT] > 1 && n->absent[W_H0] > 4 && n->without_d_o > 4 && n->without_dh > 4);
  for (int i = 0; i < W_INPUTS; i++) assert_true(n->sized[i] > 20);
}

static void test_every_option(void **state) {
  (void)state;
  coverage n = {.without_d_o = 0};
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const void *mark = test_mark();
    char text[256];
    const double_problem x = double_any(seed);
    const double_result want = double_oracle(&x), got = double_run(&x, all_of(&x));
    if (getenv("GDN2_TEST_VERBOSE")) print_message("%d: %s\n", (int)seed, double_options(&x, text));
    expect_like(&x, &got, &want, 1e-13, 1e-2);
    count(&n, &x, &want);
    test_release_to(mark);
  }
  expect_all_covered(&n);
}

/* The loss of a call with one element of an input moved. */
static double moved_loss(const double_problem *x, const double_call *call, int input, size_t i, double step, double_result *r) {
  double *at = &x->c.in[input][i];
  const double kept = *at;
  *at += step;
  width_buffer_store(&call->width.in[input], x->c.in[input]);
  *at = kept;
  assert_int_equal(gdn2_forward(&call->width.args), GDN2_OK);
  width_buffer_load_wide(&call->width.o, r->o);
  width_buffer_load_wide(&call->width.h_final, r->h_final);
  return double_loss(x, r);
}

/* (L(x + s) - L(x - s)) / 2s by every element of an input, of the library's forward. */
static double *differences(const double_problem *x, int input, double step) {
  const tensor whole = width_tensor(&x->c, input), t = double_tensor(x, input), o = width_o_tensor(&x->c),
               h = width_h_tensor(&x->c);
  const double_call call = double_call_new(x, DOUBLE_O | DOUBLE_H_FINAL, &width_contiguous);
  double_result room = {.o = test_doubles(tensor_count(&o)), .h_final = test_doubles(tensor_count(&h))};
  double *slope = test_doubles(tensor_count(&t));
  test_unlock(call.width.in[input].base);
  for (size_t n = 0; n < tensor_count(&t); n++) slope[n] = 0;
  for (size_t n = 0; n < tensor_count(&whole); n++) {
    const double up = moved_loss(x, &call, input, n, step, &room), down = moved_loss(x, &call, input, n, -step, &room);
    slope[n / (size_t)(whole.shape[3] / t.shape[3])] += (up - down) / (2 * step);
  }
  return slope;
}

static void test_differences(void **state) {
  (void)state;
  for (uint64_t seed = 101; seed <= 107; seed++) {
    const double_problem x = double_any(seed);
    const double_result got = double_run(&x, double_gradients(&x));
    for (int i = 0; i < W_INPUTS; i++) {
      const tensor t = double_tensor(&x, i);
      if (x.c.in[i] && got.grad[i]) double_expect_near(&t, got.grad[i], differences(&x, i, 2e-5), 1e-8, 1e-2);
    }
  }
}

/* The comparison sees what a wrong chain rule would give. */
static void test_planted_errors_are_seen(void **state) {
  (void)state;
  int seen = 0;
  for (uint64_t seed = 1; seed <= 30; seed++) {
    const double_problem x = double_any(seed);
    double_problem wrong = x;
    if (x.c.l2norm)
      wrong.c.l2norm = false;
    else if (x.c.decay == GDN2_DECAY_BOUNDED)
      wrong.c.lower_bound *= 1.001;
    else if (x.c.HV > 2 * x.c.H)
      wrong.c.map = x.c.map == GDN2_HEADS_TILED ? GDN2_HEADS_GROUPED : GDN2_HEADS_TILED;
    else
      continue;
    const double_result right = double_oracle(&x), got = double_run(&wrong, DOUBLE_GRADIENTS & double_gradients(&x));
    double worst = 0;
    for (int i = W_Q; i <= W_B; i++) {
      const tensor t = double_tensor(&x, i);
      for (size_t n = 0; n < tensor_count(&t); n++) worst = fmax(worst, fabs(got.grad[i][n] - right.grad[i][n]));
    }
    assert_true(worst > 1e-6);
    seen++;
  }
  assert_true(seen > 15);
}

/* ---- ref/ ---- */

static void expect_ref(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t K, int64_t V) {
  const width_case c = width_new(seed, B, T, H, H, K, V);
  const double_problem x = double_new(&c, seed);
  double_result want = {.o = NULL};
  for (int i = W_Q; i <= W_H0; i++) want.grad[i] = test_doubles(width_count(&c, i));
  const tensor o = width_o_tensor(&c), h = width_h_tensor(&c);
  want.o = test_doubles(tensor_count(&o));
  want.h_final = test_doubles(tensor_count(&h));
  double *const *in = x.c.in, *const *g = want.grad;
  const ref_problem p = {.B = B,
                         .T = T,
                         .H = H,
                         .K = K,
                         .V = V,
                         .scale = 1 / sqrt((double)K),
                         .q = in[W_Q],
                         .k = in[W_K],
                         .v = in[W_V],
                         .g = in[W_G],
                         .b = in[W_B],
                         .w = in[W_W],
                         .h0 = in[W_H0]};
  const ref_gradients grad = {g[W_Q], g[W_K], g[W_V], g[W_G], g[W_B], g[W_W], g[W_H0]};
  assert_int_equal(ref_forward(&p, want.o, want.h_final), 0);
  assert_int_equal(ref_backward(&p, x.d_o, x.dh_final, &grad), 0);
  const double_result got = double_run(&x, all_of(&x));
  expect_like(&x, &got, &want, 1e-13, 0);
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t sizes[][5] = {{2, 37, 3, 5, 7},     {1, 1, 2, 16, 9},   {1, 2, 1, 1, 1},     {1, 130, 2, 64, 33},
                              {1, 17, 1, 256, 256}, {3, 16, 2, 31, 64}, {1, 300, 1, 24, 80}, {1, 65, 1, 3, 200}};
  for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
    const void *mark = test_mark();
    expect_ref(200 + n, sizes[n][0], sizes[n][1], sizes[n][2], sizes[n][3], sizes[n][4]);
    test_release_to(mark);
  }
}

/* ---- What is asked for ---- */

/* Each gradient alone has the bits it has among the others; so have random subsets. */
static void test_subsets(void **state) {
  (void)state;
  rng r = {5};
  for (uint64_t seed = 301; seed <= 306; seed++) {
    const double_problem x = double_any(seed);
    const double_result all = double_run(&x, all_of(&x));
    for (int i = 0; i < W_INPUTS + 10; i++) {
      const unsigned wanted = i < W_INPUTS ? 1u << i : (unsigned)rng_next(&r) & EVERYTHING;
      const double_result some = double_run(&x, wanted & all_of(&x));
      double_expect_equal(&x, &some, &all);
    }
  }
}

/* Absent is zeros, and an absent optional input its neutral value, to the bit. */
static void test_absent_is_neutral(void **state) {
  (void)state;
  for (int which = 0; which < 6; which++) {
    width_case c = width_new(310, 2, 21, 2, 4, 6, 5);
    c.map = GDN2_HEADS_TILED;
    double_problem x = double_new(&c, 310);
    const int inputs[] = {W_H0, W_G, W_B, W_W};
    double *const zeros = test_doubles(width_count(&c, W_V) + width_count(&c, W_H0));
    memset(zeros, 0, (width_count(&c, W_V) + width_count(&c, W_H0)) * sizeof *zeros);
    double_problem y = x;
    if (which < 4) {
      width_fill(&x.c, inputs[which], inputs[which] == W_W);
      y.c.in[inputs[which]] = NULL;
    } else {
      *(which == 4 ? &x.d_o : &x.dh_final) = zeros;
      *(which == 4 ? &y.d_o : &y.dh_final) = NULL;
    }
    const double_result want = double_run(&x, all_of(&x)), got = double_run(&y, all_of(&y));
    for (int i = 0; which == 4 && i == 0; i++)
      for (size_t n = 0; n < width_count(&c, W_Q); n++) assert_true(got.grad[W_Q][n] == 0 && want.grad[W_Q][n] == 0);
    if (which == 4) memset(want.grad[W_Q], 0, width_count(&c, W_Q) * sizeof(double)); /* zero of either sign */
    if (which == 4) memset(got.grad[W_Q], 0, width_count(&c, W_Q) * sizeof(double));
    double_expect_equal(&x, &got, &want);
  }
}

/* ---- Extremes ---- */

static void expect_finite(const double_problem *x, const double_result *r) {
  for (int i = 0; i < W_INPUTS; i++) {
    const tensor t = double_tensor(x, i);
    for (size_t n = 0; r->grad[i] && n < tensor_count(&t); n++)
      if (!isfinite(r->grad[i][n])) fail_msg("%s: element %zu is %g", t.name, n, r->grad[i][n]);
  }
}

/* Gates from raw inputs so large that their parts are infinite: no gradient is, and a reset passes nothing on. */
static void test_extreme_gates(void **state) {
  (void)state;
  const double rates[] = {-INFINITY, -800, 0, 100, 800, INFINITY}, inputs[] = {-1000, -200, -37, 0, 37, 800};
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++)
    for (int a = 0; a < 6; a++)
      for (int n = 0; n < 6; n++) {
        const void *mark = test_mark();
        width_case c = width_new(320, 1, 5, 1, 2, 3, 4);
        width_make_raw_decay(&c, (gdn2_decay)form, 320);
        width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 321);
        double_problem x = double_new(&c, 320);
        width_fill(&x.c, W_A, rates[a]);
        width_fill(&x.c, W_DT, 0);
        width_fill(&x.c, W_G, inputs[n]);
        width_fill(&x.c, W_B, inputs[n]);
        width_fill(&x.c, W_W, -inputs[n]);
        const double_result r = double_run(&x, all_of(&x));
        /* The slope of a bounded gate at 0 grows with the rate, beyond all bounds. */
        if (form != GDN2_DECAY_BOUNDED || inputs[n] != 0 || rates[a] < 800) expect_finite(&x, &r);
        for (size_t i = 0; i < width_count(&c, W_V); i++) assert_true(isfinite(r.o[i]));
        for (int64_t j = 0; rates[a] == -INFINITY && j < 2; j++) assert_true(r.grad[W_A][j] == 0);
        test_release_to(mark);
      }
}

/* A reset in a channel or in all: no gradient goes through it, and that of its decay is exactly 0. */
static void test_reset(void **state) {
  (void)state;
  for (int64_t p = 0; p < 20; p += 3) {
    const width_case c = width_new(330, 1, 20, 1, 1, 4, 5);
    double_problem x = double_new(&c, 330);
    for (int64_t d = 0; d < c.K; d++) width_row(&x.c, W_G, 0, p, 0)[d] = -INFINITY;
    const double_result r = double_run(&x, all_of(&x));
    expect_finite(&x, &r);
    for (int64_t d = 0; d < c.K; d++) assert_true(r.grad[W_G][p * c.K + d] == 0);
    for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true((r.grad[W_H0][i] == 0) == (p == 0));
    /* From p on, the bits of a sequence that begins there. */
    double_problem tail = x;
    tail.c.T = c.T - p;
    tail.c.in[W_H0] = NULL;
    for (int i = W_Q; i <= W_W; i++) tail.c.in[i] = width_row(&x.c, i, 0, p, 0);
    tail.d_o = x.d_o + p * c.V;
    const double_result fresh = double_run(&tail, all_of(&tail));
    for (int i = W_Q; i <= W_W; i++) {
      const size_t row = i == W_V || i == W_W ? 5 : 4;
      if (i == W_G || i == W_B) continue; /* zeros may have either sign */
      assert_memory_equal(r.grad[i] + (size_t)p * row, fresh.grad[i], (size_t)tail.c.T * row * sizeof(double));
    }
  }
}

/* At a row of zeros the norm is 1e-3, and its gradient 1000 times that of the normalised row. */
static void test_zero_rows_of_the_norm(void **state) {
  (void)state;
  width_case c = width_new(340, 1, 1, 1, 1, 4, 5);
  double_problem x = double_new(&c, 340);
  width_fill(&x.c, W_Q, 0);
  double_problem normed = x;
  normed.c.l2norm = true;
  width_fill(&normed.c, W_K, 0), width_fill(&x.c, W_K, 0);
  const double_result plain = double_run(&x, all_of(&x)), got = double_run(&normed, all_of(&normed));
  for (int64_t d = 0; d < c.K; d++)
    for (int i = W_Q; i <= W_K; i++) {
      assert_true(fabs(plain.grad[i][d]) > 1e-6);
      assert_true(fabs(got.grad[i][d] / (1000 * plain.grad[i][d]) - 1) < 1e-13);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_every_option),  TEST(test_differences), TEST(test_planted_errors_are_seen),
      TEST(test_sizes),         TEST(test_subsets),     TEST(test_absent_is_neutral),
      TEST(test_extreme_gates), TEST(test_reset),       TEST(test_zero_rows_of_the_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
