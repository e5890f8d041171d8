/* Decode in float64: against ref/, the bits of the float64 forward, pools, drafts, layouts, and what is refused. */
#include <math.h>

#include "double.h"
#include "test.h"

#define FORWARD (DOUBLE_O | DOUBLE_H_FINAL)

/* A float64 problem as a step on states of its own, and what the forward makes of it. */
typedef struct {
  double_problem x;
  double_call call;
  double_result want;
  size_t o_count, state_count; /* of all rows */
  double *o, *to;
  gdn2_step_args args;
} step_problem;

static step_problem step_of(const double_problem *x) {
  step_problem s = {.x = *x, .call = double_call_new(x, FORWARD, &width_contiguous)};
  s.want = double_call_run(x, &s.call);
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  s.o_count = tensor_count(&o), s.state_count = tensor_count(&h);
  s.o = test_doubles(s.o_count), s.to = test_doubles(s.state_count);
  s.args = (gdn2_step_args){.struct_size = sizeof s.args, .problem = s.call.width.args.problem};
  s.args.from = s.args.problem.h0;
  s.args.problem.h0 = (gdn2_input){.data = NULL};
  s.args.o = (gdn2_output){s.o, GDN2_F64, {0}};
  s.args.to = (gdn2_output){s.to, GDN2_F64, {0}};
  for (size_t i = 0; i < s.o_count; i++) s.o[i] = NAN;
  for (size_t i = 0; i < s.state_count; i++) s.to[i] = NAN;
  return s;
}

static void run(const gdn2_step_args *args) {
  if (gdn2_step(args) != GDN2_OK) fail_msg("%s", gdn2_last_error());
}

static void expect_bits(const char *what, const double *got, const double *want, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (memcmp(got + i, want + i, sizeof *got) != 0) fail_msg("%s[%zu] is %.17g, must be %.17g", what, i, got[i], want[i]);
}

static void test_every_option(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    const void *mark = test_mark();
    const double_problem x = double_any(seed);
    const step_problem s = step_of(&x);
    const tensor o = width_o_tensor(&x.c), h = width_h_tensor(&x.c);
    const width_truth want = width_oracle(&x.c);
    run(&s.args);
    double_expect_near(&o, s.o, want.o, 1e-13, 1e-2);
    double_expect_near(&h, s.to, want.h_final, 1e-13, 1e-2);
    expect_bits("o", s.o, s.want.o, s.o_count);
    expect_bits("to", s.to, s.want.h_final, s.state_count);
    test_release_to(mark);
  }
}

/* Wider than a panel of channels, and as wide as can be. */
static void test_sizes(void **state) {
  (void)state;
  const int64_t sizes[][2] = {{1, 1}, {5, 16}, {16, 17}, {33, 100}, {256, 256}, {7, 256}, {256, 3}};
  for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
    const void *mark = test_mark();
    const width_case c = width_new(30 + n, 2, 3, 1, 2, sizes[n][0], sizes[n][1]);
    const double_problem x = double_new(&c, 31 + n);
    step_problem s = step_of(&x);
    s.args.exec.threads = 1 + (int)(n % 2);
    run(&s.args);
    expect_bits("o", s.o, s.want.o, s.o_count);
    expect_bits("to", s.to, s.want.h_final, s.state_count);
    assert_true(fabs(s.want.o[0]) > 1e-6);
    test_release_to(mark);
  }
}

static step_problem plain(int64_t rows, int64_t T) {
  const width_case c = width_new(50, rows, T, 2, 4, 9, 20);
  const double_problem x = double_new(&c, 51);
  return step_of(&x);
}

/* In place, in a pool whose slots are in another order; a skipped row; a row that starts anew. */
static void test_pool(void **state) {
  (void)state;
  step_problem s = plain(3, 2);
  const size_t one = s.state_count / 3, row = s.o_count / 3;
  const int32_t slot[3] = {4, -1, 0};
  const uint8_t reset[3] = {0, 0, 1};
  double *pool = test_doubles(5 * one);
  const double *h0 = s.args.from.data;
  for (size_t i = 0; i < 5 * one; i++) pool[i] = 7;
  memcpy(pool + 4 * one, h0, one * sizeof *pool);
  s.args.slot = slot, s.args.slots = 5, s.args.slot_type = GDN2_I32, s.args.reset = reset;
  s.args.from.data = s.args.to.data = pool;
  run(&s.args);
  expect_bits("slot 4", pool + 4 * one, s.want.h_final, one);
  expect_bits("o of row 0", s.o, s.want.o, row);
  for (size_t i = one; i < 4 * one; i++) assert_true(pool[i] == 7);
  for (size_t i = row; i < 2 * row; i++) assert_true(s.o[i] == 0);
  const width_case c = width_new(50, 3, 2, 2, 4, 9, 20);
  double_problem fresh = double_new(&c, 51);
  fresh.c.in[W_H0] = NULL;
  const double_result zero = double_run(&fresh, FORWARD);
  expect_bits("slot 0", pool, zero.h_final + 2 * one, one);
  expect_bits("o of row 2", s.o + 2 * row, zero.o + 2 * row, row);
}

