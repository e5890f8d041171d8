/* Each part of lm/ against a float64 restatement. Sizes are distinct primes, so that no axis can stand for another. */
#include "lm_support.h"
#include "lm/parts.h"

static void embedding_copies_rows(void **state) {
  (void)state;
  enum { T = 5, D = 3 };
  float weight[256 * D], out[T * D];
  fill(weight, 256 * D, 1, 1);
  const uint8_t bytes[T] = {0, 255, 128, 10, 255};
  lm_embedding_forward(out, bytes, weight, T, D);
  for (int t = 0; t < T; t++) assert_memory_equal(out + t * D, weight + bytes[t] * D, D * sizeof *out);
}

/* Rows of ordinary size, so small that eps rules, and so large that their squares leave float32. */
static void rmsnorm_is_exact(void **state) {
  (void)state;
  enum { T = 3, D = 7 };
  const float size[T] = {2, 1e-3f, 1e25f};
  float x[T * D], weight[D], out[T * D], rstd[T];
  double want[T * D];
  fill(weight, D, 2, 3);
  for (int t = 0; t < T; t++) fill(x + t * D, D, 3u + (uint32_t)t, size[t]);
  lm_rmsnorm_forward(out, rstd, x, weight, T, D, 1e-6);
  for (int t = 0; t < T; t++) {
    double mean = 0;
    for (int d = 0; d < D; d++) mean += (double)x[t * D + d] * x[t * D + d] / D;
    double root = sqrt(mean + 1e-6);
    for (int d = 0; d < D; d++) want[t * D + d] = x[t * D + d] / root * weight[d];
    assert_near("row", out + t * D, want + t * D, D, 3e-7);
    assert_true(fabs(rstd[t] * root - 1) < 2e-7);
  }
}

static void linear_is_x_times_weight_transposed(void **state) {
  (void)state;
  enum { T = 5, D = 131, N = 7 };
  float x[T * D], weight[N * D], out[T * N];
  double want[T * N] = {0};
  fill(x, T * D, 4, 1), fill(weight, N * D, 5, 1);
  for (int t = 0; t < T; t++)
    for (int n = 0; n < N; n++)
      for (int d = 0; d < D; d++) want[t * N + n] += (double)x[t * D + d] * weight[n * D + d];
  lm_linear_forward(out, x, weight, T, D, N);
  assert_near("product", out, want, T * N, 1e-6);
  memset(out, 0, sizeof out);
  lm_linear_forward(out, x, weight, 1, D, N);
  assert_near("one token", out, want, N, 1e-6);
  assert_true(out[N] == 0);
  lm_linear_forward(out + 1, x, weight, 0, D, N);
  assert_near("no token", out, want, N, 1e-6);
}

/* The convolution as a scatter: what each token sends to itself and to the W-1 after it. */
static void scatter_conv(double *y, const float *x, const float *weight, int T, int D, int W) {
  for (int i = 0; i < T * D; i++) y[i] = 0;
  for (int from = 0; from < T; from++)
    for (int delay = 0; delay < W && from + delay < T; delay++)
      for (int d = 0; d < D; d++) y[(from + delay) * D + d] += (double)weight[d * W + W - 1 - delay] * x[from * D + d];
}

static void conv_is_exact_at_every_length(void **state) {
  (void)state;
  enum { D = 5, MAX_T = 11 };
  float x[MAX_T * D], weight[D * 4], out[MAX_T * D];
  double want[MAX_T * D];
  fill(x, MAX_T * D, 6, 1), fill(weight, D * 4, 7, 1);
  for (int W = 1; W <= 4; W++)
    for (int T = 1; T <= MAX_T; T++) {
      for (int i = 0; i < MAX_T * D; i++) out[i] = 77;
      lm_conv_forward(out, x, weight, T, D, W);
      scatter_conv(want, x, weight, T, D, W);
      assert_near("convolution", out, want, T * D, 3e-7);
      for (int i = T * D; i < MAX_T * D; i++) assert_true(out[i] == 77);
    }
}

