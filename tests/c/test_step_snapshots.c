/* Snapshots of a prefill: the states after every so many tokens, from which it can be taken up again. */
#include <math.h>

#include "step.h"
#include "test.h"

static double element(const gdn2_states *s, int64_t n, int64_t moment, int64_t h, int64_t k, int64_t v) {
  const int64_t at = n * s->stride[0] + moment * s->stride[1] + h * s->stride[2] + k * s->stride[3] + v * s->stride[4];
  uint16_t half;
  if (s->dtype == GDN2_F32) return (double)((const float *)s->data)[at];
  memcpy(&half, (const char *)s->data + 2 * at, 2);
  return width_decode(s->dtype, half);
}

/* Moments that hold numbers; no state of the tests has a NaN. */
static int64_t written(const width_case *c, const gdn2_states *s, int64_t moments) {
  int64_t count = 0;
  for (int64_t n = 0; n < c->B; n++)
    for (int64_t i = 0; i < moments; i++) count += !isnan(element(s, n, i, 0, 0, 0));
  return count;
}

/* Every moment of a sequence has the bits of h_final of a forward that ends there, rounded once; no other is written. */
static void expect_moments(const width_case *c, const gdn2_states *s, int64_t every) {
  int64_t expected = 0;
  for (int64_t n = 0; n < c->N; n++) {
    const width_case whole = width_sequence(c, n);
    const int64_t row = c->cu ? 0 : n, first = c->cu ? c->cu[n] / every : 0;
    for (int64_t i = 0; i < whole.T / every; i++, expected++) {
      const width_case part = step_tokens(&whole, 0, (i + 1) * every);
      const float *want = width_run(&part, GDN2_F32).h_final;
      for (int64_t h = 0; h < c->HV; h++)
        for (int64_t k = 0; k < c->K; k++)
          for (int64_t v = 0; v < c->V; v++, want++)
            assert_true(element(s, row, first + i, h, k, v) == width_round(s->dtype, (double)*want));
    }
  }
  assert_int_equal(written(c, s, c->T / every), expected);
}

static width_result run_with(const width_case *c, const gdn2_states *s, int64_t every, int threads) {
  width_call call = width_call_new(c, GDN2_F32, &width_contiguous);
  call.args.snapshots = *s;
  call.args.snapshot_every = every;
  call.args.exec.threads = threads;
  return width_call_run(c, &call);
}

/* Lengths that are and are not multiples; few heads for many threads, so that states are cut into panels; every type and layout.
 */
static void test_moments(void **state) {
  (void)state;
  const int64_t every[] = {16, 32, 48, 128}, lengths[] = {15, 16, 96, 100};
  for (int n = 0; n < 4; n++)
    for (int m = 0; m < 4; m++) {
      const void *mark = test_mark();
      const int64_t moments = lengths[m] / every[n];
      const width_case c = width_new(1100, 2, lengths[m], 1, 1 + n % 2, 19, 70);
      const gdn2_states s = width_snapshots_new(&c, moments, (gdn2_dtype)((n + m) % 3), m % 2);
      const width_result got = run_with(&c, &s, every[n], 1 + 7 * (m / 2)), plain = width_run(&c, GDN2_F32);
      width_expect_equal(&c, &got, &plain);
      expect_moments(&c, &s, every[n]);
      test_release_to(mark);
    }
}

/* Sequences of different length, which share the moments of one row; the last ends with the row. */
static void test_packed_sequences(void **state) {
  (void)state;
  static const int64_t cu[][6] = {
      {0, 20, 20, 90, 138, 140}, {0, 15, 31, 63, 95, 144}, {0, 16, 32, 48, 64, 80}, {0, 1, 17, 34, 52, 144}};
  for (int n = 0; n < 4; n++) {
    const void *mark = test_mark();
    width_case c = width_new(1110, 1, 144, 2, 4, 12, 20);
    width_cut(&c, cu[n], 5, 1111);
    const gdn2_states s = width_snapshots_new(&c, 9, GDN2_F32, n % 2);
    const width_result got = run_with(&c, &s, 16, 2), plain = width_run(&c, GDN2_F32);
    width_expect_equal(&c, &got, &plain);
    expect_moments(&c, &s, 16);
    test_release_to(mark);
  }
}

/* A prefix in common: a second prompt starts from a snapshot of the first, by the forward and by a step. */
static void test_prefix(void **state) {
  (void)state;
  const width_case c = width_new(1120, 1, 70, 2, 4, 24, 20);
  const gdn2_states s = width_snapshots_new(&c, 2, GDN2_F32, false);
  const width_result whole = run_with(&c, &s, 32, 1);
  width_case rest = step_tokens(&c, 64, 6);
  step_take_states(&rest, (const float *)s.data + c.HV * c.K * c.V);
  const width_result again = width_run(&rest, GDN2_F32);
  const tensor h = width_h_tensor(&c), o = width_o_tensor(&rest);
  expect_same_bits(&h, again.h_final, whole.h_final);
  expect_same_bits(&o, again.o, whole.o + 64 * c.HV * c.V);
  step_call call = step_call_new(&rest, GDN2_F32, &(step_how){.dtype = GDN2_F32});
  const int64_t second[1] = {2};
  call.args.history = s;
  call.args.history_length = 2;
  call.args.accepted = second;
  call.args.accepted_type = GDN2_I64;
  const width_result stepped = step_call_run(&rest, &call, &(step_how){.dtype = GDN2_F32});
  for (size_t i = 0; i < tensor_count(&h); i++) assert_true(fabsf(stepped.h_final[i] - whole.h_final[i]) < 1e-5f);
}

static void refused(const gdn2_forward_args *args, gdn2_status want, const char *name) {
  size_t bytes = 77;
  assert_int_equal(gdn2_forward(args), want);
  assert_non_null(strstr(gdn2_last_error(), name));
  assert_int_equal(gdn2_forward_workspace(args, &bytes), want);
  assert_int_equal(bytes, 77);
}

static void test_validation(void **state) {
  (void)state;
  const width_case c = width_new(1130, 2, 40, 1, 2, 7, 9);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  gdn2_forward_args *a = &call.args;
  const int64_t wrong[] = {0, -16, 1, 15, 17, 8};
  for (int n = 0; n < 6; n++) {
    a->snapshots = width_snapshots_new(&c, 2, GDN2_F32, false);
    a->snapshot_every = wrong[n];
    refused(a, GDN2_ERR_SHAPE, "snapshot_every");
  }
  a->snapshot_every = 16;
  a->snapshots.dtype = GDN2_F64;
  refused(a, GDN2_ERR_DTYPE, "snapshots");
  a->snapshots.dtype = GDN2_F32;
  a->snapshots.stride[1] = 5;
  refused(a, GDN2_ERR_STRIDE, "snapshots");
  a->snapshots.stride[1] = INT64_MAX / 2;
  refused(a, GDN2_ERR_STRIDE, "moment");
  a->snapshots.data = (char *)a->snapshots.data + 1;
  refused(a, GDN2_ERR_ARGUMENT, "snapshots");
  width_buffer_expect_untouched(&call.o);
  width_buffer_expect_untouched(&call.h_final);
  a->snapshots.data = NULL;
  assert_int_equal(gdn2_forward(a), GDN2_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_moments), TEST(test_packed_sequences), TEST(test_prefix), TEST(test_validation)};
  return TEST_RUN(tests);
}
