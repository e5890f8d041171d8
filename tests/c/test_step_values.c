/* What a step computes: against the float64 oracle, against the forward, and against itself token by token. */
#include <math.h>

#include "step.h"
#include "test.h"

#define BOUND 1e-6

static const width_layout *const layouts[] = {NULL, &step_rows};
static const int64_t lengths[] = {1, 2, 3, 5, 16, 33};

/* ---- Against the oracle ---- */

static void expect_both_layouts(const width_case *c, gdn2_dtype o_dtype, const width_truth *want) {
  for (int l = 0; l < 2; l++) {
    const step_how how = {.layout = layouts[l]};
    const width_result got = step_run(c, o_dtype, &how);
    step_expect_right(c, &got, want, GDN2_F32, BOUND);
  }
}

static void test_lengths(void **state) {
  (void)state;
  for (int n = 0; n < 6; n++) {
    const width_case c = width_new(500 + (uint64_t)n, 2, lengths[n], 3, 6, 21, 19);
    const width_truth want = width_oracle(&c);
    expect_both_layouts(&c, GDN2_F32, &want);
  }
}

/* Every pair would take long; each width stands in both places, beside wide, narrow and odd ones. */
static void test_widths(void **state) {
  (void)state;
  static const int64_t widths[] = {1, 3, 7, 8, 15, 16, 17, 31, 32, 64, 80, 96, 100, 128, 192, 256};
  for (int n = 0; n < 16; n++)
    for (int m = 0; m < 2; m++) {
      const void *mark = test_mark();
      const int64_t T = m == 1 ? 3 : 1;
      const width_case c = width_new(520 + (uint64_t)n, 1, T, 1, 2, widths[n], widths[(n * 5 + m * 7) % 16]);
      const width_truth want = width_oracle(&c);
      expect_both_layouts(&c, GDN2_F32, &want);
      test_release_to(mark);
    }
}

/* The five rules, each with tensors of every type and states of every type. */
static void test_rules_and_types(void **state) {
  (void)state;
  for (int rule = 0; rule < 5; rule++)
    for (int type = GDN2_F32; type <= GDN2_F16; type++)
      for (int held = GDN2_F32; held <= GDN2_F16; held++)
        for (int l = 0; l < 2; l++) {
          const void *mark = test_mark();
          width_case c = width_new(540 + (uint64_t)rule, 2, 1 + 3 * l, 2, 4, 24, 40);
          width_set_dtypes(&c, (gdn2_dtype)type);
          width_set_dtype(&c, W_H0, (gdn2_dtype)held);
          if (rule >= 1 && rule <= 3) width_make_per_head(&c, W_B), width_make_per_head(&c, W_W), c.in[W_W] = c.in[W_B];
          if (rule == 2) width_make_per_head(&c, W_G);
          if (rule == 3) c.in[W_G] = NULL;
          if (rule == 4) c.in[W_B] = c.in[W_W] = NULL;
          const width_truth want = width_oracle(&c);
          const step_how how = {.dtype = (gdn2_dtype)held, .layout = layouts[(rule + type + held) % 2]};
          const width_result got = step_run(&c, (gdn2_dtype)type, &how);
          step_expect_right(&c, &got, &want, (gdn2_dtype)held, BOUND);
          test_release_to(mark);
        }
}

/* Raw gates of every form, both head maps, gates of key heads, L2 norm. */
static void test_options(void **state) {
  (void)state;
  for (int n = 0; n < 16; n++) {
    width_case c = width_new(560 + (uint64_t)n, 2, 1 + n % 3, 2, 6, 17, 35);
    c.map = n & 1 ? GDN2_HEADS_TILED : GDN2_HEADS_GROUPED;
    if (n & 2) width_make_key_gate(&c, W_G);
    if (n & 4) width_make_key_gate(&c, W_B);
    width_make_raw_decay(&c, n & 8 ? GDN2_DECAY_SOFTPLUS : GDN2_DECAY_BOUNDED, 561);
    width_make_raw_gates(&c, n & 1 ? GDN2_GATE_SIGMOID : GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 562);
    if (n & 8) width_make_per_head(&c, W_G), width_make_per_head(&c, W_B);
    c.l2norm = true;
    const width_truth want = width_oracle(&c);
    expect_both_layouts(&c, GDN2_F32, &want);
  }
}

