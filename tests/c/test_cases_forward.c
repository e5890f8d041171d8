/* Ways in which forward kernels of this family have failed elsewhere, as public reports describe them, where no other test of
 * this folder has the case: what later tokens may change, decoding after any length, far and interleaved tensors, which steps
 * round. */
#include <math.h>
#include <sys/mman.h>

#include "test.h"
#include "width.h"

#define BOUND 1e-6

/* Everything at once: grouped heads, raw gates, norms, gates of key heads, 16-bit tensors. */
static width_case with_options(uint64_t seed, int64_t B, int64_t T, int64_t K, int64_t V, gdn2_dtype type) {
  width_case c = width_new(seed, B, T, 2, 4, K, V);
  c.map = GDN2_HEADS_TILED;
  width_make_key_gate(&c, W_G);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, seed);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, seed);
  c.l2norm = true;
  width_set_dtypes(&c, type);
  return c;
}

/* The tokens [0, T) of every batch row. */
static width_case first_tokens(const width_case *c, int64_t T) {
  width_case part = *c;
  part.T = T;
  for (int i = W_Q; i <= W_W; i++) {
    const size_t row = width_count(c, i) / (size_t)(c->B * c->T);
    part.in[i] = test_doubles(width_count(&part, i));
    for (int64_t b = 0; b < c->B; b++)
      memcpy(part.in[i] + (size_t)(b * T) * row, c->in[i] + (size_t)(b * c->T) * row, (size_t)T * row * sizeof(double));
  }
  return part;
}

/* Tokens [from, T), starting from the state h of the tokens before. */
static width_case last_tokens(const width_case *c, int64_t from, const float *h) {
  width_case part = *c;
  assert_int_equal(c->B, 1);
  part.T = c->T - from;
  for (int i = W_Q; i <= W_W; i++) part.in[i] = width_row(c, i, 0, from, 0);
  part.in[W_H0] = test_doubles(width_count(c, W_H0));
  for (size_t i = 0; i < width_count(c, W_H0); i++) part.in[W_H0][i] = (double)h[i];
  return part;
}

static void expect_same_tokens(const width_case *c, const width_result *got, const width_result *want, int64_t tokens) {
  const size_t count = (size_t)(tokens * c->HV * c->V);
  if (got->bits)
    assert_memory_equal(got->bits, want->bits, count * sizeof *got->bits);
  else
    assert_memory_equal(got->o, want->o, count * sizeof *got->o);
}

/* ---- The future ---- */

/* Changing any input from token P on changes no bit of an output before P; and leaving those tokens out does not either. */
static void test_later_tokens_with_all_options(void **state) {
  (void)state;
  for (int64_t P = 1; P < 22; P++) {
    const void *mark = test_mark();
    width_case c = with_options(1, 1, 22, 128, 24, P % 2 ? GDN2_BF16 : GDN2_F16);
    const width_result want = width_run(&c, c.dtype[W_Q]);
    width_case other = c;
    for (int i = W_Q; i <= W_W; i++) {
      width_own(&other, i);
      const size_t row = width_count(&c, i) / 22;
      for (size_t x = (size_t)P * row; x < 22 * row; x++)
        other.in[i][x] = width_round(c.dtype[i], i == W_G ? 60 : -3 * c.in[i][x]);
    }
    const width_result got = width_run(&other, c.dtype[W_Q]);
    expect_same_tokens(&c, &got, &want, P);
    assert_true(memcmp(got.bits + P * c.HV * c.V, want.bits + P * c.HV * c.V, (size_t)(c.HV * c.V) * sizeof *got.bits) != 0);
    const width_case prefix = first_tokens(&c, P);
    const width_result alone = width_run(&prefix, c.dtype[W_Q]);
    expect_same_tokens(&c, &alone, &want, P);
    test_release_to(mark);
  }
}

/* A draft of 16 tokens verified in one call: each position has the bits of a call that ends there, from a state that counts. */
static void test_verification_equals_decoding(void **state) {
  (void)state;
  const width_case c = width_new(2, 1, 16, 2, 2, 33, 18);
  const width_result all = width_run(&c, GDN2_F32);
  for (int64_t T = 1; T < 16; T++) {
    const width_case prefix = first_tokens(&c, T);
    const width_result want = width_run(&prefix, GDN2_F32);
    expect_same_tokens(&c, &all, &want, T);
  }
  width_case fresh = c;
  fresh.in[W_H0] = NULL;
  const width_result without = width_run(&fresh, GDN2_F32);
  assert_true(memcmp(without.o, all.o, (size_t)(c.HV * c.V) * sizeof(float)) != 0);
}

