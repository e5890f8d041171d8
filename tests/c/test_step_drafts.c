/* Drafts: the state after every token, and a start from one of them. */
#include <math.h>

#include "step.h"
#include "test.h"

enum { D = 4 }; /* tokens of a draft */

static const width_layout *const layouts[] = {NULL, &step_rows};

/* A tensor of states [rows, moments, HV, K, V] between guard pages; V x K where by_rows. */
typedef struct trail {
  gdn2_states states;
  size_t bytes, one; /* elements of a state of all heads */
} trail;

static size_t size_of(gdn2_dtype dtype) { return dtype == GDN2_F32 ? 4 : 2; }

static trail trail_new(const width_case *c, int64_t rows, int64_t moments, gdn2_dtype dtype, bool by_rows) {
  const size_t one = (size_t)(c->HV * c->K * c->V), bytes = (size_t)(rows * moments) * one * size_of(dtype);
  trail x = {.states = {.data = test_floats((bytes + 3) / 4), .dtype = dtype}, .bytes = bytes, .one = one};
  const int64_t head = c->K * c->V;
  const int64_t stride[5] = {moments * c->HV * head, c->HV * head, head, by_rows ? 1 : c->V, by_rows ? c->K : 1};
  memcpy(x.states.stride, stride, sizeof stride);
  return x;
}

/* The state of a row after a token, [HV, K, V]. */
static float *trail_get(const width_case *c, const trail *x, int64_t row, int64_t moment) {
  float *out = test_floats(x->one), *to = out;
  const int64_t *s = x->states.stride;
  for (int64_t h = 0; h < c->HV; h++)
    for (int64_t k = 0; k < c->K; k++)
      for (int64_t v = 0; v < c->V; v++) {
        const int64_t at = row * s[0] + moment * s[1] + h * s[2] + k * s[3] + v * s[4];
        uint16_t half;
        if (x->states.dtype == GDN2_F32) {
          *to++ = ((const float *)x->states.data)[at];
          continue;
        }
        memcpy(&half, (const char *)x->states.data + 2 * at, 2);
        *to++ = (float)width_decode(x->states.dtype, half);
      }
  return out;
}

/* The states of calls of 1, 2, ... tokens. */
static void test_each_token(void **state) {
  (void)state;
  for (int held = GDN2_F32; held <= GDN2_F16; held++)
    for (int l = 0; l < 2; l++)
      for (int64_t T = 1; T <= D; T++) {
        const void *mark = test_mark();
        const width_case c = width_new(800, 2, T, 2, 4, 20, 35);
        const step_how how = {.layout = layouts[l]};
        step_call call = step_call_new(&c, GDN2_F32, &how);
        const trail each = trail_new(&c, 2, T, (gdn2_dtype)held, (l + held) % 2);
        call.args.each = each.states;
        const width_result got = step_call_run(&c, &call, &how), plain = step_run(&c, GDN2_F32, &how);
        width_expect_equal(&c, &got, &plain);
        for (int64_t t = 0; t < T; t++) {
          const width_case part = step_tokens(&c, 0, t + 1);
          const width_result want = step_run(&part, GDN2_F32, &how);
          for (int64_t b = 0; b < 2; b++) {
            const float *kept = trail_get(&c, &each, b, t);
            for (size_t i = 0; i < each.one; i++) {
              const double rounded = width_round((gdn2_dtype)held, (double)want.h_final[(size_t)b * each.one + i]);
              assert_true((double)kept[i] == rounded);
            }
          }
        }
        test_release_to(mark);
      }
}

/* With `each`, n tokens have the bits of n calls of one token, also where they would be taken in chunks without it. */
static void test_each_token_alone(void **state) {
  (void)state;
  const int64_t T = 7;
  for (int l = 0; l < 2; l++) {
    const width_case c = width_new(805, 2, T, 2, 4, 24, 48);
    const step_how how = {.layout = layouts[l]};
    step_call call = step_call_new(&c, GDN2_F32, &how);
    const trail each = trail_new(&c, 2, T, GDN2_F32, l);
    call.args.each = each.states;
    const width_result got = step_call_run(&c, &call, &how);
    width_case now = c;
    for (int64_t t = 0; t < T; t++) {
      width_case one = step_tokens(&c, t, 1);
      one.in[W_H0] = now.in[W_H0];
      const width_result want = step_run(&one, GDN2_F32, &how);
      for (int64_t b = 0; b < 2; b++) {
        const size_t row = (size_t)(c.HV * c.V);
        assert_memory_equal(got.o + (size_t)(b * T + t) * row, want.o + (size_t)b * row, row * sizeof(float));
        assert_memory_equal(trail_get(&c, &each, b, t), want.h_final + (size_t)b * each.one, each.one * sizeof(float));
      }
      step_take_states(&now, want.h_final);
    }
    const tensor h = width_h_tensor(&c);
    for (size_t i = 0; i < tensor_count(&h); i++) assert_true((double)got.h_final[i] == now.in[W_H0][i]);
  }
}