/* No state is a state of zeros, bit for bit; and the new one is written whatever the number of tokens. */
static void test_fresh_states(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 4; T++)
    for (int l = 0; l < 2; l++) {
      width_case zeros = width_new(580, 2, T, 2, 4, 18, 33), fresh = zeros;
      width_fill(&zeros, W_H0, 0);
      fresh.in[W_H0] = NULL;
      const width_truth want = width_oracle(&zeros);
      const step_how how = {.layout = layouts[l]};
      const width_result a = step_run(&zeros, GDN2_F32, &how), b = step_run(&fresh, GDN2_F32, &how);
      step_expect_right(&zeros, &a, &want, GDN2_F32, BOUND);
      width_expect_equal(&zeros, &b, &a);
    }
}

/* A decay of -inf forgets, whatever was there; 1 x 1 by hand: decay to 1/2, the key reads and erases all of it. */
static void test_closed_forms(void **state) {
  (void)state;
  width_case c = width_new(585, 1, 1, 1, 1, 1, 1), reset = width_new(586, 1, 2, 1, 2, 9, 20);
  static const double one = 1;
  c.scale = &one;
  width_fill(&c, W_H0, 1), width_fill(&c, W_G, log(0.5)), width_fill(&c, W_B, 1), width_fill(&c, W_W, 1);
  width_fill(&c, W_K, 1), width_fill(&c, W_Q, 1), width_fill(&c, W_V, 0);
  width_fill(&reset, W_G, -INFINITY);
  for (int l = 0; l < 2; l++) {
    const step_how how = {.layout = layouts[l]};
    const width_result got = step_run(&c, GDN2_F32, &how);
    assert_true(got.h_final[0] == 0 && got.o[0] == 0);
    width_case other = reset;
    width_fill_normal(&other, W_H0, 99, 5);
    const width_result a = step_run(&reset, GDN2_F32, &how), b = step_run(&other, GDN2_F32, &how);
    width_expect_equal(&reset, &a, &b);
  }
}

/* The comparison sees a state of another layout, a missing decay and a missing erase. */
static void test_planted_faults(void **state) {
  (void)state;
  const width_case c = width_new(590, 1, 2, 1, 2, 24, 24);
  const width_truth want = width_oracle(&c);
  for (int fault = 0; fault < 3; fault++) {
    width_case wrong = c;
    if (fault == 0) width_fill(&wrong, W_G, 0);
    if (fault == 1) width_fill(&wrong, W_B, 0);
    step_how how = {.layout = NULL};
    step_call call = step_call_new(&wrong, GDN2_F32, &how);
    if (fault == 2) {
      const int64_t swapped[4] = {c.HV * c.K * c.V, c.K * c.V, 1, c.K};
      memcpy(call.args.from.stride, swapped, sizeof swapped);
      memcpy(call.args.to.stride, swapped, sizeof swapped);
    }
    const width_result got = step_call_run(&wrong, &call, &how);
    assert_true(width_error(&c, &got, &want) > 1e-2);
  }
}

/* ---- Against itself and the forward ---- */

/* n tokens in one call have the bits of n calls of one token (float32), and of calls of 2 and the rest: up to 3 tokens, and any
 * number where they are not taken in chunks. */