/* The state after each token, and to go on from one of them, in a V x K layout. */
static void test_drafts(void **state) {
  (void)state;
  step_problem s = plain(2, 4);
  const int64_t K = 9, V = 20, HV = 4;
  const size_t one = s.state_count / 2;
  double *each = test_doubles(2 * 4 * one);
  for (size_t i = 0; i < 8 * one; i++) each[i] = NAN;
  s.args.each = (gdn2_states){each, GDN2_F64, {4 * HV * K * V, HV * K * V, K * V, 1, K}};
  run(&s.args);
  for (int64_t j = 0; j < HV; j++)
    for (int64_t d = 0; d < K; d++)
      for (int64_t c = 0; c < V; c++) /* row 1, after its last token */
        assert_true(each[((1 * 4 + 3) * HV + j) * K * V + c * K + d] == s.want.h_final[((1 * HV + j) * K + d) * V + c]);
  /* The last two tokens once more, from the states after the first two. */
  const int64_t accepted[2] = {2, 2};
  double *again = test_doubles(s.o_count / 2);
  gdn2_problem *p = &s.args.problem;
  gdn2_input *const in[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w};
  p->T = 2;
  for (int i = 0; i < 6; i++) {
    const int64_t heads = i < 2 ? 2 : HV, width = i == 2 || i == 5 ? V : K;
    const int64_t step[4] = {4 * heads * width, heads * width, width, 1};
    memcpy(in[i]->stride, step, sizeof step);
    in[i]->data = (const double *)in[i]->data + 2 * heads * width;
  }
  s.args.history = s.args.each, s.args.history_length = 4;
  s.args.each = (gdn2_states){.data = NULL};
  s.args.accepted = accepted, s.args.accepted_type = GDN2_I64;
  s.args.o.data = again;
  for (size_t i = 0; i < s.state_count; i++) s.to[i] = NAN;
  run(&s.args);
  expect_bits("to", s.to, s.want.h_final, s.state_count);
  for (int64_t n = 0; n < 2; n++) expect_bits("o", again + n * 2 * HV * V, s.want.o + (n * 4 + 2) * HV * V, (size_t)(2 * HV * V));
}

/* Snapshots of the float64 forward: the states that its prefixes end with. */
static void test_snapshots(void **state) {
  (void)state;
  const width_case c = width_new(60, 2, 37, 1, 2, 6, 18);
  const double_problem x = double_new(&c, 61);
  double_call call = double_call_new(&x, FORWARD, &width_contiguous);
  const size_t one = 2 * 6 * 18;
  double *kept = test_doubles(2 * 2 * one);
  call.width.args.snapshots = (gdn2_states){kept, GDN2_F64, {0}};
  call.width.args.snapshot_every = 16;
  (void)double_call_run(&x, &call);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t moment = 0; moment < 2; moment++) {
      double_problem prefix = x;
      prefix.c.B = prefix.c.N = 1, prefix.c.T = 16 * (moment + 1);
      for (int i = 0; i < W_H0; i++)
        if (prefix.c.in[i]) prefix.c.in[i] += n * (int64_t)(width_count(&x.c, i) / 2);
      prefix.c.in[W_H0] += n * (int64_t)one;
      const double_result want = double_run(&prefix, FORWARD);
      expect_bits("snapshot", kept + (n * 2 + moment) * (int64_t)one, want.h_final, one);
    }
}

static void expect_refused(const gdn2_step_args *args, const char *name) {
  const gdn2_status got = gdn2_step(args);
  if (got != GDN2_ERR_DTYPE || strncmp(gdn2_last_error(), name, strlen(name)) != 0)
    fail_msg("%s: %s (%s)", name, gdn2_status_name(got), gdn2_last_error());
}

/* All of a call is float64 or nothing is. */
static void test_mixed_types(void **state) {
  (void)state;
  step_problem s = plain(1, 1);
  double each[4 * 9 * 20];
  gdn2_step_args args = s.args;
  args.from.dtype = GDN2_F32;
  expect_refused(&args, "from: ");
  args = s.args, args.to.dtype = GDN2_BF16;
  expect_refused(&args, "to: ");
  args = s.args, args.o.dtype = GDN2_F32;
  expect_refused(&args, "o: ");
  args = s.args, args.each = (gdn2_states){each, GDN2_F32, {0}};
  expect_refused(&args, "each: ");
  args = s.args, args.problem.k.dtype = GDN2_F32;
  expect_refused(&args, "k: ");
  for (size_t i = 0; i < s.state_count; i++) assert_true(isnan(s.to[i]));
  for (size_t i = 0; i < s.o_count; i++) assert_true(isnan(s.o[i]));
}

/* The comparison sees a state that was not decayed. */
static void test_planted_fault(void **state) {
  (void)state;
  step_problem s = plain(1, 2);
  s.args.problem.g = (gdn2_input){.data = NULL};
  run(&s.args);
  double error = 0, size = 0;
  for (size_t i = 0; i < s.state_count; i++) {
    error += (s.to[i] - s.want.h_final[i]) * (s.to[i] - s.want.h_final[i]);
    size += s.want.h_final[i] * s.want.h_final[i];
  }
  assert_true(error > 1e-4 * size && size > 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_every_option), TEST(test_sizes),       TEST(test_pool),          TEST(test_drafts),
      TEST(test_snapshots),    TEST(test_mixed_types), TEST(test_planted_fault),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
