/* Same input, same bits, whatever stands around it: threads, batch, sequences, what follows. And the workspace. */
#include "double.h"
#include "test.h"

#define FORWARD (DOUBLE_O | DOUBLE_H_FINAL)
#define PER_TOKEN (1u << W_Q | 1u << W_K | 1u << W_V | 1u << W_G | 1u << W_B | 1u << W_W | 1u << W_H0)

static unsigned all_of(const double_problem *x) { return FORWARD | double_gradients(x); }

static double_result run_on(const double_problem *x, int threads) {
  double_call call = double_call_new(x, all_of(x), &width_contiguous);
  call.width.args.exec.threads = call.backward.exec.threads = threads;
  return double_call_run(x, &call);
}

/* Gates of key heads, and the parameters of the decay, are sums over tasks' parts. */
static double_problem summed(uint64_t seed, int64_t B, int64_t T) {
  width_case c = width_new(seed, B, T, 2, 6, 7, 5);
  width_make_key_gate(&c, W_G);
  width_make_key_gate(&c, W_B);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, seed);
  c.map = GDN2_HEADS_TILED;
  return double_new(&c, seed);
}

static void test_threads(void **state) {
  (void)state;
  double_problem x[3] = {summed(1, 9, 20), double_any(7), double_any(8)};
  for (int n = 0; n < 3; n++) {
    const double_result want = run_on(&x[n], 1);
    for (int threads = 2; threads <= 7; threads++)
      for (int again = 0; again < 2; again++) {
        const double_result got = run_on(&x[n], threads);
        double_expect_equal(&x[n], &got, &want);
      }
  }
}

static void expect_part(const double *all, const double *part, size_t at, size_t count) {
  if (all && part && count) assert_memory_equal(all + at, part, count * sizeof *all);
}

/* Sequence n of the problem alone. */
static double_problem part_of(const double_problem *x, int64_t n) {
  const width_case *c = &x->c;
  double_problem part = *x;
  part.c = width_sequence(c, n);
  part.d_o = x->d_o ? x->d_o + (c->cu ? c->cu[n] : n * c->T) * c->HV * c->V : NULL;
  part.dh_final = x->dh_final ? x->dh_final + n * c->HV * c->K * c->V : NULL;
  return part;
}

static void test_alone_and_among_others(void **state) {
  (void)state;
  for (uint64_t seed = 11; seed <= 22; seed++) {
    const double_problem x = double_any(seed);
    const double_result all = double_run(&x, FORWARD | PER_TOKEN);
    for (int64_t n = 0; n < x.c.N; n++) {
      const double_problem part = part_of(&x, n);
      const double_result alone = double_run(&part, FORWARD | PER_TOKEN);
      const tensor o = width_o_tensor(&part.c), h = width_h_tensor(&part.c);
      const int64_t start = x.c.cu ? x.c.cu[n] : n * x.c.T;
      expect_part(all.o, alone.o, (size_t)(start * o.shape[2] * o.shape[3]), tensor_count(&o));
      expect_part(all.h_final, alone.h_final, (size_t)n * tensor_count(&h), tensor_count(&h));
      for (int i = W_Q; i <= W_H0; i++) {
        const tensor t = double_tensor(&part, i);
        const int64_t at = i == W_H0 ? n * h.shape[1] * h.shape[2] * h.shape[3] : start * t.shape[2] * t.shape[3];
        expect_part(all.grad[i], alone.grad[i], (size_t)at, tensor_count(&t));
      }
    }
  }
}

/* Cut at any token, with the state handed on, the pieces have the bits of the whole: forward, and backward with dh handed back.
 */