static void test_calls_can_be_joined(void **state) {
  (void)state;
  const int64_t shapes[][2] = {{8, 8}, {24, 100}, {128, 64}, {256, 200}};
  for (int s = 0; s < 4; s++)
    for (int l = 0; l < 2; l++)
      for (int64_t piece = 1; piece <= 2; piece++) {
        const int64_t T = !layouts[l] && shapes[s][1] % 16 == 0 ? 3 : 19;
        const width_case c = width_new(600 + (uint64_t)s, 2, T, 2, 4, shapes[s][0], shapes[s][1]);
        const step_how how = {.layout = layouts[l]};
        const width_result whole = step_run(&c, GDN2_F32, &how);
        width_case now = c;
        for (int64_t t = 0; t < T; t += piece) {
          const int64_t count = t + piece <= T ? piece : T - t;
          width_case part = step_tokens(&c, t, count);
          part.in[W_H0] = now.in[W_H0];
          const width_result r = step_run(&part, GDN2_F32, &how);
          for (int64_t b = 0; b < 2; b++)
            assert_memory_equal(r.o + b * count * c.HV * c.V, whole.o + (b * T + t) * c.HV * c.V,
                                (size_t)(count * c.HV * c.V) * sizeof(float));
          step_take_states(&now, r.h_final);
        }
        const tensor h = width_h_tensor(&c);
        for (size_t i = 0; i < tensor_count(&h); i++) assert_true((double)whole.h_final[i] == now.in[W_H0][i]);
      }
}

/* Lines with gaps between them. */
static const width_layout apart = {{0, 1, 2, 3}, {0, 1, 2, 3}, {2, 1, 3, 0}, {1, 1, 1, 1}, TEST_AT_END};

/* From 4 tokens on a float32 state K x V, V a multiple of 16, is taken in chunks: the bits are those of the forward. In place,
 * from another type and layout, from zeros. */
static void test_chunks(void **state) {
  (void)state;
  static const int64_t counts[] = {4, 15, 16, 17, 40}, shapes[][2] = {{128, 64}, {24, 112}, {256, 160}, {7, 16}};
  const step_how hows[] = {{.layout = NULL},
                           {.layout = &apart},
                           {.layout = &step_rows, .to = &apart, .to_dtype = GDN2_F32},
                           {.dtype = GDN2_BF16, .to = &width_contiguous, .to_dtype = GDN2_F32},
                           {.layout = NULL, .exec = {.threads = 7}}};
  for (int n = 0; n < 5; n++)
    for (int s = 0; s < 4; s++)
      for (int h = 0; h < 6; h++) {
        const void *mark = test_mark();
        width_case c = width_new(610 + (uint64_t)s, 2, counts[n], 2, 4, shapes[s][0], shapes[s][1]);
        const step_how *how = &hows[h % 5];
        if (h == 5) c.in[W_H0] = NULL;
        if (c.in[W_H0]) width_set_dtype(&c, W_H0, how->dtype);
        if (h == 1) c.l2norm = true, width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 611);
        if (h == 4) width_set_dtypes(&c, GDN2_BF16);
        const width_result got = step_run(&c, GDN2_F32, how);
        width_set_dtype(&c, W_H0, GDN2_F32);
        const width_result want = width_run(&c, GDN2_F32);
        width_expect_equal(&c, &got, &want);
        test_release_to(mark);
      }
}

/* Without o, a chunk is not read with its queries: the same states. */
static void test_chunks_without_output(void **state) {
  (void)state;
  const width_case c = width_new(615, 2, 21, 2, 4, 24, 112);
  const step_how how = {.to = &apart};
  const width_result want = width_run(&c, GDN2_F32);
  step_call call = step_call_new(&c, GDN2_F32, &how);
  call.args.o.data = NULL;
  assert_int_equal(gdn2_step(&call.args), GDN2_OK);
  const tensor h = width_h_tensor(&c);
  float *got = test_floats(tensor_count(&h));
  width_buffer_load(&call.to, got, NULL);
  width_buffer_expect_gaps(&call.to);
  width_buffer_expect_untouched(&call.inputs.o);
  assert_memory_equal(got, want.h_final, tensor_count(&h) * sizeof(float));
}

static double difference(const float *a, const float *b, size_t count) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < count; i++)
    sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]), size += (double)b[i] * (double)b[i];
  assert_true(size > 1e-6);
  return sqrt(sum / size);
}