/* Rows take 0 to D drafts of a round of speculative decoding; the next round starts there and has the bits of a sequence that
 * never saw the others. `each` goes where history is, or elsewhere; `from` is the state before the drafts. */
static void test_roll_back(void **state) {
  (void)state;
  static const int64_t accepted[D + 1] = {2, 0, 4, 1, 3};
  for (int l = 0; l < 2; l++)
    for (int same = 0; same < 2; same++)
      for (int wide = 0; wide < 2; wide++) {
        const void *mark = test_mark();
        const int64_t B = D + 1;
        const width_case drafts = width_new(810, B, D, 2, 4, 20, 35);
        width_case next = width_new(811, B, D, 2, 4, 20, 35);
        next.in[W_H0] = drafts.in[W_H0];
        const step_how how = {.layout = layouts[l]};
        step_call first = step_call_new(&drafts, GDN2_F32, &how), second = step_call_new(&next, GDN2_F32, &how);
        const trail history = trail_new(&drafts, B, D, GDN2_F32, l), other = trail_new(&drafts, B, D, GDN2_F32, l);
        first.args.each = history.states;
        first.args.to.data = NULL;
        assert_int_equal(gdn2_step(&first.args), GDN2_OK);
        second.args.history = history.states;
        second.args.history_length = D;
        second.args.accepted = step_indices(accepted, (size_t)B, wide ? GDN2_I64 : GDN2_I32);
        second.args.accepted_type = wide ? GDN2_I64 : GDN2_I32;
        second.args.each = same ? history.states : other.states;
        const width_result got = step_call_run(&next, &second, &how);
        for (int64_t b = 0; b < B; b++) {
          const width_case row = width_sequence(&drafts, b), kept = step_tokens(&row, 0, accepted[b]);
          width_case then = width_sequence(&next, b);
          const width_result taken = step_run(&kept, GDN2_F32, &how);
          step_take_states(&then, taken.h_final);
          const width_result want = step_run(&then, GDN2_F32, &how);
          width_expect_equal_part(&next, &got, &then, &want, b);
          const float *last = trail_get(&next, same ? &history : &other, b, D - 1);
          assert_memory_equal(last, want.h_final, history.one * sizeof(float));
        }
        test_release_to(mark);
      }
}

/* No new tokens: the accepted state becomes the slot's; rows of the trail are slots. A reset row becomes zeros, a skipped one
 * stays. */
static void test_commit(void **state) {
  (void)state;
  static const int64_t slots[4] = {5, 2, -1, 0}, accepted[4] = {3, 0, 77, 1};
  static const uint8_t reset[4] = {0, 0, 0, 1};
  for (int l = 0; l < 2; l++) {
    const width_case c = width_new(820, 4, D, 1, 2, 10, 20);
    const step_how how = {.layout = layouts[l], .slot = slots, .slots = 6};
    step_call call = step_call_new(&c, GDN2_F32, &how);
    const trail history = trail_new(&c, 6, D, GDN2_F32, l);
    call.args.each = history.states;
    call.args.drafts_by_slot = 1;
    gdn2_step_args commit = call.args;
    call.args.to.data = NULL;
    assert_int_equal(gdn2_step(&call.args), GDN2_OK);
    const float *unused = trail_get(&c, &history, 1, 0);
    for (size_t i = 0; i < history.one; i++) assert_true(isnan(unused[i]));
    commit.problem.T = 0;
    commit.o.data = NULL;
    commit.each.data = NULL;
    commit.history = history.states;
    commit.history_length = D;
    commit.accepted = accepted;
    commit.accepted_type = GDN2_I64;
    commit.reset = reset;
    assert_int_equal(gdn2_step(&commit), GDN2_OK);
    const tensor pool = {"pool", {6, c.HV, c.K, c.V}};
    float *states = test_floats(tensor_count(&pool));
    width_buffer_load(&call.to, states, NULL);
    const float *committed = trail_get(&c, &history, 5, 2);
    for (size_t i = 0; i < history.one; i++) {
      assert_true(states[5 * history.one + i] == committed[i]);
      assert_true((double)states[2 * history.one + i] == c.in[W_H0][history.one + i]);
      assert_true(states[i] == 0);
      assert_true(isnan(states[history.one + i]));
    }
  }
}

/* The first token of a long check of drafts is the token that would have come alone. */
static void test_first_of_many(void **state) {
  (void)state;
  const width_case c = width_new(830, 1, 16, 2, 4, 32, 48), one = step_tokens(&c, 0, 1);
  for (int l = 0; l < 2; l++) {
    const step_how how = {.layout = layouts[l]};
    const width_result many = step_run(&c, GDN2_BF16, &how), first = step_run(&one, GDN2_BF16, &how);
    assert_memory_equal(many.bits, first.bits, (size_t)(c.HV * c.V) * 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_each_token), TEST(test_each_token_alone), TEST(test_roll_back), TEST(test_commit),
                                     TEST(test_first_of_many)};
  return TEST_RUN(tests);
}