/* ---- The end of a chunk ---- */

/* The state after every length up to two chunks and one, and three tokens decoded from it. */
static void test_decoding_after_every_length(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 33; T++) {
    const void *mark = test_mark();
    width_case whole = width_new(10, 1, T + 3, 1, 2, 19, 14);
    width_fill(&whole, W_G, -0.05); /* mild: a state that lost something would show it */
    const width_truth truth = width_oracle(&whole);
    width_case now = first_tokens(&whole, T);
    width_result r = width_run(&now, GDN2_F32);
    const width_truth prefix = width_oracle(&now);
    width_expect_right(&now, &r, &prefix, BOUND);
    for (int64_t t = T; t < T + 3; t++) {
      const width_case upto = first_tokens(&whole, t + 1);
      now = last_tokens(&upto, t, r.h_final);
      r = width_run(&now, GDN2_F32);
      const tensor o = width_o_tensor(&now);
      expect_close(&o, r.o, truth.o + t * whole.HV * whole.V, BOUND);
    }
    const tensor h = width_h_tensor(&whole);
    expect_close(&h, r.h_final, truth.h_final, BOUND);
    test_release_to(mark);
  }
}

/* Distance in units of the last place of a 16-bit type: its numbers in order are its bits in order. */
static int64_t steps_between(uint16_t a, uint16_t b) {
  const int64_t x = a & 0x8000u ? -(int64_t)(a & 0x7fffu) : a, y = b & 0x8000u ? -(int64_t)(b & 0x7fffu) : b;
  return x < y ? y - x : x - y;
}

/* Five tokens at once, and four and then one: the float32 state does not see that the tensors have 16 bits, and the output is off
 * by two of its units at most. */
static void test_prefill_and_decode_in_16_bits(void **state) {
  (void)state;
  for (int type = GDN2_BF16; type <= GDN2_F16; type++)
    for (uint64_t seed = 20; seed < 30; seed++) {
      const void *mark = test_mark();
      const width_case c = with_options(seed, 1, 5, 64, 32, (gdn2_dtype)type), four = first_tokens(&c, 4);
      const width_result whole = width_run(&c, (gdn2_dtype)type), head = width_run(&four, (gdn2_dtype)type);
      const width_case one = last_tokens(&c, 4, head.h_final);
      const width_result tail = width_run(&one, (gdn2_dtype)type);
      expect_same_tokens(&c, &head, &whole, 4);
      const tensor h = width_h_tensor(&c);
      double *want = test_doubles(tensor_count(&h));
      for (size_t i = 0; i < tensor_count(&h); i++) want[i] = (double)whole.h_final[i];
      expect_close(&h, tail.h_final, want, BOUND);
      for (int64_t i = 0; i < c.HV * c.V; i++) {
        const uint16_t got = tail.bits[i], must = whole.bits[4 * c.HV * c.V + i];
        const double error = fabs((double)tail.o[i] - (double)whole.o[4 * c.HV * c.V + i]);
        if (steps_between(got, must) > 2 && error > 1e-6) fail_msg("o[%ld] is %#06x, must be near %#06x", (long)i, got, must);
      }
      test_release_to(mark);
    }
}

/* ---- Rows of the batch, widths ---- */

static void test_batch_rows_with_all_options(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    const width_case c = with_options(30, 3, 37, 20, 11, (gdn2_dtype)type);
    const width_result all = width_run(&c, (gdn2_dtype)type);
    for (int64_t b = 0; b < 3; b++) {
      const width_case row = width_sequence(&c, b);
      const width_result alone = width_run(&row, (gdn2_dtype)type);
      width_expect_equal_part(&c, &all, &row, &alone, b);
    }
  }
}

/* Each width as K and as V, buffers ending at a page that may not be touched, everything inside the library. */
static void test_widths_with_all_options(void **state) {
  (void)state;
  const int64_t widths[] = {1, 3, 7, 8, 15, 16, 17, 31, 32, 64, 80, 96, 100, 128, 192, 256};
  for (int n = 0; n < 16; n++) {
    const void *mark = test_mark();
    const width_case c = with_options(40 + (uint64_t)n, 1, 18, widths[n], widths[(n * 5 + 3) % 16], n % 2 ? GDN2_BF16 : GDN2_F16);
    const width_truth want = width_oracle(&c);
    const width_result got = width_run(&c, c.dtype[W_Q]);
    width_expect_right(&c, &got, &want, BOUND);
    test_release_to(mark);
  }
}

