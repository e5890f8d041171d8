/* Where states may lie: any strides, from one layout and type to another, nothing beside them touched. */
#include <math.h>
#include <sys/mman.h>

#include "step.h"
#include "test.h"

static const width_layout packed_end = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_END};
static const width_layout packed_start = {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START};
static const width_layout gaps = {{0, 1, 2, 3}, {0, 1, 2, 3}, {5, 3, 2, 0}, {1, 1, 1, 1}, TEST_AT_END};
static const width_layout backwards = {{0, 1, 2, 3}, {0, 1, 3, 2}, {2, 1, 0, 3}, {-1, -1, 1, -1}, TEST_AT_START};
static const width_layout *const layouts[] = {&packed_end, &packed_start, &gaps, &backwards, &step_spread};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* In place, in every layout: the numbers of the contiguous one within rounding, and its bits where sums run the same way. */
static void test_in_place(void **state) {
  (void)state;
  for (int n = 0; n < LAYOUTS; n++)
    for (int held = GDN2_F32; held <= GDN2_F16; held++)
      for (int64_t T = 1; T <= 3; T += 2) {
        width_case c = width_new(900 + (uint64_t)n, 3, T, 2, 4, 19, 37);
        width_set_dtype(&c, W_H0, (gdn2_dtype)held);
        const width_truth want = width_oracle(&c);
        const step_how how = {.dtype = (gdn2_dtype)held, .layout = layouts[n]}, usual = {.dtype = (gdn2_dtype)held};
        const width_result got = step_run(&c, GDN2_F32, &how), contiguous = step_run(&c, GDN2_F32, &usual);
        step_expect_right(&c, &got, &want, (gdn2_dtype)held, 1e-6);
        if (layouts[n] == &gaps) width_expect_equal(&c, &got, &contiguous);
      }
}

/* From every layout and type to every other; what is only read is locked. */
static void test_elsewhere(void **state) {
  (void)state;
  for (int n = 0; n < LAYOUTS * LAYOUTS; n++)
    for (int pair = 0; pair < 9; pair++) {
      const void *mark = test_mark();
      const gdn2_dtype from = (gdn2_dtype)(pair / 3), to = (gdn2_dtype)(pair % 3);
      width_case c = width_new(910 + (uint64_t)n, 2, 1 + pair % 2, 1, 2, 9, 21);
      width_set_dtype(&c, W_H0, from);
      const width_truth want = width_oracle(&c);
      const step_how how = {.dtype = from, .to_dtype = to, .layout = layouts[n / LAYOUTS], .to = layouts[n % LAYOUTS]};
      const width_result got = step_run(&c, GDN2_F32, &how);
      step_expect_right(&c, &got, &want, to, 1e-6);
      test_release_to(mark);
    }
}

/* A state that is stored rounded is the float32 state rounded once, also after many tokens. */
static void test_rounded_once(void **state) {
  (void)state;
  for (int to = GDN2_BF16; to <= GDN2_F16; to++)
    for (int64_t T = 1; T <= 9; T += 4) {
      const width_case c = width_new(920, 2, T, 2, 2, 33, 40);
      const step_how single = {.to = &packed_end}, half = {.to = &packed_end, .to_dtype = (gdn2_dtype)to};
      const width_result want = step_run(&c, GDN2_F32, &single), got = step_run(&c, GDN2_F32, &half);
      const tensor h = width_h_tensor(&c), o = width_o_tensor(&c);
      expect_same_bits(&o, got.o, want.o);
      for (size_t i = 0; i < tensor_count(&h); i++)
        assert_true((double)got.h_final[i] == width_round((gdn2_dtype)to, (double)want.h_final[i]));
    }
}

/* Only o, only the state, nothing at all. */
static void test_absent_outputs(void **state) {
  (void)state;
  const width_case c = width_new(930, 2, 2, 2, 4, 12, 20);
  const step_how how = {.to = &packed_end};
  const width_result want = step_run(&c, GDN2_F32, &how);
  for (int absent = 1; absent < 4; absent++) {
    step_call call = step_call_new(&c, GDN2_F32, &how);
    if (absent & 1) call.args.o.data = NULL;
    if (absent & 2) call.args.to.data = NULL;
    assert_int_equal(gdn2_step(&call.args), GDN2_OK);
    const tensor o = width_o_tensor(&c), h = width_h_tensor(&c);
    float *got_o = test_floats(tensor_count(&o)), *got_h = test_floats(tensor_count(&h));
    width_buffer_load(&call.inputs.o, got_o, NULL);
    width_buffer_load(&call.to, got_h, NULL);
    if (absent & 1) width_buffer_expect_untouched(&call.inputs.o);
    if (absent & 2) width_buffer_expect_untouched(&call.to);
    if (!(absent & 1)) expect_same_bits(&o, got_o, want.o);
    if (!(absent & 2)) expect_same_bits(&h, got_h, want.h_final);
  }
}

/* No token: states are copied, or stay. No row: nothing happens. */
static void test_nothing_to_do(void **state) {
  (void)state;
  for (int n = 0; n < LAYOUTS; n++) {
    const width_case c = width_new(940, 3, 0, 2, 4, 12, 20);
    const step_how copy = {.layout = layouts[n], .to = layouts[(n + 1) % LAYOUTS]}, stay = {.layout = layouts[n]};
    const width_result a = step_run(&c, GDN2_F32, &copy), b = step_run(&c, GDN2_F32, &stay);
    for (size_t i = 0; i < width_count(&c, W_H0); i++)
      assert_true((double)a.h_final[i] == c.in[W_H0][i] && (double)b.h_final[i] == c.in[W_H0][i]);
  }
  gdn2_step_args none = {.struct_size = sizeof none, .problem = {.B = 0, .T = 1, .H = 2, .K = 4, .V = 4}};
  assert_int_equal(gdn2_step(&none), GDN2_OK);
}

/* States so far apart that offsets pass 2^31 elements, in memory that is only promised. */
static void test_far_apart(void **state) {
  (void)state;
  const int64_t far = ((int64_t)1 << 31) + 64;
  const size_t bytes = (size_t)(far * 4 + 4096) * 4;
  float *pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pool == MAP_FAILED) skip();
  const width_case c = width_new(950, 2, 1, 2, 2, 8, 16);
  const step_how how = {.layout = NULL};
  step_call call = step_call_new(&c, GDN2_F32, &how);
  const width_result want = step_call_run(&c, &call, &how);
  for (int axis = 0; axis < 2; axis++) {
    const int64_t stride[4] = {axis ? 1024 : 2 * far, axis ? far : 1024, 16, 1};
    memcpy(call.args.from.stride, stride, sizeof stride);
    memcpy(call.args.to.stride, stride, sizeof stride);
    call.args.from.data = call.args.to.data = pool;
    for (int64_t n = 0; n < 4; n++)
      for (int64_t i = 0; i < 128; i++) pool[n / 2 * stride[0] + n % 2 * stride[1] + i] = (float)c.in[W_H0][n * 128 + i];
    assert_int_equal(gdn2_step(&call.args), GDN2_OK);
    for (int64_t n = 0; n < 4; n++)
      assert_memory_equal(pool + n / 2 * stride[0] + n % 2 * stride[1], want.h_final + n * 128, 128 * sizeof(float));
  }
  munmap(pool, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_in_place),       TEST(test_elsewhere),     TEST(test_rounded_once),
      TEST(test_absent_outputs), TEST(test_nothing_to_do), TEST(test_far_apart),
  };
  return TEST_RUN(tests);
}
