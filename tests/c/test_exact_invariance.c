/* What may change no bit: later tokens, the batch around a sequence, absent inputs instead of neutral ones, a cut on the grid of
 * chunks. And what may change the last bits only: a cut elsewhere. */
#include <math.h>

#include "exact.h"
#include "test.h"

#define CHUNK 16

/* ---- Later tokens ---- */

static void replace_tokens(exact_case *c, int input, int64_t from, uint64_t seed, double factor) {
  exact_case fresh = case_trained(seed, c->B, c->T, c->H, c->K, c->V);
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t t = from; t < c->T; t++)
      for (int64_t h = 0; h < c->H; h++)
        for (int64_t d = 0; d < input_tensor(c, input).shape[3]; d++)
          case_row(c, input, b, t, h)[d] = (float)(factor * case_row(&fresh, input, b, t, h)[d]);
}

/* The loss sees tokens before P only. */
static void cut_loss(exact_case *c, int64_t P) {
  c->in[IN_DHF] = NULL;
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t t = P; t < c->T; t++)
      for (int64_t h = 0; h < c->H; h++) memset(case_row(c, IN_DO, b, t, h), 0, (size_t)c->V * sizeof(float));
}

static void expect_same_prefix(const exact_case *c, const results *got, const exact_case *d, const results *want, int64_t P) {
  for (int i = OUT_O; i < OUTPUTS; i++)
    if (i == OUT_DH0) {
      const tensor t = output_tensor(c, i);
      expect_same_bits(&t, got->out[i], want->out[i]);
    } else if (i != OUT_HF) {
      expect_equal_rows(c, i, got->out[i], d, want->out[i], 0, P);
    }
}

static void expect_no_gradient_from(const exact_case *c, const results *got, int64_t P) {
  for (int i = OUT_DQ; i <= OUT_DW; i++) expect_zero_rows(c, i, got->out[i], P, c->T);
}

/* Other tokens from P on: outputs before P, and gradients of a loss of those outputs, keep their bits; from P on they are 0. */
static void test_later_tokens_do_not_matter(void **state) {
  (void)state;
  for (int64_t P = 1; P < 22; P++) {
    const void *mark = test_mark();
    exact_case c = case_trained(1, 1, 22, 2, 128, 40);
    cut_loss(&c, P);
    const results want = engine_run(&c);
    expect_no_gradient_from(&c, &want, P);
    for (int i = 0; i < IN_H0; i++) replace_tokens(&c, i, P, 2, i == IN_G ? 40 : 3);
    const results got = engine_run(&c);
    expect_same_prefix(&c, &got, &c, &want, P);
    expect_no_gradient_from(&c, &got, P);
    test_release_to(mark);
  }
}

/* One input at a time, at the edges of a chunk. */
static void test_later_values_of_each_input(void **state) {
  (void)state;
  const int64_t edges[] = {15, 16, 17, 31, 32, 33, 47};
  for (int n = 0; n < 7; n++)
    for (int i = 0; i < IN_H0; i++) {
      const void *mark = test_mark();
      exact_case c = case_trained(3, 2, 48, 1, 24, 20);
      cut_loss(&c, edges[n]);
      const results want = engine_run(&c);
      replace_tokens(&c, i, edges[n], 4, i == IN_G ? 1000 : -5);
      const results got = engine_run(&c);
      expect_same_prefix(&c, &got, &c, &want, edges[n]);
      expect_no_gradient_from(&c, &got, edges[n]);
      test_release_to(mark);
    }
}

/* Even an infinity or a NaN stays where it is: outputs before it keep their bits. */
static void test_later_nan_does_not_matter(void **state) {
  (void)state;
  const double values[] = {NAN, INFINITY, -INFINITY, 3e38};
  for (int64_t P = 13; P < 20; P++)
    for (int n = 0; n < 4; n++)
      for (int i = 0; i < IN_H0; i++) {
        const void *mark = test_mark();
        exact_case c = case_trained(5, 1, 22, 2, 19, 13);
        const results want = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
        case_row(&c, i, 0, P, 1)[2] = (float)values[n];
        const results got = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
        expect_equal_rows(&c, OUT_O, got.out[OUT_O], &c, want.out[OUT_O], 0, P);
        if (n == 0) assert_true(isnan(got.out[OUT_O][((P * c.H) + 1) * c.V + 2])); /* and it is not hidden */
        test_release_to(mark);
      }
}