/* ---- Far and interleaved tensors ---- */

static const int64_t far = ((int64_t)1 << 31) + 64;

/* Axis `axis`, of two elements, has the stride `far`; the pages between are never touched. */
static width_buffer far_buffer(tensor t, gdn2_dtype dtype, int axis) {
  const size_t size = dtype == GDN2_F32 ? 4 : 2;
  width_buffer x = {.t = t, .dtype = dtype, .span = (size_t)far + tensor_count(&t)};
  int64_t step = 1;
  for (int a = 3; a >= 0; a--) {
    x.stride[a] = a == axis ? far : step;
    step *= a == axis ? 1 : t.shape[a];
  }
  x.base = mmap(NULL, x.span * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (x.base == MAP_FAILED) skip();
  x.low = x.first = x.base;
  return x;
}

static void far_free(const width_buffer *x) { munmap(x->base, x->span * (x->dtype == GDN2_F32 ? 4 : 2)); }

/* Two sequences of one token each, which lie more than 2^31 elements apart, as do their states; or two value heads; 16-bit. */
static void test_far_sequences_and_heads(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 1, 2};
  for (int axis = 1; axis <= 2; axis++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      width_case c = width_new(60, 1, 2, 2, 2, 9, 7);
      width_cut(&c, cu, 2, 61);
      width_set_dtypes(&c, (gdn2_dtype)type);
      const width_result want = width_run(&c, (gdn2_dtype)type);
      width_call call = width_call_new(&c, (gdn2_dtype)type, &width_contiguous);
      gdn2_problem *p = &call.args.problem;
      gdn2_input *const inputs[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w, &p->h0};
      width_buffer in[W_H0 + 1];
      for (int i = W_Q; i <= W_H0; i++) {
        in[i] = far_buffer(width_tensor(&c, i), c.dtype[i], i == W_H0 ? axis - 1 : axis);
        width_buffer_store(&in[i], c.in[i]);
        *inputs[i] = width_input(&in[i]);
      }
      const width_buffer o = far_buffer(width_o_tensor(&c), (gdn2_dtype)type, axis);
      const width_buffer h = far_buffer(width_h_tensor(&c), GDN2_F32, axis - 1);
      call.args.o = width_output(&o);
      call.args.h_final = width_output(&h);
      assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
      width_result got = {(gdn2_dtype)type, test_floats(2 * 2 * 7), (uint16_t *)(void *)test_floats(2 * 7),
                          test_floats(2 * 2 * 63)};
      width_buffer_load(&o, got.o, got.bits);
      width_buffer_load(&h, got.h_final, NULL);
      width_expect_equal(&c, &got, &want);
      for (int i = W_Q; i <= W_H0; i++) far_free(&in[i]);
      far_free(&o), far_free(&h);
    }
}

/* Two gates per head, side by side in one buffer as a projection leaves them: [B, T, HV, 2], so that the head stride is 2. */
static void test_interleaved_gates(void **state) {
  (void)state;
  for (int64_t HV = 2; HV <= 4; HV += 2)
    for (int type = GDN2_F32; type <= GDN2_F16; type++) {
      width_case c = width_new(70, 2, 21, 2, HV, 12, 10);
      for (int i = W_G; i <= W_B; i++) width_set_dtype(&c, i, (gdn2_dtype)type), width_make_per_head(&c, i);
      const width_result want = width_run(&c, GDN2_F32);
      const tensor t = {"gates", {2, 21, HV, 2}};
      const width_buffer both = width_buffer_new(t, (gdn2_dtype)type, &width_contiguous, false, false);
      double *pairs = test_doubles(tensor_count(&t));
      for (size_t n = 0; n < tensor_count(&t); n++) pairs[n] = c.in[n % 2 ? W_B : W_G][n / 2];
      width_buffer_store(&both, pairs);
      width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
      const gdn2_input g = {both.first, (gdn2_dtype)type, {21 * HV * 2, HV * 2, 2, 0}};
      gdn2_input b = g;
      b.data = both.first + (type == GDN2_F32 ? 4 : 2);
      call.args.problem.g = g;
      call.args.problem.b = b;
      const width_result got = width_call_run(&c, &call);
      width_expect_equal(&c, &got, &want);
      /* A channel stride of 2 is no layout of a gate, and is told so. */
      call.args.problem.g.stride[3] = 2;
      assert_int_equal(gdn2_forward(&call.args), GDN2_ERR_STRIDE);
    }
}

