/* Sequences of different length in one row: cu_seqlens. Each has the bits of a call of its own, whatever stands around it. */
#include <math.h>

#include "test.h"
#include "width.h"

static const gdn2_index types[] = {GDN2_I32, GDN2_I64};

static width_case packed(uint64_t seed, int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V, const int64_t *cu, int64_t N) {
  width_case c = width_new(seed, 1, T, H, HV, K, V);
  width_cut(&c, cu, N, seed);
  return c;
}

/* Every sequence has the bits of a call of its own; rows of no sequence are 0. */
static void expect_separate(const width_case *c, const width_result *got) {
  for (int64_t n = 0; n < c->N; n++) {
    const void *mark = test_mark();
    const width_case part = width_sequence(c, n);
    const width_result alone = width_run(&part, got->dtype);
    width_expect_equal_part(c, got, &part, &alone, n);
    test_release_to(mark);
  }
  for (int64_t i = c->cu[c->N] * c->HV * c->V; i < c->T * c->HV * c->V; i++)
    if (!(got->o[i] == 0)) fail_msg("o: element %ld belongs to no sequence, but is %.9g", (long)i, (double)got->o[i]);
}

static void expect_right_and_separate(width_case *c) {
  const width_truth want = width_oracle(c);
  for (int type = 0; type < 2; type++) {
    c->cu_type = types[type];
    const width_result got = width_run(c, GDN2_F32);
    width_expect_right(c, &got, &want, 1e-6);
    expect_separate(c, &got);
  }
}

/* ---- Lengths ---- */

static void test_short_sequences(void **state) {
  (void)state;
  static const int64_t below_a_chunk[] = {0, 57, 59, 64}, ones[] = {0, 1, 2, 3}, mixed[] = {0, 16, 33, 34, 66, 97, 100};
  width_case a = packed(1, 64, 2, 4, 17, 12, below_a_chunk, 3), b = packed(2, 3, 2, 2, 8, 8, ones, 3);
  width_case c = packed(3, 100, 1, 3, 33, 20, mixed, 6);
  expect_right_and_separate(&a);
  expect_right_and_separate(&b);
  expect_right_and_separate(&c);
}

static void test_many_short_sequences(void **state) {
  (void)state;
  int64_t cu[301] = {0};
  for (int n = 0; n < 300; n++) cu[n + 1] = cu[n] + 1 + n * 7 % 3;
  width_case c = packed(4, cu[300], 1, 2, 9, 7, cu, 300);
  expect_right_and_separate(&c);
}

/* The tokens after the last offset belong to nobody, and NaN in them is not read. */
static void test_tokens_of_no_sequence(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 20, 41};
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    width_case c = packed(5, 60, 2, 6, 11, 9, cu, 2);
    width_set_dtypes(&c, (gdn2_dtype)type);
    for (int i = W_Q; i <= W_W; i++) {
      const tensor t = width_tensor(&c, i);
      for (int64_t x = 41 * t.shape[2] * t.shape[3]; x < (int64_t)width_count(&c, i); x++) c.in[i][x] = NAN;
    }
    const width_result got = width_run(&c, (gdn2_dtype)type);
    expect_separate(&c, &got);
    for (int64_t i = 41 * c.HV * c.V; got.bits && i < 60 * c.HV * c.V; i++) assert_int_equal(got.bits[i], 0);
    assert_true(isfinite(got.h_final[0]));
  }
}

/* ---- Empty ones ---- */

static void expect_states(const width_case *c, const width_result *got, int64_t n) {
  const int64_t count = c->HV * c->K * c->V;
  for (int64_t i = n * count; i < (n + 1) * count; i++)
    if (!((double)got->h_final[i] == (c->in[W_H0] ? c->in[W_H0][i] : 0)))
      fail_msg("sequence %ld is empty: its state must be h0 or 0, not %.9g", (long)n, (double)got->h_final[i]);
}