/* More tokens: the prefix keeps its bits, forward and backward. */
static void test_appended_tokens_do_not_matter(void **state) {
  (void)state;
  const int64_t lengths[][2] = {{21, 22}, {15, 16}, {16, 17}, {31, 48}, {32, 33}, {64, 200}, {5, 130}};
  for (int n = 0; n < 7; n++) {
    const int64_t P = lengths[n][0];
    exact_case whole = case_trained(6, 1, lengths[n][1], 2, 33, 18);
    cut_loss(&whole, P);
    const exact_case prefix = case_tokens(&whole, 0, P);
    const results want = engine_run(&prefix), got = engine_run(&whole);
    expect_same_prefix(&whole, &got, &prefix, &want, P);
    expect_no_gradient_from(&whole, &got, P);
  }
}

/* ---- The batch ---- */

static void test_batch_rows_are_alone(void **state) {
  (void)state;
  for (int64_t T = 1; T < 100; T += 33) {
    const exact_case c = case_trained(7, 3, T, 2, 17, 12);
    const results all = engine_run(&c);
    for (int64_t b = 0; b < c.B; b++) {
      const exact_case row = case_batch_row(&c, b);
      const results alone = engine_run(&row);
      for (int i = 0; i < OUTPUTS; i++) {
        const tensor t = output_tensor(&row, i);
        expect_same_bits(&t, all.out[i] + (size_t)b * tensor_count(&t), alone.out[i]);
      }
    }
  }
}

/* One sequence in eight places of a batch. */
static void test_place_in_batch(void **state) {
  (void)state;
  exact_case c = case_trained(8, 8, 40, 1, 16, 16);
  for (int i = 0; i < INPUTS; i++) {
    const size_t row = input_count(&c, i) / 8;
    for (size_t b = 1; b < 8; b++) memcpy(c.in[i] + b * row, c.in[i], row * sizeof(float));
  }
  const results got = engine_run(&c);
  for (int i = 0; i < OUTPUTS; i++) {
    tensor t = output_tensor(&c, i);
    t.shape[0] = 1;
    for (size_t b = 1; b < 8; b++) expect_same_bits(&t, got.out[i] + b * tensor_count(&t), got.out[i]);
  }
}

/* ---- Absent inputs ---- */

static void test_absent_equals_neutral(void **state) {
  (void)state;
  const int inputs[] = {IN_G, IN_B, IN_W, IN_H0, IN_DO, IN_DHF};
  for (unsigned set = 1; set < 64; set++) {
    const void *mark = test_mark();
    exact_case c = case_trained(9, 2, 19, 2, 9, 7);
    for (int i = 0; i < 6; i++)
      if (set & (1u << i)) case_fill(&c, inputs[i], inputs[i] == IN_W ? 1 : 0);
    const results neutral = engine_run(&c);
    for (int i = 0; i < 6; i++)
      if (set & (1u << i)) c.in[inputs[i]] = NULL;
    const results absent = engine_run(&c);
    expect_equal(&c, &absent, &neutral);
    const oracle want = oracle_run(&c);
    expect_right_to_unit(&c, &absent, &want, 2e-6, 1e-3);
    test_release_to(mark);
  }
}

/* ---- Cuts ---- */