/* ---- What is not hidden, and what is not rounded ---- */

/* A value that is multiplied by a write gate of 0 and is NaN is written as the recurrence has it: NaN. */
static void test_nan_behind_a_closed_gate(void **state) {
  (void)state;
  width_case c = width_new(80, 1, 20, 1, 2, 8, 6);
  for (int64_t e = 0; e < c.V; e++) width_row(&c, W_W, 0, 5, 1)[e] = 0;
  width_row(&c, W_V, 0, 5, 1)[2] = NAN;
  const width_result r = width_run(&c, GDN2_F32);
  for (int64_t t = 0; t < c.T; t++)
    for (int64_t j = 0; j < c.HV; j++)
      for (int64_t e = 0; e < c.V; e++) assert_int_equal(isnan(r.o[(t * c.HV + j) * c.V + e]), t >= 5 && j == 1 && e == 2);
}

/* Integers and fractions of few bits, so that every sum is exact in float32, but no step fits a 16-bit type: one-hot keys that
 * come back every four tokens, erase gates of 1/2, write gates with 12 bits. Whatever the order of the sums, the state is exact,
 * and a 16-bit output is the exact one rounded once. A step that rounded to 16 bits, or a sum in another precision, would show.
 */
static void test_only_the_output_is_rounded(void **state) {
  (void)state;
  static const double scale = 1;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    width_case c = width_new(90, 1, 24, 2, 2, 4, 21);
    c.scale = &scale;
    c.in[W_G] = NULL;
    rng r = {91};
    width_fill(&c, W_K, 0), width_fill(&c, W_B, 0.5);
    for (int64_t t = 0; t < c.T; t++)
      for (int64_t h = 0; h < 2; h++) {
        width_row(&c, W_K, 0, t, h)[(t + h) % 4] = 1;
        for (int64_t d = 0; d < 4; d++) width_row(&c, W_Q, 0, t, h)[d] = (double)(int64_t)rng_uniform(&r, -3.99, 4);
        for (int64_t e = 0; e < c.V; e++) {
          width_row(&c, W_V, 0, t, h)[e] = (double)(int64_t)rng_uniform(&r, -7.99, 8);
          width_row(&c, W_W, 0, t, h)[e] = rng_next(&r) % 2 ? 1 + 0x1p-11 : 1 - 0x1p-11;
        }
      }
    for (size_t i = 0; i < width_count(&c, W_H0); i++) c.in[W_H0][i] = (double)(int64_t)rng_uniform(&r, -7.99, 8);
    for (int i = W_Q; i <= W_V; i++) width_set_dtype(&c, i, (gdn2_dtype)type);
    const width_truth want = width_oracle(&c);
    const width_result got = width_run(&c, (gdn2_dtype)type);
    size_t rounded = 0;
    for (size_t i = 0; i < width_count(&c, W_V); i++) {
      assert_true(want.o[i] == (double)(float)want.o[i]);
      if ((double)got.o[i] != width_round((gdn2_dtype)type, want.o[i]))
        fail_msg("o: element %zu is %.9g, must be %.9g rounded", i, (double)got.o[i], want.o[i]);
      rounded += (double)got.o[i] != want.o[i];
    }
    for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true((double)got.h_final[i] == want.h_final[i]);
    assert_true(type == GDN2_F32 ? rounded == 0 : rounded > width_count(&c, W_V) / 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_later_tokens_with_all_options), TEST(test_verification_equals_decoding),
      TEST(test_decoding_after_every_length),   TEST(test_prefill_and_decode_in_16_bits),
      TEST(test_batch_rows_with_all_options),   TEST(test_widths_with_all_options),
      TEST(test_far_sequences_and_heads),       TEST(test_interleaved_gates),
      TEST(test_nan_behind_a_closed_gate),      TEST(test_only_the_output_is_rounded),
  };
  return TEST_RUN(tests);
}