static void test_pieces(void **state) {
  (void)state;
  const width_case c = width_new(30, 1, 23, 2, 2, 6, 5);
  const double_problem x = double_new(&c, 30);
  const double_result whole = double_run(&x, FORWARD | PER_TOKEN);
  for (int64_t cut = 0; cut <= 23; cut++) {
    double_problem head = x, tail = x;
    head.c.T = cut, tail.c.T = 23 - cut;
    for (int i = W_Q; i <= W_W; i++) tail.c.in[i] = x.c.in[i] + cut * 2 * (i == W_V || i == W_W ? 5 : 6);
    tail.d_o = x.d_o + cut * 2 * 5;
    tail.c.in[W_H0] = double_run(&head, DOUBLE_H_FINAL).h_final;
    const double_result second = double_run(&tail, FORWARD | PER_TOKEN);
    head.dh_final = second.grad[W_H0];
    const double_result first = double_run(&head, FORWARD | PER_TOKEN);
    const size_t row = 2 * 5, key = 2 * 6;
    expect_part(whole.o, first.o, 0, (size_t)cut * row);
    expect_part(whole.o, second.o, (size_t)cut * row, (size_t)(23 - cut) * row);
    expect_part(whole.h_final, second.h_final, 0, 2 * 5 * 6);
    expect_part(whole.grad[W_H0], first.grad[W_H0], 0, 2 * 5 * 6);
    for (int i = W_Q; i <= W_W; i++) {
      const size_t width = i == W_V || i == W_W ? row : key;
      expect_part(whole.grad[i], first.grad[i], 0, (size_t)cut * width);
      expect_part(whole.grad[i], second.grad[i], (size_t)cut * width, (size_t)(23 - cut) * width);
    }
  }
}

/* What comes later changes no output, and no gradient of a loss of earlier outputs. */
static void test_the_future_does_not_matter(void **state) {
  (void)state;
  const width_case c = width_new(31, 1, 22, 2, 2, 6, 5);
  for (int64_t P = 1; P < 22; P += 4) {
    double_problem x = double_new(&c, 31), y = x;
    x.dh_final = y.dh_final = NULL;
    for (int64_t n = P * 2 * 5; n < 22 * 2 * 5; n++) x.d_o[n] = 0;
    for (int i = W_Q; i <= W_W; i++) {
      width_own(&y.c, i);
      for (int64_t t = P; t < 22; t++) width_row(&y.c, i, 0, t, 1)[2] = -0.37;
    }
    const double_result a = double_run(&x, DOUBLE_O | PER_TOKEN), b = double_run(&y, DOUBLE_O | PER_TOKEN);
    expect_part(a.o, b.o, 0, (size_t)P * 10);
    for (int i = W_Q; i <= W_W; i++) {
      const int64_t width = i == W_V || i == W_W ? 10 : 12;
      expect_part(a.grad[i], b.grad[i], 0, (size_t)(P * width));
      for (int64_t n = P * width; n < 22 * width; n++) assert_true(a.grad[i][n] == 0 && b.grad[i][n] == 0);
    }
  }
}

/* ---- Workspace ---- */

/* Exactly the bytes that were told, full of NaN and at a guard page, are enough; one less is refused. */
static void test_exact_workspace(void **state) {
  (void)state;
  for (uint64_t seed = 40; seed <= 46; seed++)
    for (int threads = 1; threads <= 3; threads += 2) {
      const void *mark = test_mark();
      const double_problem x = seed == 40 ? summed(40, 3, 50) : double_any(seed);
      const double_result want = run_on(&x, 1);
      double_call call = double_call_new(&x, all_of(&x), &width_contiguous);
      gdn2_exec *const exec[] = {&call.width.args.exec, &call.backward.exec};
      for (int n = 0; n < 2; n++) {
        size_t bytes = 0;
        exec[n]->threads = threads;
        const gdn2_status status =
            n ? gdn2_backward_workspace(&call.backward, &bytes) : gdn2_forward_workspace(&call.width.args, &bytes);
        assert_int_equal(status, GDN2_OK);
        exec[n]->workspace = test_workspace(bytes);
        exec[n]->workspace_bytes = bytes - 1;
        assert_int_equal(n ? gdn2_backward(&call.backward) : gdn2_forward(&call.width.args), GDN2_ERR_WORKSPACE);
        exec[n]->workspace_bytes = bytes;
      }
      const double_result got = double_call_run(&x, &call);
      double_expect_equal(&x, &got, &want);
      test_release_to(mark);
    }
}