/* The forward in pieces, each starting from the state that the last one left. */
static results in_pieces(const exact_case *c, const int64_t *lengths, int pieces) {
  results whole = results_new(c, OUT_FORWARD);
  const float *h = c->in[IN_H0];
  int64_t from = 0;
  for (int n = 0; n < pieces; n++) {
    exact_case part = case_tokens(c, from, from + lengths[n]);
    memcpy(part.in[IN_H0], h, input_count(c, IN_H0) * sizeof(float));
    const results r = engine_run_some(&part, OUT_FORWARD, (gdn2_exec){0});
    memcpy(whole.out[OUT_O] + from * c->H * c->V, r.out[OUT_O], output_count(&part, OUT_O) * sizeof(float));
    memcpy(whole.out[OUT_HF], r.out[OUT_HF], output_count(&part, OUT_HF) * sizeof(float));
    h = whole.out[OUT_HF];
    from += lengths[n];
  }
  assert_true(from == c->T);
  return whole;
}

static void test_cuts(void **state) {
  (void)state;
  int64_t ones[200];
  for (int n = 0; n < 200; n++) ones[n] = 1;
  const struct {
    int64_t T, lengths[4];
    int pieces;
  } cuts[] = {{5, {4, 1}, 2}, {200, {70, 1, 64, 65}, 4}, {65, {1, 64}, 2}, {40, {16, 23, 1}, 3}};
  for (int n = 0; n < 4; n++) {
    const exact_case c = case_trained(10, 1, cuts[n].T, 2, 31, 22);
    const results pieces = in_pieces(&c, cuts[n].lengths, cuts[n].pieces);
    const oracle want = oracle_run(&c);
    expect_right(&c, &pieces, &want, 1e-6, 0);
  }
  const exact_case c = case_trained(10, 1, 200, 2, 31, 22);
  const results tokens = in_pieces(&c, ones, 200);
  const oracle want = oracle_run(&c);
  expect_right(&c, &tokens, &want, 1e-6, 0);
}

static void test_cuts_on_the_grid_keep_the_bits(void **state) {
  (void)state;
  const int64_t lengths[] = {CHUNK, 3 * CHUNK, 4 * CHUNK, 5};
  const exact_case c = case_trained(11, 1, 8 * CHUNK + 5, 2, 31, 22);
  const results pieces = in_pieces(&c, lengths, 4), whole = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0});
  expect_equal(&c, &pieces, &whole);
}

/* The backward in pieces: dh0 of one is dh_final of the one before. */
static void test_backward_in_pieces(void **state) {
  (void)state;
  const exact_case c = case_trained(12, 1, 90, 2, 20, 14);
  const oracle want = oracle_run(&c);
  const int64_t cuts[] = {0, 37, 38, 90};
  const float *dh = c.in[IN_DHF];
  for (int n = 2; n >= 0; n--) {
    exact_case before = case_tokens(&c, 0, cuts[n]), part = case_tokens(&c, cuts[n], cuts[n + 1]);
    if (n > 0)
      memcpy(part.in[IN_H0], engine_run_some(&before, OUT_FORWARD, (gdn2_exec){0}).out[OUT_HF],
             input_count(&c, IN_H0) * sizeof(float));
    memcpy(part.in[IN_DHF], dh, input_count(&c, IN_DHF) * sizeof(float));
    const results got = engine_run_some(&part, OUT_BACKWARD, (gdn2_exec){0});
    for (int i = OUT_DQ; i <= OUT_DW; i++) {
      const tensor t = output_tensor(&part, i);
      expect_close(&t, got.out[i], want.out[i] + cuts[n] * t.shape[2] * t.shape[3], 2e-6);
    }
    dh = got.out[OUT_DH0];
  }
  const tensor t = output_tensor(&c, OUT_DH0);
  expect_close_to_unit(&t, dh, want.out[OUT_DH0], 2e-6, 1e-4);
}

/* ---- Nothing to do ---- */

static void expect_passed_through(exact_case *c) {
  const tensor h = output_tensor(c, OUT_HF), dh = output_tensor(c, OUT_DH0);
  results got = engine_run(c);
  expect_same_bits(&h, got.out[OUT_HF], c->in[IN_H0]);
  expect_same_bits(&dh, got.out[OUT_DH0], c->in[IN_DHF]);
  c->in[IN_H0] = c->in[IN_DHF] = NULL;
  got = engine_run(c);
  expect_all_zero(&h, got.out[OUT_HF]);
  expect_all_zero(&dh, got.out[OUT_DH0]);
}