static void test_empty_sequences(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 0, 5, 5, 9, 9}, none[] = {0, 0, 0};
  for (int with_h0 = 0; with_h0 < 2; with_h0++)
    for (int type = 0; type < 2; type++) {
      width_case c = packed(6, 9, 2, 4, 7, 6, cu, 5), empty = packed(7, 0, 2, 4, 7, 6, none, 2);
      if (!with_h0) c.in[W_H0] = empty.in[W_H0] = NULL;
      c.cu_type = empty.cu_type = types[type];
      const width_result got = width_run(&c, GDN2_F32), nothing = width_run(&empty, GDN2_F32);
      const width_truth want = width_oracle(&c);
      width_expect_right(&c, &got, &want, 1e-6);
      expect_separate(&c, &got);
      for (int64_t n = 0; n < 5; n += 2) expect_states(&c, &got, n);
      for (int64_t n = 0; n < 2; n++) expect_states(&empty, &nothing, n);
    }
}

/* No sequence at all: every row of o is cleared, nothing else happens. */
static void test_no_sequence(void **state) {
  (void)state;
  static const int64_t cu[] = {0};
  for (int64_t T = 0; T < 20; T += 19)
    for (int type = 0; type < 2; type++) {
      width_case c = packed(8, T, 2, 4, 7, 6, cu, 0);
      c.cu_type = types[type];
      const width_result got = width_run(&c, GDN2_F32);
      expect_separate(&c, &got);
      c.in[W_H0] = NULL;
      const width_result fresh = width_run(&c, GDN2_F16);
      expect_separate(&c, &fresh);
    }
}

/* Without cu_seqlens, one row of the batch is one sequence, and N may say so. */
static void test_batch_is_cut_evenly(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 23, 46, 69};
  const width_case c = width_new(9, 3, 23, 2, 4, 10, 8);
  width_case flat = c;
  flat.B = 1, flat.T = 69, flat.N = 3, flat.cu = cu;
  const width_result want = width_run(&c, GDN2_F32), got = width_run(&flat, GDN2_F32);
  width_expect_equal(&c, &got, &want);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  call.args.problem.N = 3;
  const width_result named = width_call_run(&c, &call);
  width_expect_equal(&c, &named, &want);
}

/* ---- Neighbours ---- */

static const int64_t three[] = {0, 18, 37, 70};

/* NaN in two sequences, their states too: the third keeps its bits; with other finite numbers there, too. */
static void test_neighbours_do_not_matter(void **state) {
  (void)state;
  for (int kept = 0; kept < 3; kept++)
    for (int poison = 0; poison < 2; poison++) {
      width_case c = packed(10, 70, 2, 4, 20, 17, three, 3);
      const width_result want = width_run(&c, GDN2_F32);
      const width_case part = width_sequence(&c, kept);
      const width_result alone = width_run(&part, GDN2_F32);
      for (int i = W_Q; i <= W_H0; i++) {
        const int64_t row = (int64_t)width_count(&c, i) / (i == W_H0 ? 3 : 70);
        const int64_t from = (i == W_H0 ? kept : three[kept]) * row, to = (i == W_H0 ? kept + 1 : three[kept + 1]) * row;
        for (int64_t x = 0; x < (int64_t)width_count(&c, i); x++)
          if (x < from || x >= to) c.in[i][x] = poison ? NAN : c.in[i][x] * 0.5;
      }
      const width_result got = width_run(&c, GDN2_F32);
      width_expect_equal_part(&c, &got, &part, &alone, kept);
      const int64_t other = kept == 0 ? 1 : 0, first = three[other] * c.HV * c.V;
      assert_true(poison ? isnan(got.o[first]) : got.o[first] != want.o[first]);
    }
}

/* A packed document minus the same document alone is exactly 0; what happens in the first does not reach the second. */
static void test_documents_do_not_leak(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 31, 64};
  width_case c = packed(11, 64, 2, 2, 32, 32, cu, 2);
  c.in[W_H0] = NULL;
  const width_case second = width_sequence(&c, 1);
  const width_result before = width_run(&c, GDN2_BF16), alone = width_run(&second, GDN2_BF16);
  width_expect_equal_part(&c, &before, &second, &alone, 1);
  width_row(&c, W_V, 0, 30, 0)[0] += 100;
  const width_result after = width_run(&c, GDN2_BF16);
  width_expect_equal_part(&c, &after, &second, &alone, 1);
  /* One document of all tokens does leak: the comparison sees it. */
  width_case joined = c;
  joined.cu = NULL, joined.N = 1;
  const width_result leaked = width_run(&joined, GDN2_BF16);
  assert_true(memcmp(leaked.bits + 31 * c.HV * c.V, alone.bits, (size_t)(33 * c.HV * c.V) * 2) != 0);
}