static size_t backward_bytes(int64_t T, unsigned wanted) {
  const width_case c = width_new(50, 1, T, 1, 1, 8, 8);
  const double_problem x = double_new(&c, 50);
  const double_call call = double_call_new(&x, wanted, &width_contiguous);
  size_t bytes = 0;
  assert_int_equal(gdn2_backward_workspace(&call.backward, &bytes), GDN2_OK);
  return bytes;
}

/* Two states for each of sqrt(T) tokens; none at all for gradients that need no state. */
static void test_memory_grows_with_the_root(void **state) {
  (void)state;
  const size_t matrix = 64 * sizeof(double), small = backward_bytes(100, 1u << W_Q), large = backward_bytes(10000, 1u << W_Q);
  assert_true(large - small > 170 * matrix && large - small < 200 * matrix);
  assert_int_equal(backward_bytes(10000, 1u << W_V | 1u << W_W | 1u << W_H0), backward_bytes(100, 1u << W_V));
}

/* Any distance of the states that are kept gives the same bits, and the bytes that were told are enough. */
static void test_checkpoints(void **state) {
  (void)state;
  const int64_t every[] = {1, 2, 3, 4, 100, INT64_MAX};
  for (uint64_t seed = 51; seed <= 54; seed++) {
    const double_problem x = seed == 51 ? summed(51, 2, 70) : double_any(seed);
    const double_result want = run_on(&x, 1);
    size_t most = 0;
    for (int n = 0; n < 6; n++) {
      size_t bytes = 0;
      double_call call = double_call_new(&x, double_gradients(&x), &width_contiguous);
      call.backward.checkpoint_every = every[n];
      assert_int_equal(gdn2_backward_workspace(&call.backward, &bytes), GDN2_OK);
      call.backward.exec.workspace = test_workspace(bytes);
      call.backward.exec.workspace_bytes = bytes;
      const double_result got = double_call_run(&x, &call);
      double_expect_equal(&x, &got, &want);
      most = bytes > most ? bytes : most;
    }
    if (seed == 51) assert_true(most > 70 * 7 * 5 * sizeof(double)); /* a state for each token of one segment */
  }
}

/* ---- Nothing to do ---- */

/* No token, no sequence, no head: states go through, sums are 0. */
static void test_empty(void **state) {
  (void)state;
  static const int64_t none[] = {0}, hollow[] = {0, 0, 0};
  for (int kind = 0; kind < 5; kind++) {
    width_case c = width_new(60, kind == 1 ? 0 : 1, kind == 0 || kind == 3 ? 0 : 4, kind == 4 ? 0 : 2, kind == 4 ? 0 : 4, 3, 5);
    width_make_raw_decay(&c, GDN2_DECAY_BOUNDED, 60);
    if (kind >= 2 && kind < 4) width_cut(&c, kind == 2 ? none : hollow, kind == 2 ? 0 : 2, 60);
    const double_problem x = double_new(&c, 60);
    const double_result r = run_on(&x, 2);
    const size_t states = width_count(&c, W_H0);
    assert_int_equal(states, kind == 1 || kind == 2 || kind == 4 ? 0 : kind == 3 ? 2 * 60 : 60);
    if (states) assert_memory_equal(r.h_final, x.c.in[W_H0], states * sizeof(double));
    if (states) assert_memory_equal(r.grad[W_H0], x.dh_final, states * sizeof(double));
    for (int i = W_Q; i < W_INPUTS; i++)
      for (size_t n = 0; i != W_H0 && n < width_count(&c, i); n++) assert_true(r.grad[i][n] == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_threads),         TEST(test_alone_and_among_others),
      TEST(test_pieces),          TEST(test_the_future_does_not_matter),
      TEST(test_exact_workspace), TEST(test_memory_grows_with_the_root),
      TEST(test_checkpoints),     TEST(test_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