static void conv_sees_no_later_token(void **state) {
  (void)state;
  enum { D = 3, T = 9, W = 4 };
  float x[T * D], weight[D * W], before[T * D], after[T * D];
  fill(x, T * D, 8, 1), fill(weight, D * W, 9, 1);
  lm_conv_forward(before, x, weight, T, D, W);
  for (int t = T - 1; t >= 0; t--) {
    for (int d = 0; d < D; d++) x[t * D + d] = NAN;
    lm_conv_forward(after, x, weight, T, D, W);
    assert_memory_equal(after, before, (size_t)(t * D) * sizeof *after);
    for (int i = t * D; i < T * D; i++) assert_true(isnan(after[i]));
  }
}

/* Below the smallest normal float32, 1e-38, sigmoid is 0 or coarse; silu multiplies that by up to 200. */
static void assert_sweep(const float *got, const float *x, int count, double (*want)(double)) {
  for (int i = 0; i < count; i++) {
    double right = want(x[i]);
    if (!(fabs(got[i] - right) <= 1e-6 * fabs(right) + 3e-36)) fail_msg("at %g: %g, not %g", x[i], got[i], right);
  }
}

static double exact_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double exact_silu(double x) { return x * exact_sigmoid(x); }
static double exact_softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

enum { SWEEP = 3201 }; /* -200 .. 200 by eighths */

static void sweep_points(float *x) {
  for (int i = 0; i < SWEEP; i++) x[i] = -200 + 0.125f * (float)i;
}

static void activations_over_their_range(void **state) {
  (void)state;
  static float x[SWEEP], out[SWEEP];
  sweep_points(x);
  lm_silu_forward(out, x, SWEEP);
  assert_sweep(out, x, SWEEP, exact_silu);
  lm_sigmoid_forward(out, x, SWEEP);
  assert_sweep(out, x, SWEEP, exact_sigmoid);
  memcpy(out, x, sizeof x);
  lm_silu_forward(out, out, SWEEP);
  assert_sweep(out, x, SWEEP, exact_silu);
}

static void softplus_over_its_range(void **state) {
  (void)state;
  static float x[SWEEP];
  sweep_points(x);
  for (int i = 0; i < SWEEP; i++) {
    double want = exact_softplus(x[i]), got = lm_softplus(x[i]);
    if (!(fabs(got - want) <= 1e-15 * want)) fail_msg("softplus(%g): %.17g, not %.17g", x[i], got, want);
  }
  assert_true(lm_softplus(100) == 100);
  assert_true(lm_softplus(1e300) == 1e300);
  assert_true(lm_softplus(-1e300) == 0);
}

static void l2norm_is_exact(void **state) {
  (void)state;
  enum { R = 4, K = 13 };
  const float size[R] = {1, 3e-4f, 1e25f, 1e-3f};
  float x[R * K], out[R * K], rstd[R];
  double want[R * K];
  for (int r = 0; r < R; r++) fill(x + r * K, K, 10u + (uint32_t)r, size[r]);
  lm_l2norm_forward(out, rstd, x, R, K, 1e-6);
  for (int r = 0; r < R; r++) {
    double sum = 0;
    for (int i = 0; i < K; i++) sum += (double)x[r * K + i] * x[r * K + i];
    for (int i = 0; i < K; i++) want[r * K + i] = x[r * K + i] / sqrt(sum + 1e-6);
    assert_near("row", out + r * K, want + r * K, K, 3e-7);
    assert_true(fabs(rstd[r] * sqrt(sum + 1e-6) - 1) < 2e-7);
  }
}

/* Zero stays zero with slope eps^-1/2 = 1000, and so do the smallest numbers there are. */
static void l2norm_of_nothing_is_finite(void **state) {
  (void)state;
  float x[4] = {0, 0, 1e-45f, -1e-45f}, out[4], rstd[2];
  lm_l2norm_forward(out, rstd, x, 2, 2, 1e-6);
  assert_true(out[0] == 0 && out[1] == 0);
  for (int r = 0; r < 2; r++) assert_true(fabsf(rstd[r] - 1000) < 1e-3f);
  assert_true(fabsf(out[2] / x[2] - 1000) < 1 && out[3] == -out[2]);
}