/* An absent h0 has the bits of zeros, and is not what an h0 gives. */
static void test_fresh_and_resumed(void **state) {
  (void)state;
  width_case c = packed(12, 70, 2, 4, 20, 17, three, 3);
  const width_result resumed = width_run(&c, GDN2_F32);
  width_case fresh = c;
  fresh.in[W_H0] = NULL;
  width_fill(&c, W_H0, 0);
  const width_result zeros = width_run(&c, GDN2_F32), absent = width_run(&fresh, GDN2_F32);
  width_expect_equal(&c, &absent, &zeros);
  assert_true(memcmp(resumed.h_final, zeros.h_final, width_count(&c, W_H0) * sizeof(float)) != 0);
}

/* A sequence cut into two calls at a multiple of 16 tokens, the state handed on, and h_final in place of h0. */
static void test_cut_in_two_calls(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 48, 48 + 32}, heads[] = {0, 32, 32 + 16}, tails[] = {0, 16, 16 + 16};
  const width_case c = packed(13, 80, 2, 4, 20, 17, cu, 2);
  const width_result want = width_run(&c, GDN2_F32);
  float *h = test_floats(width_count(&c, W_H0));
  for (size_t i = 0; i < width_count(&c, W_H0); i++) h[i] = (float)c.in[W_H0][i];
  for (int piece = 0; piece < 2; piece++) {
    width_case p = c;
    p.cu = piece ? tails : heads;
    p.T = p.cu[2];
    for (int i = W_Q; i <= W_W; i++) {
      p.in[i] = test_doubles(width_count(&p, i));
      const size_t row = width_count(&c, i) / 80;
      for (int n = 0; n < 2; n++)
        memcpy(p.in[i] + (size_t)p.cu[n] * row, c.in[i] + (size_t)(cu[n] + (piece ? heads[n + 1] - heads[n] : 0)) * row,
               (size_t)(p.cu[n + 1] - p.cu[n]) * row * sizeof(double));
    }
    width_call call = width_call_new(&p, GDN2_F32, &width_contiguous);
    call.args.problem.h0.data = call.args.h_final.data = h;
    assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
  }
  const tensor t = width_h_tensor(&c);
  expect_same_bits(&t, h, want.h_final);
}

/* ---- Offsets that change ---- */

/* A thousand calls with the same buffer of offsets at the same address, its contents new each time: results follow contents,
 * which two of five are asked for. */
static void test_offsets_are_read_each_time(void **state) {
  (void)state;
  enum { T = 24, N = 4 };
  rng r = {14};
  int64_t cu[N + 1] = {0};
  width_case c = packed(14, T, 1, 2, 4, 4, cu, N);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  const tensor o = width_o_tensor(&c), h = width_h_tensor(&c);
  test_unlock(call.cu);
  int changes = 0;
  for (int round = 0; round < 1000; round++) {
    const void *mark = test_mark();
    for (int n = 1; n < N; n++) cu[n] = (int64_t)(rng_next(&r) % (T + 1));
    for (int n = 1; n < N; n++)
      for (int m = n + 1; m < N; m++)
        if (cu[m] < cu[n]) {
          const int64_t x = cu[n];
          cu[n] = cu[m];
          cu[m] = x;
        }
    cu[N] = cu[N - 1] + (int64_t)(rng_next(&r) % (uint64_t)(T + 1 - cu[N - 1]));
    changes += cu[1] != ((int32_t *)call.cu)[1];
    for (int n = 0; n <= N; n++) ((int32_t *)call.cu)[n] = (int32_t)cu[n];
    assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
    width_result got = {GDN2_F32, test_floats(tensor_count(&o)), NULL, test_floats(tensor_count(&h))};
    width_buffer_load(&call.o, got.o, NULL);
    width_buffer_load(&call.h_final, got.h_final, NULL);
    if (round % 5 == 0) expect_separate(&c, &got);
    if (round % 5 == 1) {
      const width_truth want = width_oracle(&c);
      expect_close_to_unit(&h, got.h_final, want.h_final, 1e-6, 1e-3);
      expect_close_to_unit(&o, got.o, want.o, 1e-6, 1e-3);
    }
    test_release_to(mark);
  }
  assert_true(changes > 800);
}