/* No tokens: the state passes through; no rows or heads: nothing happens, and it is no error. */
static void test_empty(void **state) {
  (void)state;
  const int64_t sizes[][3] = {{2, 0, 3}, {0, 5, 3}, {2, 5, 0}, {0, 0, 0}};
  for (int n = 0; n < 4; n++) {
    exact_case c = case_trained(13, sizes[n][0], sizes[n][1], sizes[n][2], 7, 5);
    expect_passed_through(&c);
  }
}

/* ---- Neutral tokens ---- */

static void fill_row(exact_case *c, int input, int64_t t, double value) {
  for (int64_t i = 0; i < c->H * input_tensor(c, input).shape[3]; i++) case_row(c, input, 0, t, 0)[i] = (float)value;
}

/* A token with b = w = g = 0 does nothing, whatever its q, k and v: other rows and the state keep their bits, and are what they
 * are without it. */
static void test_neutral_token(void **state) {
  (void)state;
  const int64_t places[] = {0, 7, 15, 16, 20, 39};
  for (int n = 0; n < 6; n++) {
    const int64_t p = places[n];
    exact_case c = case_trained(14, 1, 40, 2, 18, 11);
    const int zero[] = {IN_G, IN_B, IN_W, IN_DO};
    for (int i = 0; i < 4; i++) fill_row(&c, zero[i], p, 0);
    exact_case blank = case_copy(&c);
    for (int i = IN_Q; i <= IN_V; i++) fill_row(&blank, i, p, 0);
    const results filled = engine_run(&c), blanked = engine_run(&blank);
    const oracle want = oracle_run(&c);
    for (int i = 0; i < OUTPUTS; i++) {
      const tensor t = output_tensor(&c, i);
      if (i == OUT_HF || i == OUT_DH0) {
        expect_same_bits(&t, filled.out[i], blanked.out[i]);
        continue;
      }
      expect_equal_rows(&c, i, filled.out[i], &blank, blanked.out[i], 0, p);
      expect_equal_rows(&c, i, filled.out[i], &blank, blanked.out[i], p + 1, c.T);
    }
    expect_right(&c, &filled, &want, 1e-6, 2e-6);
  }
}

/* Padding at the end with k = v = b = g = 0: the state is that of the tokens alone. */
static void test_padding_leaves_the_state(void **state) {
  (void)state;
  for (int64_t T = 1; T < 64; T += 9) {
    exact_case c = case_trained(15, 1, 64, 2, 18, 11);
    for (int64_t t = T; t < 64; t++)
      for (int i = IN_K; i <= IN_B; i++) fill_row(&c, i, t, 0);
    const exact_case alone = case_tokens(&c, 0, T);
    const results padded = engine_run_some(&c, OUT_FORWARD, (gdn2_exec){0}),
                  want = engine_run_some(&alone, OUT_FORWARD, (gdn2_exec){0});
    for (size_t i = 0; i < output_count(&c, OUT_HF); i++) {
      const float x = padded.out[OUT_HF][i], y = want.out[OUT_HF][i];
      if (!(x == y || nextafterf(x, y) == y))
        fail_msg("T = %d: h_final differs by more than one ulp: %g, %g", (int)T, (double)x, (double)y);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_later_tokens_do_not_matter),
      TEST(test_later_values_of_each_input),
      TEST(test_later_nan_does_not_matter),
      TEST(test_appended_tokens_do_not_matter),
      TEST(test_batch_rows_are_alone),
      TEST(test_place_in_batch),
      TEST(test_absent_equals_neutral),
      TEST(test_cuts),
      TEST(test_cuts_on_the_grid_keep_the_bits),
      TEST(test_backward_in_pieces),
      TEST(test_empty),
      TEST(test_neutral_token),
      TEST(test_padding_leaves_the_state),
  };
  return TEST_RUN(tests);
}
