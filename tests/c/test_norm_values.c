/* Values and gradients of the norm against the loop: every option, element type and layout. */
#include <float.h>
#include <math.h>

#include "layer.h"
#include "test.h"

static const gdn2_exec two = {.threads = 2};

static void check(const norm_case *c) {
  const norm_result want = norm_loop(c, NORM_RIGHT), got = norm_run(c, two);
  norm_expect_right(c, &got, &want);
}

/* Rows around the vectors, more rows than a block, rows wider than one. */
static const int64_t sizes[][4] = {{2, 3, 5, 7},  {1, 2, 3, 2},  {2, 2, 2, 16},   {1, 3, 2, 17},  {1, 2, 2, 63},
                                   {2, 5, 3, 64}, {1, 4, 4, 65}, {2, 9, 4, 128},  {1, 3, 2, 300}, {1, 7, 1, 1000},
                                   {3, 70, 1, 2}, {1, 1, 1, 3},  {1, 2, 1, 4099}, {1, 90, 8, 64}, {2, 300, 3, 33}};

static void run_sizes(gdn2_dtype dtype) {
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const void *mark = test_mark();
    norm_case c = norm_new(100 + i, dtype, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
    c.gate = (gdn2_norm_gate)(i % 2);
    if (i % 3 == 2) c.in[N_Z] = NULL;
    check(&c);
    test_release_to(mark);
  }
}
static void test_float32(void **state) { (void)state, run_sizes(GDN2_F32); }
static void test_bfloat16(void **state) { (void)state, run_sizes(GDN2_BF16); }
static void test_float16(void **state) { (void)state, run_sizes(GDN2_F16); }
static void test_float64(void **state) { (void)state, run_sizes(GDN2_F64); }

static void test_options(void **state) {
  (void)state;
  for (int bits = 0; bits < 32; bits++) {
    const void *mark = test_mark();
    norm_case c = norm_new(200 + (uint64_t)bits, bits & 16 ? GDN2_F64 : GDN2_F32, 2, 5, 3, 37);
    c.gate = (gdn2_norm_gate)(bits & 1);
    c.plus_one = bits >> 1 & 1;
    if (bits & 4) c.in[N_WEIGHT] = NULL;
    if (bits & 8) c.in[N_Z] = NULL;
    check(&c);
    test_release_to(mark);
  }
}

static void test_mixed_types(void **state) {
  (void)state;
  for (int turn = 0; turn < 6; turn++) {
    const void *mark = test_mark();
    norm_case c = norm_new(300, GDN2_BF16, 2, 4, 3, 45);
    for (int i = 0; i < N_INPUTS; i++) {
      const tensor t = norm_in_tensor(&c, i);
      c.dtype[i] = (gdn2_dtype)((i + turn) % 3), c.out_dtype[i] = (gdn2_dtype)((2 * i + turn / 2) % 3);
      for (size_t e = 0; e < tensor_count(&t); e++) c.in[i][e] = layer_round(c.dtype[i], c.in[i][e]);
    }
    check(&c);
    test_release_to(mark);
  }
}

static void test_layouts(void **state) {
  (void)state;
  static const slab_layout layouts[] = {{{0, 1, 2, 3}, {3, 5, 9, 0}, {1, 1, 1, 1}},
                                        {{0, 2, 1, 3}, {0, 7, 2, 0}, {1, 1, 1, 1}},
                                        {{2, 1, 0, 3}, {4, 0, 11, 0}, {-1, -1, -1, 1}}};
  for (int type = GDN2_F32; type <= GDN2_F64; type++)
    for (int i = 0; i < 6; i++) {
      const void *mark = test_mark();
      norm_case c = norm_new(400, (gdn2_dtype)type, 3, 5, i < 3 ? 4 : 1, 35);
      c.layout = &layouts[i % 3];
      check(&c);
      test_release_to(mark);
    }
}

