/* Values and gradients of the convolution against the loop: every width, option, element type and layout. */
#include <float.h>

#include "layer.h"
#include "test.h"

static const gdn2_exec two = {.threads = 2};

static void check(const conv_case *c) {
  const conv_result want = conv_loop(c, CONV_RIGHT), got = conv_run(c, two);
  conv_expect_right(c, &got, &want);
}

/* Sizes around the vectors (4, 8, 16), the panel (512 channels), the block (4 tokens) and the window (256 tokens). */
static const int64_t sizes[][3] = {{2, 37, 5},  {3, 5, 16},   {1, 8, 17},    {2, 4, 31},  {1, 11, 33}, {1, 9, 511},
                                   {2, 6, 512}, {1, 7, 513},  {1, 13, 1030}, {1, 255, 3}, {2, 256, 4}, {3, 257, 7},
                                   {1, 261, 9}, {1, 700, 20}, {70, 4, 3},    {1, 1, 1},   {300, 1, 2}};

static void run_sizes(gdn2_dtype dtype) {
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const void *mark = test_mark();
    const int64_t W = 2 + ((int64_t)i + dtype) % 3;
    const conv_case c = conv_new(100 + i, dtype, sizes[i][0], sizes[i][1], sizes[i][2], W, (int)(i % 2));
    check(&c);
    test_release_to(mark);
  }
}
static void test_float32(void **state) { (void)state, run_sizes(GDN2_F32); }
static void test_bfloat16(void **state) { (void)state, run_sizes(GDN2_BF16); }
static void test_float16(void **state) { (void)state, run_sizes(GDN2_F16); }
static void test_float64(void **state) { (void)state, run_sizes(GDN2_F64); }

/* Every option alone and with the others. */
static void test_options(void **state) {
  (void)state;
  for (int bits = 0; bits < 32; bits++) {
    const void *mark = test_mark();
    conv_case c = conv_new(200 + (uint64_t)bits, bits & 16 ? GDN2_F64 : GDN2_F32, 2, 23, 21, 2 + bits % 3, bits & 1);
    if (bits & 2) c.in[C_BIAS] = NULL;
    if (bits & 4) c.in[C_STATE] = NULL;
    if (bits & 8) c.in[C_DLAST] = NULL;
    check(&c);
    test_release_to(mark);
  }
}

/* Each tensor of another type than its neighbours. */
static void test_mixed_types(void **state) {
  (void)state;
  for (int turn = 0; turn < 6; turn++) {
    const void *mark = test_mark();
    conv_case c = conv_new(300, GDN2_BF16, 2, 21, 37, 4, 1);
    for (int i = 0; i < C_INPUTS; i++)
      c.dtype[i] = (gdn2_dtype)((i + turn) % 3), c.out_dtype[i] = (gdn2_dtype)((i * 2 + turn / 2) % 3);
    for (int i = 0; i < C_INPUTS; i++) {
      const tensor t = conv_in_tensor(&c, i);
      for (size_t e = 0; e < tensor_count(&t); e++) c.in[i][e] = layer_round(c.dtype[i], c.in[i][e]);
    }
    check(&c);
    test_release_to(mark);
  }
}

/* Token tensors inside a wider row, time first, backwards; weights and states with the channels innermost, or padded. */
static void test_layouts(void **state) {
  (void)state;
  static const slab_layout tokens[] = {{{0, 1, 2, 3}, {3, 5, 9, 0}, {1, 1, 1, 1}},
                                       {{1, 0, 2, 3}, {0, 7, 2, 0}, {1, 1, 1, 1}},
                                       {{0, 1, 2, 3}, {0, 0, 11, 0}, {-1, -1, 1, 1}}};
  static const slab_layout grids[] = {{{0, 1, 3, 2}, {2, 1, 3, 0}, {1, 1, 1, 1}},
                                      {{0, 1, 2, 3}, {1, 0, 2, 0}, {1, 1, 1, -1}},
                                      {{2, 3, 0, 1}, {5, 4, 1, 0}, {1, 1, -1, 1}}};
  for (int type = GDN2_F32; type <= GDN2_F64; type++)
    for (int i = 0; i < 9; i++) {
      const void *mark = test_mark();
      conv_case c = conv_new(400, (gdn2_dtype)type, 3, 14, 35, 2 + i % 3, i % 2);
      c.tokens = &tokens[i / 3];
      c.grids = &grids[i % 3];
      check(&c);
      test_release_to(mark);
    }
}

