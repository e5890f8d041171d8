/* The convolution's bits depend on a sequence's own numbers alone: not on threads, on its place in the batch, on later tokens or
 * on the memory that the call is given. */
#include "layer.h"
#include "test.h"

static const gdn2_exec one = {.threads = 1};

static void test_threads(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    const conv_case c = conv_new(10, (gdn2_dtype)type, 2, 270, 530, 4, 1);
    const conv_result want = conv_run(&c, one);
    const int threads[] = {2, 7};
    for (int n = 0; n < 2; n++) {
      const void *mark = test_mark();
      const conv_result got = conv_run(&c, (gdn2_exec){.threads = threads[n]});
      conv_expect_equal(&c, &got, &want);
      test_release_to(mark);
    }
  }
}

/* A row of a batch alone, and the same rows as sequences: also the sums for the weights. */
static void test_batch(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 270, 540, 810};
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    const conv_case c = conv_new(20, (gdn2_dtype)type, 3, 270, 19, 4, 1);
    const conv_result rows = conv_run(&c, (gdn2_exec){.threads = 3});
    for (int64_t n = 0; n < 3; n++) {
      const conv_case part = conv_sequence(&c, n);
      const conv_result alone = conv_run(&part, one);
      layer_expect_equal(conv_out_tensor(&part, C_Y), rows.out[C_Y] + n * 270 * 19, alone.out[C_Y]);
      layer_expect_equal(conv_out_tensor(&part, C_DX), rows.out[C_DX] + n * 270 * 19, alone.out[C_DX]);
      layer_expect_equal(conv_out_tensor(&part, C_DSTATE), rows.out[C_DSTATE] + n * 19 * 3, alone.out[C_DSTATE]);
    }
    conv_case packed = c;
    packed.B = 1, packed.T = 810, packed.cu = cu, packed.cu_type = GDN2_I64;
    const conv_result got = conv_run(&packed, (gdn2_exec){.threads = 2});
    conv_expect_equal(&packed, &got, &rows);
  }
}

/* Tokens behind a place change no output before it, and with a loss of the prefix alone no gradient. */
static void test_later_tokens(void **state) {
  (void)state;
  for (int64_t P = 1; P < 22; P += 4) {
    const void *mark = test_mark();
    conv_case c = conv_new(30, GDN2_F32, 1, 22, 37, 4, 1);
    c.in[C_DLAST] = NULL;
    for (int64_t i = P * 37; i < 22 * 37; i++) c.in[C_DY][i] = 0;
    const conv_result before = conv_run(&c, one);
    for (int64_t i = P * 37; i < 22 * 37; i++) c.in[C_X][i] = 5 - c.in[C_X][i];
    const conv_result after = conv_run(&c, one);
    for (int64_t i = 0; i < P * 37; i++)
      assert_true(before.out[C_Y][i] == after.out[C_Y][i] && before.out[C_DX][i] == after.out[C_DX][i]);
    for (int64_t i = P * 37; i < 22 * 37; i++) assert_true(after.out[C_DX][i] == 0);
    assert_true(before.out[C_Y][P * 37] != after.out[C_Y][P * 37]);
    test_release_to(mark);
  }
}

/* A channel among others has the bits it has alone: the order of its sums does not depend on its place in a vector. */
static void test_channels(void **state) {
  (void)state;
  const conv_case wide = conv_new(40, GDN2_F32, 1, 9, 259, 3, 1);
  const conv_result want = conv_run_forward(&wide, one);
  for (int64_t d = 0; d < 259; d += 37) {
    conv_case c = conv_new(41, GDN2_F32, 1, 9, 1, 3, 1);
    for (int64_t t = 0; t < 9; t++) c.in[C_X][t] = wide.in[C_X][t * 259 + d];
    memcpy(c.in[C_WEIGHT], wide.in[C_WEIGHT] + 3 * d, 3 * sizeof(double));
    memcpy(c.in[C_STATE], wide.in[C_STATE] + 2 * d, 2 * sizeof(double));
    c.in[C_BIAS][0] = wide.in[C_BIAS][d];
    const conv_result got = conv_run_forward(&c, one);
    for (int64_t t = 0; t < 9; t++) assert_true(got.out[C_Y][t] == want.out[C_Y][t * 259 + d]);
  }
}

/* The library's own memory gives the bits of the caller's. */
static void test_workspace_of_its_own(void **state) {
  (void)state;
  const conv_case c = conv_new(50, GDN2_F32, 1, 300, 20, 4, 1);
  const conv_result want = conv_run(&c, one);
  slab in[C_INPUTS], dweight = slab_new(conv_out_tensor(&c, C_DWEIGHT), GDN2_F32, NULL);
  for (int i = 0; i < C_INPUTS; i++) {
    in[i] = slab_new(conv_in_tensor(&c, i), GDN2_F32, NULL);
    slab_put(&in[i], c.in[i]);
  }
  gdn2_conv_backward_args args = {.struct_size = sizeof args, .dy = slab_input(&in[C_DY]), .dweight = slab_output(&dweight)};
  args.problem = (gdn2_conv_problem){.B = 1, .T = 300, .D = 20, .W = 4, .silu = 1, .x = slab_input(&in[C_X])};
  args.problem.weight = slab_input(&in[C_WEIGHT]);
  args.problem.bias = slab_input(&in[C_BIAS]);
  args.problem.state = slab_input(&in[C_STATE]);
  args.dstate_final = slab_input(&in[C_DLAST]);
  assert_int_equal(gdn2_conv_backward(&args), GDN2_OK);
  layer_expect_equal(dweight.t, slab_get(&dweight), want.out[C_DWEIGHT]);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_threads), TEST(test_batch), TEST(test_later_tokens), TEST(test_channels),
                                     TEST(test_workspace_of_its_own)};
  return TEST_RUN(tests);
}
