/* The convolution in pieces: steps equal prefill, states in place, pools of states. */
#include <math.h>
#include <sys/mman.h>

#include "layer.h"
#include "test.h"

static const gdn2_exec two = {.threads = 2};
enum { D = 21, T = 23, N = 3, W = 4, GRID = D * (W - 1) };

/* A call with its state in one array, read and written. */
typedef struct pool {
  conv_case c;
  slab x, weight, bias, state, y;
  gdn2_conv_forward_args args;
} pool;

static pool pool_new(uint64_t seed, gdn2_dtype dtype, int64_t length, int64_t slots) {
  pool p = {.c = conv_new(seed, dtype, N, length, D, W, 1)};
  const tensor states = {"state", {slots, 1, D, W - 1}};
  rng r = {seed + 1};
  p.x = slab_new(conv_in_tensor(&p.c, C_X), dtype, NULL);
  p.weight = slab_new(conv_in_tensor(&p.c, C_WEIGHT), dtype, NULL);
  p.bias = slab_new(conv_in_tensor(&p.c, C_BIAS), dtype, NULL);
  p.state = slab_new(states, dtype, NULL);
  p.y = slab_new(conv_out_tensor(&p.c, C_Y), dtype, NULL);
  slab_put(&p.x, p.c.in[C_X]);
  slab_put(&p.weight, p.c.in[C_WEIGHT]);
  slab_put(&p.bias, p.c.in[C_BIAS]);
  slab_put(&p.state, layer_normal(&r, dtype, tensor_count(&states), 1));
  p.args = (gdn2_conv_forward_args){
      .struct_size = sizeof p.args,
      .problem = {.B = N, .T = length, .D = D, .W = W, .silu = 1, .x = slab_input(&p.x), .weight = slab_input(&p.weight)},
      .y = slab_output(&p.y),
      .state_final = slab_output(&p.state),
      .exec = two};
  p.args.problem.bias = slab_input(&p.bias);
  p.args.problem.state = slab_input(&p.state);
  return p;
}

static void run(const pool *p) {
  if (gdn2_conv_forward(&p->args) != GDN2_OK) fail_msg("%s", gdn2_last_error());
}

/* In calls of 1, 2, 3, 4, 13 tokens, the state in place: the bits of one call. */
static void test_steps(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 4, 13};
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    pool p = pool_new(10, (gdn2_dtype)type, T, N);
    memcpy(p.c.in[C_STATE], slab_get(&p.state), N * GRID * sizeof(double));
    const conv_result whole = conv_run_forward(&p.c, two);
    for (int64_t i = 0, t = 0; i < 5; t += lengths[i++]) {
      const void *mark = test_mark();
      const conv_case part = conv_tokens(&p.c, t, t + lengths[i]);
      slab x = slab_new(conv_in_tensor(&part, C_X), part.dtype[C_X], NULL);
      slab y = slab_new(conv_out_tensor(&part, C_Y), part.dtype[C_X], NULL);
      slab_put(&x, part.in[C_X]);
      p.args.problem.T = lengths[i];
      p.args.problem.x = slab_input(&x);
      p.args.y = slab_output(&y);
      run(&p);
      const double *got = slab_get(&y);
      for (int64_t n = 0; n < N; n++)
        for (int64_t e = 0; e < lengths[i] * D; e++)
          assert_true(got[n * lengths[i] * D + e] == whole.out[C_Y][(n * T + t) * D + e]);
      test_release_to(mark);
    }
    layer_expect_equal(conv_out_tensor(&p.c, C_LAST), slab_get(&p.state), whole.out[C_LAST]);
  }
}

/* In place over windows, with threads that could read a state after it was written. */
static void test_long_in_place(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 254, 255, 513, 900};
  for (int64_t threads = 1; threads <= 7; threads += 3) {
    conv_case c = conv_new(20, GDN2_F32, 1, 900, 600, W, 1);
    conv_cut(&c, cu, 4, 21);
    const conv_result apart = conv_run_forward(&c, two);
    slab x = slab_new(conv_in_tensor(&c, C_X), GDN2_F32, NULL), w = slab_new(conv_in_tensor(&c, C_WEIGHT), GDN2_F32, NULL);
    slab s = slab_new(conv_in_tensor(&c, C_STATE), GDN2_F32, NULL), y = slab_new(conv_out_tensor(&c, C_Y), GDN2_F32, NULL);
    slab b = slab_new(conv_in_tensor(&c, C_BIAS), GDN2_F32, NULL);
    slab_put(&x, c.in[C_X]), slab_put(&w, c.in[C_WEIGHT]), slab_put(&s, c.in[C_STATE]), slab_put(&b, c.in[C_BIAS]);
    gdn2_conv_forward_args args = {.struct_size = sizeof args, .y = slab_output(&y), .state_final = slab_output(&s)};
    args.exec.threads = (int)threads;
    args.problem = (gdn2_conv_problem){.B = 1, .T = 900, .D = 600, .W = W, .silu = 1, .x = slab_input(&x), .cu_seqlens = cu};
    args.problem.weight = slab_input(&w), args.problem.bias = slab_input(&b), args.problem.state = slab_input(&s);
    args.problem.cu_seqlens_type = GDN2_I64, args.problem.N = 4;
    if (gdn2_conv_forward(&args) != GDN2_OK) fail_msg("%s", gdn2_last_error());
    layer_expect_equal(conv_out_tensor(&c, C_Y), slab_get(&y), apart.out[C_Y]);
    layer_expect_equal(conv_out_tensor(&c, C_LAST), slab_get(&s), apart.out[C_LAST]);
  }
}

/* Sequences 0 and 2 in slots 4 and 1 of six, sequence 1 skipped: the bits of those states alone; every other slot is untouched.
 */