/* One head and one channel: g for A_log and f, dt_bias = 0. */
static float one_decay(float A_log, float f) {
  float g, no_bias = 0;
  lm_decay_forward(&g, &f, &A_log, &no_bias, 1, 1, 1);
  return g;
}

/* Values from logarithms: the smallest float32 is 1.4e-45, so that 4e-44 keeps about two digits. */
static void decay_at_its_extremes(void **state) {
  (void)state;
  const struct {
    float A_log, f;
    double want, allowed;
  } cases[] = {
      {100, -200, -3.7200759760208361e-44, 1e-45}, /* exp(100) is beyond float32, softplus(-200) below it */
      {-100, 100, -3.7200759760208361e-42, 1e-45}, /* the other way round */
      {800, -800, -1, 1e-7},                       /* and beyond float64 */
      {-6, 100, -0.24787521766663584, 1e-8},       /* softplus(100) is 100, not infinite */
      {2.7725887f, 100, -1600, 1e-3},
      {0, 0, -0.69314718055994531, 1e-8},
      {-800, 800, 0, 0},
      {0, -200, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    float got = one_decay(cases[i].A_log, cases[i].f);
    if (!(fabs(got - cases[i].want) <= cases[i].allowed))
      fail_msg("A_log %g, f %g: %g, not %g", cases[i].A_log, cases[i].f, got, cases[i].want);
  }
  assert_true(one_decay(100, 0) == -INFINITY);
  assert_true(one_decay(INFINITY, -200) == -INFINITY);
  for (float f = -200; f <= 200; f += 0.5f) assert_true(one_decay(-INFINITY, f) == 0);
  assert_true(isnan(one_decay(NAN, 1)) && isnan(one_decay(1, NAN)));
}

/* A_log belongs to a head, dt_bias to a channel of a head; the last token lies where softplus is an exponential. */
static void decay_is_exact(void **state) {
  (void)state;
  enum { T = 2, H = 3, K = 5 };
  float f[T * H * K], A_log[H] = {0.1f, 1.9f, 2.7f}, dt_bias[H * K], g[T * H * K];
  double want[T * H * K];
  fill(f, T * H * K, 14, 4), fill(dt_bias, H * K, 15, 4);
  for (int i = (T - 1) * H * K; i < T * H * K; i++) f[i] -= 60;
  for (int t = 0; t < T; t++)
    for (int h = 0; h < H; h++)
      for (int i = 0; i < K; i++) {
        int at = (t * H + h) * K + i;
        want[at] = -exp(A_log[h]) * exact_softplus((double)f[at] + dt_bias[h * K + i]);
      }
  lm_decay_forward(g, f, A_log, dt_bias, T, H, K);
  assert_near("g", g, want, T * H * K, 1e-7);
  for (int i = 0; i < T * H * K; i++) assert_true(fabs(g[i] - want[i]) <= 1e-7 * fabs(want[i]));
}

/* The comparison itself: a wrong element, a NaN and an empty reference must not pass. */
static void comparison_sees_errors(void **state) {
  (void)state;
  float got[3] = {1, 2, 3};
  double want[3] = {1, 2, 3}, nothing[3] = {0, 0, 0};
  assert_true(relative_l2(got, want, 3) == 0);
  got[1] = 2.0001f;
  assert_true(relative_l2(got, want, 3) > 1e-5);
  got[1] = NAN;
  assert_false(relative_l2(got, want, 3) <= 1e30);
  assert_true(relative_l2((float[3]){0, 0, 0}, nothing, 3) == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embedding_copies_rows),
      cmocka_unit_test(rmsnorm_is_exact),
      cmocka_unit_test(linear_is_x_times_weight_transposed),
      cmocka_unit_test(conv_is_exact_at_every_length),
      cmocka_unit_test(conv_sees_no_later_token),
      cmocka_unit_test(activations_over_their_range),
      cmocka_unit_test(softplus_over_its_range),
      cmocka_unit_test(l2norm_is_exact),
      cmocka_unit_test(l2norm_of_nothing_is_finite),
      cmocka_unit_test(decay_at_its_extremes),
      cmocka_unit_test(decay_is_exact),
      cmocka_unit_test(comparison_sees_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
