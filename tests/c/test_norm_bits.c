/* The norm's bits do not depend on threads, on the rows around a row, or on how rows are arranged; and outputs in place of
 * inputs. */
#include "layer.h"
#include "test.h"

static const gdn2_exec one = {.threads = 1};

static void test_threads(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    const norm_case c = norm_new(10, (gdn2_dtype)type, 3, 180, 2, 65);
    const norm_result want = norm_run(&c, one);
    const int threads[] = {2, 7};
    for (int n = 0; n < 2; n++) {
      const void *mark = test_mark();
      const norm_result got = norm_run(&c, (gdn2_exec){.threads = threads[n]});
      norm_expect_equal(&c, &got, &want);
      test_release_to(mark);
    }
  }
}

/* The same rows as another batch, as more heads, as one head: also the sum for the weight. */
static void test_arrangements(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{1, 6, 84}, {84, 6, 1}, {1, 504, 1}, {2, 3, 84}};
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    norm_case c = norm_new(20, (gdn2_dtype)type, 12, 7, 6, 70);
    const norm_result want = norm_run(&c, one);
    for (int n = 0; n < 4; n++) {
      c.B = shapes[n][0], c.T = shapes[n][1], c.H = shapes[n][2];
      const norm_result got = norm_run(&c, (gdn2_exec){.threads = 3});
      norm_expect_equal(&c, &got, &want);
    }
  }
}

static void test_row_alone(void **state) {
  (void)state;
  const norm_case c = norm_new(30, GDN2_BF16, 2, 9, 3, 131);
  const norm_result all = norm_run(&c, (gdn2_exec){.threads = 2});
  for (int64_t row = 0; row < 54; row += 5) {
    norm_case single = norm_new(31, GDN2_BF16, 1, 1, 1, 131);
    const int inputs[] = {N_X, N_Z, N_DY}, outputs[] = {N_Y, N_DX, N_DZ};
    for (int i = 0; i < 3; i++) memcpy(single.in[inputs[i]], c.in[inputs[i]] + row * 131, 131 * sizeof(double));
    memcpy(single.in[N_WEIGHT], c.in[N_WEIGHT], 131 * sizeof(double));
    const norm_result got = norm_run(&single, one);
    for (int i = 0; i < 3; i++)
      layer_expect_equal(norm_out_tensor(&single, outputs[i]), got.out[outputs[i]], all.out[outputs[i]] + row * 131);
  }
}

/* y over x, y over z; dx over dy and dz over z in one call. */
static void test_in_place(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    const norm_case c = norm_new(40, (gdn2_dtype)type, 2, 5, 3, 77);
    const norm_result want = norm_run(&c, one);
    slab in[N_INPUTS];
    for (int over = N_X; over <= N_Z; over++) {
      for (int i = 0; i < N_INPUTS; i++) in[i] = slab_new(norm_in_tensor(&c, i), c.dtype[i], NULL), slab_put(&in[i], c.in[i]);
      gdn2_norm_forward_args args = {.struct_size = sizeof args, .y = slab_output(&in[over])};
      args.problem = (gdn2_norm_problem){.B = 2, .T = 5, .H = 3, .D = 77, .eps = c.eps, .x = slab_input(&in[N_X])};
      args.problem.z = slab_input(&in[N_Z]), args.problem.weight = slab_input(&in[N_WEIGHT]);
      assert_int_equal(gdn2_norm_forward(&args), GDN2_OK);
      layer_expect_equal(norm_out_tensor(&c, N_Y), slab_get(&in[over]), want.out[N_Y]);
    }
    for (int i = 0; i < N_INPUTS; i++) in[i] = slab_new(norm_in_tensor(&c, i), c.dtype[i], NULL), slab_put(&in[i], c.in[i]);
    gdn2_norm_backward_args args = {.struct_size = sizeof args, .dy = slab_input(&in[N_DY]), .dx = slab_output(&in[N_DY])};
    args.dz = slab_output(&in[N_Z]);
    args.problem = (gdn2_norm_problem){.B = 2, .T = 5, .H = 3, .D = 77, .eps = c.eps, .x = slab_input(&in[N_X])};
    args.problem.z = slab_input(&in[N_Z]), args.problem.weight = slab_input(&in[N_WEIGHT]);
    assert_int_equal(gdn2_norm_backward(&args), GDN2_OK);
    layer_expect_equal(norm_out_tensor(&c, N_DX), slab_get(&in[N_DY]), want.out[N_DX]);
    layer_expect_equal(norm_out_tensor(&c, N_DZ), slab_get(&in[N_Z]), want.out[N_DZ]);
  }
}

/* A broadcast row: stride 0 of an input. */
static void test_broadcast(void **state) {
  (void)state;
  const norm_case c = norm_new(50, GDN2_F32, 2, 5, 3, 21);
  slab x = slab_new((tensor){"x", {1, 1, 1, 21}}, GDN2_F32, NULL), y = slab_new(norm_out_tensor(&c, N_Y), GDN2_F32, NULL);
  slab_put(&x, c.in[N_X]);
  gdn2_norm_forward_args args = {.struct_size = sizeof args, .y = slab_output(&y)};
  args.problem = (gdn2_norm_problem){.B = 2, .T = 5, .H = 3, .D = 21, .x = {x.first, GDN2_F32, {0, 0, 0, 1}}};
  assert_int_equal(gdn2_norm_forward(&args), GDN2_OK);
  const double *got = slab_get(&y);
  for (int i = 21; i < 30 * 21; i++) assert_true(got[i] == got[i - 21]);
  assert_true(got[3] != 0 && got[3] * c.in[N_X][3] > 0);
}

static void test_nothing(void **state) {
  (void)state;
  const int64_t shapes[][3] = {{0, 3, 2}, {2, 0, 2}, {2, 3, 0}};
  for (int n = 0; n < 3; n++) {
    const norm_case c = norm_new(60, GDN2_F32, shapes[n][0], shapes[n][1], shapes[n][2], 9);
    const norm_result got = norm_run(&c, one);
    for (int m = 0; m < 9; m++) assert_true(got.out[N_DWEIGHT][m] == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_threads),  TEST(test_arrangements), TEST(test_row_alone),
                                     TEST(test_in_place), TEST(test_broadcast),    TEST(test_nothing)};
  return TEST_RUN(tests);
}