static void check_pool(gdn2_dtype dtype, gdn2_index type, bool fresh_first) {
  static const int64_t wide[] = {4, -1, 1};
  static const int32_t narrow[] = {4, -1, 1};
  static const unsigned char fresh[] = {7, 0, 0};
  pool p = pool_new(30, dtype, 5, 6);
  const double *before = slab_get(&p.state);
  for (int n = 0; n < N; n++) memcpy(p.c.in[C_STATE] + n * GRID, before + (n == 0 ? 4 : 1) * GRID, GRID * sizeof(double));
  for (int i = 0; fresh_first && i < GRID; i++) p.c.in[C_STATE][i] = 0;
  const conv_result want = conv_run_forward(&p.c, two);
  p.args.problem.slots = type == GDN2_I64 ? (const void *)wide : narrow;
  p.args.problem.slots_type = type;
  p.args.problem.slot_count = 6;
  p.args.problem.fresh = fresh_first ? fresh : NULL;
  run(&p);
  const double *y = slab_get(&p.y), *after = slab_get(&p.state);
  for (int64_t n = 0; n < N; n++)
    for (int64_t e = n * 5 * D; e < (n + 1) * 5 * D; e++)
      if (n == 1)
        assert_true(isnan(y[e]));
      else
        assert_true(y[e] == want.out[C_Y][e]);
  for (int64_t slot = 0; slot < 6; slot++)
    for (int64_t e = 0; e < GRID; e++) {
      const double *from = slot == 4 ? want.out[C_LAST] : slot == 1 ? want.out[C_LAST] + 2 * GRID : before + slot * GRID;
      assert_true(after[slot * GRID + e] == from[e]);
    }
}

static void test_pool(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F64; type++) {
    check_pool((gdn2_dtype)type, GDN2_I32, false);
    check_pool((gdn2_dtype)type, GDN2_I64, true);
  }
}

/* A slot full of NaN is zeros to a sequence that starts afresh, and NaN to one that does not. */
static void test_stale_slot(void **state) {
  (void)state;
  static const unsigned char fresh[] = {1, 1, 1};
  pool p = pool_new(40, GDN2_F32, 2, N);
  double nan[N * GRID];
  for (int i = 0; i < N * GRID; i++) nan[i] = NAN;
  slab_put(&p.state, nan);
  p.args.problem.fresh = fresh;
  run(&p);
  const double *y = slab_get(&p.y), *last = slab_get(&p.state);
  for (int i = 0; i < N * 2 * D; i++) assert_true(isfinite(y[i]));
  for (int i = 0; i < N * GRID; i++) assert_true(isfinite(last[i]));
  slab_put(&p.state, nan);
  p.args.problem.fresh = NULL;
  run(&p);
  y = slab_get(&p.y);
  for (int i = 0; i < N * 2 * D; i++) assert_true(isnan(y[i]));
}

/* A state of W inputs, given from its second on: the same bits, and the first of each channel is left alone. */
static void test_wide_state(void **state) {
  (void)state;
  pool p = pool_new(50, GDN2_F32, 6, N);
  const double *narrow = slab_get(&p.state);
  run(&p);
  const double *y = slab_get(&p.y), *last = slab_get(&p.state);
  const tensor states = {"state", {N, 1, D, W}};
  slab wide = slab_new(states, GDN2_F32, NULL);
  double start[N * D * W];
  for (int i = 0; i < N * D * W; i++) start[i] = i % W == 0 ? -77 : narrow[i / W * (W - 1) + i % W - 1];
  slab_put(&wide, start);
  p.args.problem.state = (gdn2_input){(float *)(void *)wide.first + 1, GDN2_F32, {D * W, D * W, W, 1}};
  p.args.state_final = (gdn2_output){(float *)(void *)wide.first + 1, GDN2_F32, {D * W, D * W, W, 1}};
  run(&p);
  layer_expect_equal(p.y.t, slab_get(&p.y), y);
  const double *end = slab_get(&wide);
  for (int i = 0; i < N * D * W; i++) assert_true(end[i] == (i % W == 0 ? -77 : last[i / W * (W - 1) + i % W - 1]));
}

/* Slots far apart: their places do not fit in 32 bits. */
static void test_far_slots(void **state) {
  (void)state;
  pool p = pool_new(60, GDN2_F32, 3, N);
  memcpy(p.c.in[C_STATE], slab_get(&p.state), N * GRID * sizeof(double));
  const conv_result want = conv_run_forward(&p.c, two);
  const int64_t apart = ((int64_t)1 << 31) + 64;
  const size_t bytes = (size_t)(apart * 2 + GRID) * sizeof(float);
  float *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (far == MAP_FAILED) skip();
  for (int64_t n = 0; n < N; n++)
    for (int64_t e = 0; e < GRID; e++) far[n * apart + e] = (float)p.c.in[C_STATE][n * GRID + e];
  p.args.problem.state = (gdn2_input){far, GDN2_F32, {apart, GRID, W - 1, 1}};
  p.args.state_final = (gdn2_output){far, GDN2_F32, {apart, GRID, W - 1, 1}};
  run(&p);
  layer_expect_equal(p.y.t, slab_get(&p.y), want.out[C_Y]);
  for (int64_t n = 0; n < N; n++)
    for (int64_t e = 0; e < GRID; e++) assert_true((double)far[n * apart + e] == want.out[C_LAST][n * GRID + e]);
  munmap(far, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_steps),      TEST(test_long_in_place), TEST(test_pool),
                                     TEST(test_stale_slot), TEST(test_wide_state),    TEST(test_far_slots)};
  return TEST_RUN(tests);
}