/* ---- Many ---- */

/* 70000 sequences of one token. Without gates, S = h0 + k v^T and o = K^-1/2 S^T q. */
static void test_seventy_thousand(void **state) {
  (void)state;
  enum { N = 70000, D = 8 };
  int64_t *cu = (int64_t *)(void *)test_doubles(N + 1);
  for (int64_t n = 0; n <= N; n++) cu[n] = n;
  width_case c = {.B = 1, .T = N, .H = 1, .HV = 1, .K = D, .V = D, .N = N, .cu = cu};
  for (int i = W_Q; i <= W_V; i++) width_fill_normal(&c, i, 15, 1);
  width_fill_normal(&c, W_H0, 15, 1);
  const width_result got = width_run(&c, GDN2_F32);
  const tensor o = width_o_tensor(&c), h = width_h_tensor(&c);
  const width_truth want = {test_doubles(tensor_count(&o)), test_doubles(tensor_count(&h))};
  for (int64_t n = 0; n < N; n++)
    for (int64_t e = 0; e < D; e++) {
      double sum = 0;
      for (int64_t d = 0; d < D; d++) {
        const int64_t at = (n * D + d) * D + e;
        want.h_final[at] = c.in[W_H0][at] + c.in[W_K][n * D + d] * c.in[W_V][n * D + e];
        sum += c.in[W_Q][n * D + d] * want.h_final[at];
      }
      want.o[n * D + e] = sum / sqrt(D);
    }
  width_expect_right(&c, &got, &want, 1e-6);
}

/* 3000 sequences of 0 to 2 tokens, 32 heads. */
static void test_many_heads(void **state) {
  (void)state;
  const int64_t N = 3000;
  int64_t *cu = (int64_t *)(void *)test_doubles((size_t)N + 1);
  cu[0] = 0;
  for (int64_t n = 0; n < N; n++) cu[n + 1] = cu[n] + n * 11 % 3;
  width_case c = packed(16, cu[N], 4, 32, 4, 6, cu, N);
  c.cu_type = GDN2_I64;
  const width_truth want = width_oracle(&c);
  const width_result got = width_run(&c, GDN2_F32);
  width_expect_right(&c, &got, &want, 1e-6);
}

/* Bits do not depend on the number of threads, of which there may be more than sequences and heads. */
static void test_threads(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 1, 1, 40, 57, 90};
  const width_case c = packed(17, 95, 1, 3, 24, 24, cu, 5);
  const width_result want = width_run_as(&c, GDN2_F16, &width_contiguous, (gdn2_exec){.threads = 1});
  for (int threads = 2; threads <= 20; threads += 3) {
    const width_result got = width_run_as(&c, GDN2_F16, &width_contiguous, (gdn2_exec){.threads = threads});
    width_expect_equal(&c, &got, &want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_short_sequences),
      TEST(test_many_short_sequences),
      TEST(test_tokens_of_no_sequence),
      TEST(test_empty_sequences),
      TEST(test_no_sequence),
      TEST(test_batch_is_cut_evenly),
      TEST(test_neighbours_do_not_matter),
      TEST(test_documents_do_not_leak),
      TEST(test_fresh_and_resumed),
      TEST(test_cut_in_two_calls),
      TEST(test_offsets_are_read_each_time),
      TEST(test_seventy_thousand),
      TEST(test_many_heads),
      TEST(test_threads),
  };
  return TEST_RUN(tests);
}