/* Large and small arguments of the sigmoid: slopes keep their digits, nothing overflows. */
static void test_far_out(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64) {
    conv_case c = conv_new(500, (gdn2_dtype)type, 1, 64, 12, 2, 1);
    for (int64_t t = 0; t < 64; t++)
      for (int64_t d = 0; d < 12; d++) c.in[C_X][t * 12 + d] = (double)((t - 32) * (d + 1)) / 4;
    for (int64_t d = 0; d < 12; d++) c.in[C_WEIGHT][2 * d] = 0.25, c.in[C_WEIGHT][2 * d + 1] = 1, c.in[C_BIAS][d] = 0;
    const conv_result want = conv_loop(&c, CONV_RIGHT);
    const conv_result got = conv_run_some(&c, ((1u << C_OUTPUTS) - 1) & ~(1u << C_DSTATE), two);
    conv_expect_right(&c, &got, &want);
  }
}

/* Subnormal float32 numbers are zeros to the library, where the machine can, and stay numbers to the caller; in float64 they are
 * numbers like others. */
static void test_subnormal(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type += GDN2_F64) {
    conv_case c = conv_new(550, (gdn2_dtype)type, 1, 11, 19, 4, 0);
    for (int64_t i = 0; i < 11 * 19; i++) c.in[C_X][i] = c.in[C_DY][i] = i % 2 ? 0x1p-128 : -0x1p-128;
    c.in[C_BIAS] = c.in[C_STATE] = c.in[C_DLAST] = NULL;
    for (int64_t i = 0; i < 19 * 4; i++) c.in[C_WEIGHT][i] = 1024; /* the products of numbers are normal */
    const conv_result got = conv_run_some(&c, 1u << C_Y | 1u << C_DX, two);
    const float half = test_halved(FLT_MIN);
    assert_true(half > 0 && test_halved(half) > 0);
    for (int64_t i = 0; i < 11 * 19; i++) {
      const bool zeros = type == GDN2_F32 && TEST_FLUSHES;
      if (i < 19) assert_true(zeros ? got.out[C_Y][i] == 0 : fabs(got.out[C_Y][i]) == 0x1p-118);
      if (i >= 10 * 19) assert_true(zeros ? got.out[C_DX][i] == 0 : fabs(got.out[C_DX][i]) == 0x1p-118);
      assert_true(!zeros || (got.out[C_Y][i] == 0 && got.out[C_DX][i] == 0));
    }
  }
}

/* The comparison can fail: each fault is far outside what is allowed. */
static void test_faults_are_seen(void **state) {
  (void)state;
  const conv_case c = conv_new(600, GDN2_F32, 2, 9, 13, 4, 1);
  const conv_result got = conv_run(&c, two);
  for (int fault = CONV_RIGHT + 1; fault < CONV_FAULTS; fault++) {
    const conv_result wrong = conv_loop(&c, (conv_fault)fault);
    double largest = 0;
    for (int i = 0; i < C_OUTPUTS; i++) {
      const tensor t = conv_out_tensor(&c, i);
      const double error = layer_error(got.out[i], wrong.out[i], tensor_count(&t));
      if (error > largest) largest = error;
    }
    if (!(largest > 1e-2)) fail_msg("fault %d is not seen: %.3e", fault, largest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_float32), TEST(test_bfloat16),    TEST(test_float16), TEST(test_float64),   TEST(test_options),
      TEST(test_layouts), TEST(test_mixed_types), TEST(test_far_out), TEST(test_subnormal), TEST(test_faults_are_seen),
  };
  return TEST_RUN(tests);
}
