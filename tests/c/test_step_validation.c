/* What the door refuses of a step: each wrong field gives its status, a sentence that names it, and no write to any output. */
#include "step.h"
#include "test.h"

static const int64_t slots[3] = {4, -1, 2};
static const step_how how = {.slot = slots, .slot_type = GDN2_I32, .slots = 6};
static width_case c;
static step_call call;
static gdn2_step_args *a;
static float *each;

static void fresh(void) {
  c = width_new(1200, 3, 2, 2, 4, 7, 9);
  call = step_call_new(&c, GDN2_F32, &how);
  a = &call.args;
  each = test_floats(width_count(&c, W_H0) * 2);
  a->each.data = each;
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

static void refused(gdn2_status want, const char *name) {
  const size_t count = call.from.span;
  float *before = test_floats(count);
  memcpy(before, call.from.low, count * sizeof *before);
  const gdn2_status got = gdn2_step(a);
  if (got != want) fail_msg("wrong %s: %s, must be %s", name, gdn2_status_name(got), gdn2_status_name(want));
  if (!strstr(gdn2_last_error(), name)) fail_msg("the sentence does not name %s: \"%s\"", name, gdn2_last_error());
  if (strlen(gdn2_last_error()) < strlen(name) + 10) fail_msg("the sentence says too little: \"%s\"", gdn2_last_error());
  width_buffer_expect_untouched(&call.inputs.o);
  assert_memory_equal(before, call.from.low, count * sizeof *before);
  const uint32_t poison = TEST_POISON;
  for (size_t i = 0; i < width_count(&c, W_H0) * 2; i++) assert_memory_equal(each + i, &poison, sizeof poison);
  fresh();
}

static void test_valid(void **state) {
  (void)state;
  const width_result got = step_call_run(&c, &call, &how);
  const width_case row = width_sequence(&c, 0);
  const width_truth want = width_oracle(&row);
  const width_result first = {.o = got.o, .h_final = got.h_final};
  width_expect_right(&row, &first, &want, 1e-6);
}

static void set_slot(int n, int32_t value) { ((int32_t *)call.slot)[n] = value; }

static void test_slots(void **state) {
  (void)state;
  const int32_t outside[] = {-2, 6, 7, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 5; i++)
    for (int n = 0; n < 3; n++) {
      set_slot(n, outside[i]);
      refused(GDN2_ERR_ARGUMENT, "slot");
    }
  set_slot(2, 4);
  refused(GDN2_ERR_ARGUMENT, "slot[2] is 4");
  set_slot(1, 4);
  refused(GDN2_ERR_ARGUMENT, "slot[1] is 4");
  set_slot(0, -1), set_slot(2, -1);
  assert_int_equal(gdn2_step(a), GDN2_OK);
  fresh();
  a->slot_type = (gdn2_index)2;
  refused(GDN2_ERR_ARGUMENT, "slot_type");
  a->slot = (const char *)a->slot + 1;
  refused(GDN2_ERR_ARGUMENT, "slot");
  a->slots = -1;
  refused(GDN2_ERR_SHAPE, "slots");
  a->slot = NULL, a->slots = 2;
  refused(GDN2_ERR_SHAPE, "slots");
  const int64_t wide[3] = {((int64_t)1 << 32) + 2, -1, 0}, below[3] = {2, INT64_MIN, 0};
  a->slot_type = GDN2_I64, a->slot = wide;
  refused(GDN2_ERR_ARGUMENT, "slot[0]");
  a->slot_type = GDN2_I64, a->slot = below;
  refused(GDN2_ERR_ARGUMENT, "slot[1]");
}

/* Two of many rows in one slot, near and far apart, in pools of every size: by pairs and by windows. */
static void test_twice_among_many(void **state) {
  (void)state;
  enum { ROWS = 300 };
  static int64_t many[ROWS];
  const int64_t steps[] = {1, 7, 1000, 300000}, twins[][2] = {{0, 299}, {17, 18}, {150, 298}};
  gdn2_step_args args = {.struct_size = sizeof args, .problem = {.B = ROWS, .T = 0, .H = 1, .K = 1, .V = 1}, .slot = many};
  args.slot_type = GDN2_I64;
  for (int i = 0; i < 4; i++)
    for (int n = 0; n < 4; n++) {
      for (int64_t row = 0; row < ROWS; row++) many[row] = (row * 77 % ROWS) * steps[i];
      args.slots = ROWS * steps[i];
      if (n < 3) many[twins[n][0]] = many[twins[n][1]];
      const gdn2_status got = gdn2_step(&args);
      assert_int_equal(got, n < 3 ? GDN2_ERR_ARGUMENT : GDN2_OK);
    }
}

static void test_states(void **state) {
  (void)state;
  a->from.dtype = GDN2_F64;
  refused(GDN2_ERR_DTYPE, "from");
  a->to.dtype = (gdn2_dtype)9;
  refused(GDN2_ERR_DTYPE, "to");
  a->to.dtype = GDN2_BF16;
  refused(GDN2_ERR_STRIDE, "to begins where from does");
  a->to.stride[2] = 1, a->to.stride[3] = 7;
  refused(GDN2_ERR_STRIDE, "to");
  a->from.data = NULL, a->to.stride[0] = 5;
  refused(GDN2_ERR_STRIDE, "to");
  a->from.data = (const char *)a->from.data + 2;
  refused(GDN2_ERR_ARGUMENT, "from");
  a->to.stride[0] = INT64_MAX / 2, a->from.data = NULL;
  refused(GDN2_ERR_STRIDE, "to");
  a->slots = INT64_MAX / 4, a->slot = NULL;
  memset(a->from.stride, 0, sizeof a->from.stride);
  refused(GDN2_ERR_STRIDE, "from");
  a->each.dtype = GDN2_F64;
  refused(GDN2_ERR_DTYPE, "each");
  a->each.stride[1] = 1;
  refused(GDN2_ERR_STRIDE, "each");
  a->each.data = (char *)a->each.data + 1;
  refused(GDN2_ERR_ARGUMENT, "each");
}

static void test_drafts(void **state) {
  (void)state;
  static const int64_t good[3] = {2, 99, 0}, large[3] = {2, 0, 3}, negative[3] = {-1, 0, 0};
  const int64_t *const wrong[] = {large, negative};
  for (int n = 0; n < 2; n++) {
    a->accepted = wrong[n], a->accepted_type = GDN2_I64;
    a->history = a->each, a->history_length = 2;
    refused(GDN2_ERR_ARGUMENT, "accepted");
  }
  a->accepted = good, a->accepted_type = GDN2_I64, a->history_length = 2;
  refused(GDN2_ERR_ARGUMENT, "history");
  a->accepted = good, a->accepted_type = (gdn2_index)-1;
  refused(GDN2_ERR_ARGUMENT, "accepted_type");
  a->history_length = -1;
  refused(GDN2_ERR_SHAPE, "history_length");
  a->history = a->each, a->history.dtype = GDN2_F16, a->history_length = 2;
  refused(GDN2_ERR_STRIDE, "each begins where history does");
  a->drafts_by_slot = 2;
  refused(GDN2_ERR_ARGUMENT, "drafts_by_slot");
  a->accepted = good, a->accepted_type = GDN2_I64;
  a->history = (gdn2_states){.data = test_floats(width_count(&c, W_H0) * 2)}, a->history_length = 2;
  memset(a->history.data, 0, width_count(&c, W_H0) * 2 * sizeof(float));
  assert_int_equal(gdn2_step(a), GDN2_OK); /* 99 is that of a row that is skipped */
}

static void test_problem(void **state) {
  (void)state;
  assert_int_equal(gdn2_step(NULL), GDN2_ERR_ARGUMENT);
  a->struct_size--;
  refused(GDN2_ERR_ARGUMENT, "struct_size");
  a->problem.h0.data = each;
  refused(GDN2_ERR_ARGUMENT, "h0");
  a->problem.q.dtype = GDN2_F64; /* and nothing else */
  refused(GDN2_ERR_DTYPE, "k");
  a->problem.K = 257;
  refused(GDN2_ERR_SHAPE, "K");
  a->problem.T = -1;
  refused(GDN2_ERR_SHAPE, "T");
  a->problem.HV = 3;
  refused(GDN2_ERR_SHAPE, "HV");
  a->problem.k.data = NULL;
  refused(GDN2_ERR_ARGUMENT, "k");
  a->o.stride[3] = 2, a->o.stride[2] = 100, a->o.stride[1] = 1000, a->o.stride[0] = 10000;
  refused(GDN2_ERR_STRIDE, "o");
  a->exec.threads = -1;
  refused(GDN2_ERR_ARGUMENT, "exec.threads");
  a->exec.isa = (gdn2_isa)77;
  refused(GDN2_ERR_ISA, "exec.isa");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_valid, set_up, test_release),
      cmocka_unit_test_setup_teardown(test_slots, set_up, test_release),
      cmocka_unit_test_setup_teardown(test_twice_among_many, set_up, test_release),
      cmocka_unit_test_setup_teardown(test_states, set_up, test_release),
      cmocka_unit_test_setup_teardown(test_drafts, set_up, test_release),
      cmocka_unit_test_setup_teardown(test_problem, set_up, test_release),
  };
  return TEST_RUN(tests);
}