/* One channel: n is +1 or -1 but for eps, and nearly all of (L7) cancels; what is left is judged by what it is made of. */
static void test_one_channel(void **state) {
  (void)state;
  norm_case c = norm_new(450, GDN2_F32, 1, 9, 3, 1);
  const norm_result want = norm_loop(&c, NORM_RIGHT), got = norm_run(&c, two);
  norm_result plain = got;
  plain.out[N_DX] = NULL;
  norm_expect_right(&c, &plain, &want);
  for (int i = 0; i < 27; i++) {
    const double z = c.in[N_Z][i], whole = c.in[N_DY][i] * c.in[N_WEIGHT][0] * z / (1 + exp(-z)) / fabs(c.in[N_X][i]);
    if (fabs(got.out[N_DX][i] - want.out[N_DX][i]) > 1e-6 * fabs(whole))
      fail_msg("dx[%d] = %g, must be %g", i, got.out[N_DX][i], want.out[N_DX][i]);
  }
}

/* The default eps; an eps far above the squares; squares beside which eps is nothing. */
static void test_eps(void **state) {
  (void)state;
  const double eps[] = {0, 1e-12, 1e-5, 100};
  for (int n = 0; n < 4; n++) {
    norm_case c = norm_new(500, GDN2_F32, 1, 3, 2, 24);
    c.eps = eps[n];
    check(&c);
  }
  norm_case small = norm_new(501, GDN2_F32, 1, 3, 2, 24);
  for (int i = 0; i < 3 * 2 * 24; i++) small.in[N_X][i] = ldexp(small.in[N_X][i], -10);
  small.eps = 0; /* 1e-6: about the size of the squares */
  check(&small);
}

/* Squares beyond float32, and below it. */
static void test_range(void **state) {
  (void)state;
  const int powers[] = {66, 100, 120, -70, -100};
  for (int n = 0; n < 5; n++) {
    norm_case c = norm_new(600, GDN2_F32, 1, 3, 2, 50);
    c.eps = 1e-300;
    for (int i = 0; i < 3 * 2 * 50; i++) c.in[N_X][i] = ldexp(c.in[N_X][i], powers[n]);
    const norm_result want = norm_loop(&c, NORM_RIGHT), got = norm_run_some(&c, 1u << N_Y | 1u << N_DZ | 1u << N_DWEIGHT, two);
    norm_expect_right(&c, &got, &want);
  }
}

/* A row of zeros, as padding has them: y is 0, and dx is the gradient by n times 1 / sqrt(eps), not more. */
static void test_zero_rows(void **state) {
  (void)state;
  norm_case c = norm_new(700, GDN2_F32, 1, 2, 2, 20);
  c.eps = 0;
  for (int i = 0; i < 20; i++) c.in[N_X][i] = 0;
  const norm_result want = norm_loop(&c, NORM_RIGHT), got = norm_run(&c, two);
  norm_expect_right(&c, &got, &want);
  for (int i = 0; i < 20; i++) {
    const double z = c.in[N_Z][i], gate = z / (1 + exp(-z)), dx = 1000 * c.in[N_DY][i] * gate * c.in[N_WEIGHT][i];
    assert_true(got.out[N_Y][i] == 0);
    if (fabs(got.out[N_DX][i] - dx) > 1e-5 * fabs(dx)) fail_msg("dx[%d] = %g, must be %g", i, got.out[N_DX][i], dx);
  }
}

/* What is not finite comes out as in the formula, in its own row only. */
static void test_not_finite(void **state) {
  (void)state;
  norm_case c = norm_new(800, GDN2_F32, 1, 3, 1, 40);
  const norm_result clean = norm_run_some(&c, 1u << N_Y | 1u << N_DX, two);
  c.in[N_X][40 + 7] = NAN;
  const norm_result got = norm_run_some(&c, 1u << N_Y | 1u << N_DX, two);
  for (int i = 0; i < 120; i++) {
    const bool spoilt = i / 40 == 1;
    assert_int_equal(isnan(got.out[N_Y][i]) != 0, spoilt);
    if (!spoilt) assert_true(got.out[N_Y][i] == clean.out[N_Y][i] && got.out[N_DX][i] == clean.out[N_DX][i]);
  }
}

/* Subnormal float32 numbers are zeros to the library, where the machine can, and stay numbers to the caller; in float64 they are
 * numbers like others. */
static void test_subnormal(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64) {
    norm_case c = norm_new(750, (gdn2_dtype)type, 1, 3, 2, 19);
    for (int64_t i = 0; i < 3 * 2 * 19; i++) c.in[N_X][i] = 0x1p-128, c.in[N_DY][i] = 1;
    c.in[N_Z] = NULL;
    for (int i = 0; i < 19; i++) c.in[N_WEIGHT][i] = 0x1p120;
    c.plus_one = 0, c.eps = 1;
    const norm_result got = norm_run_some(&c, 1u << N_Y, two);
    assert_true(test_halved(FLT_MIN) > 0);
    for (int64_t i = 0; i < 3 * 2 * 19; i++)
      assert_true(type == GDN2_F32 && TEST_FLUSHES ? got.out[N_Y][i] == 0 : got.out[N_Y][i] == 0x1p-8);
  }
}