/* Cut anywhere into prefill and decode, in either order: the forward of all tokens within 1e-6. K = V and K != V. */
static void test_prefill_and_decode(void **state) {
  (void)state;
  static const int64_t cuts[] = {1, 4, 5, 16, 63, 64, 65};
  for (int square = 0; square < 2; square++)
    for (int n = 0; n < 7; n++)
      for (int order = 0; order < 2; order++) {
        const void *mark = test_mark();
        const int64_t T = cuts[n] + 5;
        const width_case c = width_new(620 + (uint64_t)n, 2, T, 2, 4, 24, square ? 24 : 40);
        const width_result want = width_run(&c, GDN2_F32);
        const int64_t first = order ? 5 : cuts[n];
        const width_case head = step_tokens(&c, 0, first);
        width_case tail = step_tokens(&c, first, T - first);
        const step_how how = {.layout = layouts[n % 2]};
        const width_result a = order ? step_run(&head, GDN2_F32, &how) : width_run(&head, GDN2_F32);
        step_take_states(&tail, a.h_final);
        const width_result b = order ? width_run(&tail, GDN2_F32) : step_run(&tail, GDN2_F32, &how);
        const tensor h = width_h_tensor(&c);
        assert_true(difference(b.h_final, want.h_final, tensor_count(&h)) < BOUND);
        for (int64_t row = 0; row < 2; row++)
          assert_true(difference(b.o + row * (T - first) * c.HV * c.V, want.o + (row * T + first) * c.HV * c.V,
                                 (size_t)((T - first) * c.HV * c.V)) < BOUND);
        test_release_to(mark);
      }
}

/* A token with b = w = 0 and g = 0 changes no bit of the state, whatever its key, query and value: padding. */
static void test_neutral_tokens(void **state) {
  (void)state;
  for (int64_t T = 1; T <= 20; T += 19)
    for (int l = 0; l < 2; l++)
      for (int held = GDN2_F32; held <= GDN2_F16; held++) {
        width_case c = width_new(630, 2, T, 2, 4, 24, 40);
        width_set_dtype(&c, W_H0, (gdn2_dtype)held);
        width_fill(&c, W_G, 0), width_fill(&c, W_B, 0), width_fill(&c, W_W, 0);
        const step_how how = {.dtype = (gdn2_dtype)held, .layout = layouts[l]};
        const width_result got = step_run(&c, GDN2_F32, &how);
        for (size_t i = 0; i < width_count(&c, W_H0); i++) assert_true((double)got.h_final[i] == c.in[W_H0][i]);
      }
}

/* The state that is given matters, for every number of tokens. */
static void test_states_are_used(void **state) {
  (void)state;
  const int64_t counts[] = {1, 2, 3, 16, 64, 65};
  for (int n = 0; n < 6; n++) {
    width_case c = width_new(640, 1, counts[n], 2, 2, 16, 12);
    width_fill(&c, W_G, -1e-3);
    const step_how how = {.layout = layouts[n % 2]};
    const width_truth want = width_oracle(&c);
    const width_result got = step_run(&c, GDN2_F32, &how);
    step_expect_right(&c, &got, &want, GDN2_F32, BOUND);
    c.in[W_H0] = NULL;
    const width_result without = step_run(&c, GDN2_F32, &how);
    const tensor o = width_o_tensor(&c);
    assert_true(difference(without.o, got.o, tensor_count(&o)) > 1e-3);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_lengths),
      TEST(test_widths),
      TEST(test_rules_and_types),
      TEST(test_options),
      TEST(test_fresh_states),
      TEST(test_closed_forms),
      TEST(test_planted_faults),
      TEST(test_calls_can_be_joined),
      TEST(test_chunks),
      TEST(test_chunks_without_output),
      TEST(test_prefill_and_decode),
      TEST(test_states_are_used),
      TEST(test_neutral_tokens),
  };
  return TEST_RUN(tests);
}