/* Gates far out in float32: a row of ones has the norm 1 and y = gate(z), dz = gate'(z). Sigmoids that would be subnormal may be
 * 0, or their limit; a NaN stays one. */
static void extreme_gates(gdn2_norm_gate kind) {
  static const float z[] = {NAN,   -3e38f, -1e30f, -1000, -104,  -89, -87.4f, -87,  -20,
                            -0.0f, 1e-30f, 20,     87,    88.5f, 104, 1e30f,  3e38f};
  enum { D = sizeof z / sizeof *z };
  float ones[D], y[D], dz[D];
  for (int i = 0; i < D; i++) ones[i] = 1;
  const gdn2_norm_problem problem = {
      .B = 1, .T = 1, .H = 1, .D = D, .x = {ones, GDN2_F32, {0}}, .z = {z, GDN2_F32, {0}}, .gate = kind, .eps = 1e-12};
  const gdn2_norm_forward_args forward = {
      .struct_size = sizeof forward, .problem = problem, .y = {y, GDN2_F32, {0}}, .exec = {.threads = 1}};
  const gdn2_norm_backward_args backward = {.struct_size = sizeof backward,
                                            .problem = problem,
                                            .dy = {ones, GDN2_F32, {0}},
                                            .dz = {dz, GDN2_F32, {0}},
                                            .exec = {.threads = 1}};
  assert_int_equal(gdn2_norm_forward(&forward), GDN2_OK);
  assert_int_equal(gdn2_norm_backward(&backward), GDN2_OK);
  assert_true(isnan(y[0]) && isnan(dz[0]));
  for (int i = 1; i < D; i++) {
    const double at = (double)z[i], s = 1 / (1 + exp(-at)), rest = 1 / (1 + exp(at)),
                 limit = fmin(fmax(1, fabs(at)), 128) * 0x1p-126;
    const double gate = kind == GDN2_NORM_SILU ? at * s : s, slope = kind == GDN2_NORM_SILU ? s * (1 + at * rest) : s * rest;
    if (!(fabs((double)y[i] - gate) <= 1e-6 * fabs(gate) + limit)) fail_msg("gate(%g) = %g, must be %g", at, (double)y[i], gate);
    if (!(fabs((double)dz[i] - slope) <= 1e-5 * fabs(slope) + limit))
      fail_msg("gate'(%g) = %g, must be %g", at, (double)dz[i], slope);
  }
}
static void test_extreme_silu(void **state) { (void)state, extreme_gates(GDN2_NORM_SILU); }
static void test_extreme_sigmoid(void **state) { (void)state, extreme_gates(GDN2_NORM_SIGMOID); }

static void test_faults_are_seen(void **state) {
  (void)state;
  norm_case c = norm_new(900, GDN2_F32, 2, 4, 3, 30);
  c.eps = 0.5;
  const norm_result got = norm_run(&c, two);
  for (int fault = NORM_RIGHT + 1; fault < NORM_FAULTS; fault++) {
    const norm_result wrong = norm_loop(&c, (norm_fault)fault);
    double largest = 0;
    for (int i = 0; i < N_OUTPUTS; i++) {
      const tensor t = norm_out_tensor(&c, i);
      const double error = layer_error(got.out[i], wrong.out[i], tensor_count(&t));
      if (error > largest) largest = error;
    }
    if (!(largest > 1e-2)) fail_msg("fault %d is not seen: %.3e", fault, largest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_float32),      TEST(test_bfloat16),        TEST(test_float16),   TEST(test_float64),
      TEST(test_options),      TEST(test_layouts),         TEST(test_eps),       TEST(test_one_channel),
      TEST(test_mixed_types),  TEST(test_range),           TEST(test_zero_rows), TEST(test_not_finite),
      TEST(test_extreme_silu), TEST(test_extreme_sigmoid), TEST(test_subnormal), TEST(test_faults_are_seen),
  };
  return TEST_RUN(tests);
}
