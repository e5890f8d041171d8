/* Outputs that lie in other tensors, or in what else a call reads, are refused, with a sentence that names both, and nothing is
 * written; tensors that lie between each other's rows, and states in place, are taken. */
#include "test.h"

enum { B = 2, T = 3, H = 2, K = 4, V = 6, TOKENS = B * T * H, STATES = B * H * K * V, ROOM = 2 * STATES };

/* One buffer; tensor n of a call begins at place[n], and those that the test does not move are far from each other. */
enum { Q, KEY, VALUE, GATE, H0, OUT, LAST, DO, DQ, DK, DV, DH0, PLACES };
static float memory[PLACES * ROOM];
static float *place[PLACES];

static void fresh(void) {
  for (int i = 0; i < PLACES * ROOM; i++) memory[i] = (float)(i % 17) / 16 - 0.5F;
  for (int n = 0; n < PLACES; n++) place[n] = memory + n * ROOM;
  for (int i = 0; i < ROOM; i++) place[GATE][i] = -1;
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

static gdn2_problem problem(void) {
  return (gdn2_problem){.B = B,
                        .T = T,
                        .H = H,
                        .K = K,
                        .V = V,
                        .q.data = place[Q],
                        .k.data = place[KEY],
                        .v.data = place[VALUE],
                        .g.data = place[GATE],
                        .h0.data = place[H0]};
}

static gdn2_forward_args forward(void) {
  return (gdn2_forward_args){
      .struct_size = sizeof(gdn2_forward_args), .problem = problem(), .o.data = place[OUT], .h_final.data = place[LAST]};
}

static gdn2_backward_args backward(void) {
  return (gdn2_backward_args){.struct_size = sizeof(gdn2_backward_args),
                              .problem = problem(),
                              .d_o.data = place[DO],
                              .dq.data = place[DQ],
                              .dk.data = place[DK],
                              .dv.data = place[DV],
                              .dh0.data = place[DH0]};
}

static gdn2_step_args step(void) {
  gdn2_step_args args = {.struct_size = sizeof args, .problem = problem(), .o.data = place[OUT]};
  args.problem.h0.data = NULL;
  args.from.data = place[H0];
  args.to.data = place[LAST];
  return args;
}

static gdn2_conv_forward_args conv(void) {
  return (gdn2_conv_forward_args){
      .struct_size = sizeof(gdn2_conv_forward_args),
      .problem = {.B = B, .T = T, .D = K, .W = 3, .x.data = place[Q], .weight.data = place[KEY], .state.data = place[H0]},
      .y.data = place[OUT],
      .state_final.data = place[LAST]};
}

static gdn2_norm_forward_args norm(void) {
  return (gdn2_norm_forward_args){.struct_size = sizeof(gdn2_norm_forward_args),
                                  .problem = {.B = B, .T = T, .H = H, .D = K, .x.data = place[Q], .z.data = place[KEY]},
                                  .y.data = place[OUT]};
}

static gdn2_norm_backward_args norm_backward(void) {
  return (gdn2_norm_backward_args){.struct_size = sizeof(gdn2_norm_backward_args),
                                   .problem = {.B = B, .T = T, .H = H, .D = K, .x.data = place[Q], .z.data = place[KEY]},
                                   .dy.data = place[DO],
                                   .dx.data = place[DQ],
                                   .dz.data = place[DK]};
}

/* The call failed, its sentence has these words, and the whole buffer is as it was. */
#define REFUSED(call, want, words)                                                                                               \
  do {                                                                                                                           \
    static float before[PLACES * ROOM];                                                                                          \
    memcpy(before, memory, sizeof before);                                                                                       \
    assert_int_equal(call, want);                                                                                                \
    if (!strstr(gdn2_last_error(), words)) fail_msg("%s: \"%s\"", words, gdn2_last_error());                                     \
    assert_memory_equal(before, memory, sizeof before);                                                                          \
    fresh();                                                                                                                     \
  } while (0)

static void refuse_forward(const char *words) {
  const gdn2_forward_args args = forward();
  REFUSED(gdn2_forward(&args), GDN2_ERR_ARGUMENT, words);
}

static void refuse_backward(const char *words) {
  const gdn2_backward_args args = backward();
  REFUSED(gdn2_backward(&args), GDN2_ERR_ARGUMENT, words);
}

static void refuse_step(const char *words) {
  const gdn2_step_args args = step();
  REFUSED(gdn2_step(&args), GDN2_ERR_ARGUMENT, words);
}

static void refuse_conv(const char *words) {
  const gdn2_conv_forward_args args = conv();
  REFUSED(gdn2_conv_forward(&args), GDN2_ERR_ARGUMENT, words);
}

static void refuse_norm(const char *words) {
  const gdn2_norm_forward_args args = norm();
  REFUSED(gdn2_norm_forward(&args), GDN2_ERR_ARGUMENT, words);
}

/* Every distance at which the two begin or end inside each other. */
static void test_every_distance(void **state) {
  (void)state;
  for (int shift = 1 - TOKENS * V; shift < TOKENS * K; shift++) {
    place[OUT] = place[KEY] + shift;
    refuse_forward("overlaps k at");
  }
  for (int side = 0; side < 2; side++) {
    place[OUT] = place[KEY] + (side ? TOKENS * K : -TOKENS * V);
    const gdn2_forward_args args = forward();
    assert_int_equal(gdn2_forward(&args), GDN2_OK);
    fresh();
  }
}

static void test_pairs(void **state) {
  (void)state;
  static const struct {
    int moved, onto;
    void (*refuse)(const char *words);
    const char *words;
  } pairs[] = {
      {OUT, Q, refuse_forward, "o: data is"},
      {OUT, VALUE, refuse_forward, "overlaps v at"},
      {OUT, GATE, refuse_forward, "overlaps g at"},
      {OUT, H0, refuse_forward, "overlaps h0 at"},
      {LAST, OUT, refuse_forward, "h_final: data is"},
      {LAST, VALUE, refuse_forward, "overlaps v at"},
      {DQ, Q, refuse_backward, "overlaps q at"},
      {DV, DO, refuse_backward, "overlaps d_o at"},
      {DK, DQ, refuse_backward, "dk: data is"},
      {DH0, H0, refuse_backward, "overlaps h0 at"},
      {OUT, VALUE, refuse_step, "overlaps v at"},
      {OUT, H0, refuse_step, "overlaps from at"},
      {LAST, KEY, refuse_step, "to: data is"},
      {OUT, LAST, refuse_step, "overlaps to at"},
      {OUT, Q, refuse_conv, "y: data is"},
      {LAST, KEY, refuse_conv, "overlaps weight at"},
      {LAST, OUT, refuse_conv, "state_final: data is"},
  };
  for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++) {
    place[pairs[n].moved] = place[pairs[n].onto];
    pairs[n].refuse(pairs[n].words);
  }
}

/* Reversed in time, so that the first element is not the lowest. */
static void test_reversed(void **state) {
  (void)state;
  for (int shift = 1 - TOKENS * V; shift < TOKENS * K; shift++) {
    gdn2_forward_args f = forward();
    f.o.data = place[KEY] + shift + (B * T - 1) * H * V;
    memcpy(f.o.stride, (int64_t[]){-T * H * V, -H * V, V, 1}, sizeof f.o.stride);
    REFUSED(gdn2_forward(&f), GDN2_ERR_ARGUMENT, "overlaps k at");
  }
}

/* What a call reads besides tensors: offsets, slots, flags. */
static void test_indices(void **state) {
  (void)state;
  int64_t *const offsets = (void *)place[LAST];
  int32_t *const rows = (void *)place[DO];
  const int64_t cuts[] = {0, 1, T};
  memcpy(offsets, cuts, sizeof cuts);
  rows[0] = 0, rows[1] = 1;
  gdn2_forward_args f = forward();
  f.problem.B = 1, f.problem.N = 2, f.problem.cu_seqlens = offsets, f.problem.cu_seqlens_type = GDN2_I64;
  f.problem.h0.data = NULL, f.h_final.data = NULL;
  f.o.data = place[LAST] + 5;
#define SPOILED(call, words)                                                                                                     \
  do {                                                                                                                           \
    assert_int_equal(call, GDN2_ERR_ARGUMENT);                                                                                   \
    if (!strstr(gdn2_last_error(), words)) fail_msg("%s: \"%s\"", words, gdn2_last_error());                                     \
    assert_memory_equal(offsets, cuts, sizeof cuts);                                                                             \
  } while (0)
  SPOILED(gdn2_forward(&f), "overlaps cu_seqlens at");
  f.o.data = place[LAST] + 6;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  gdn2_backward_args b = backward();
  b.problem = f.problem, b.dh0.data = NULL, b.d_o.data = NULL;
  b.dq.data = place[LAST] + 5;
  SPOILED(gdn2_backward(&b), "overlaps cu_seqlens at");
  gdn2_step_args s = step();
  s.slot = rows, s.o.data = place[DO] + 1;
  SPOILED(gdn2_step(&s), "overlaps slot at");
  s.slot = NULL, s.reset = (const uint8_t *)(rows + 1);
  SPOILED(gdn2_step(&s), "overlaps reset at");
  s.reset = NULL, s.accepted = rows, s.history_length = 1;
  s.history.data = place[DK], s.o.data = place[DO] + 1, rows[1] = 0;
  SPOILED(gdn2_step(&s), "overlaps accepted at");
  gdn2_conv_forward_args c = conv();
  c.problem.fresh = (const unsigned char *)(rows + 1), c.y.data = place[DO] + 1;
  SPOILED(gdn2_conv_forward(&c), "overlaps fresh at");
  c.problem.fresh = NULL, c.problem.slots = rows, c.problem.slot_count = B, rows[1] = 1;
  SPOILED(gdn2_conv_forward(&c), "overlaps slots at");
#undef SPOILED
}

/* The states on the way and the residual are outputs of the forward or a step, and inputs of the backward. */
static void test_states_on_the_way(void **state) {
  (void)state;
  static float long_tokens[4][64], kept[2 * 64];
  gdn2_problem p = {.B = 1, .T = 16, .H = 1, .K = 4, .V = 4};
  p.q.data = long_tokens[0], p.k.data = long_tokens[1], p.v.data = long_tokens[2];
  gdn2_forward_args f = {
      .struct_size = sizeof f, .problem = p, .o.data = kept, .snapshots.data = kept + 63, .snapshot_every = 16};
  assert_int_equal(gdn2_forward(&f), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "snapshots: data is"));
  f.snapshots.data = kept + 64;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  gdn2_backward_args b = {.struct_size = sizeof b, .problem = p, .d_o.data = long_tokens[3], .snapshots.data = kept};
  b.snapshot_every = 16, b.dq.data = kept + 15;
  assert_int_equal(gdn2_backward(&b), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "overlaps snapshots at"));
  b.dq.data = kept + 16;
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
  f.snapshots.data = NULL, f.snapshot_every = 0, f.residual.data = kept + 63;
  assert_int_equal(gdn2_forward(&f), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "residual: data is"));
  b.residual.data = kept + 64, b.dq.data = kept + 64;
  assert_int_equal(gdn2_backward(&b), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "overlaps residual at"));
  gdn2_step_args s = step();
  s.each.data = place[LAST] + STATES - 1;
  REFUSED(gdn2_step(&s), GDN2_ERR_ARGUMENT, "overlaps to at");
}

/* The caller's workspace is written: it may lie in no tensor. */
static void test_place_of_the_workspace(void **state) {
  (void)state;
  enum { BYTES = 1 << 20 };
  static _Alignas(64) char space[BYTES];
  gdn2_forward_args f = forward();
  gdn2_backward_args b = backward();
  gdn2_norm_backward_args n = norm_backward();
  n.problem.z.data = NULL, n.dz.data = NULL;
  f.exec.workspace = b.exec.workspace = n.exec.workspace = space;
  f.exec.workspace_bytes = b.exec.workspace_bytes = n.exec.workspace_bytes = BYTES;
  float *const inside = (void *)(space + 4);
  memset(inside, 0, sizeof(float) * TOKENS * K);
  f.problem.q.data = inside;
  assert_int_equal(gdn2_forward(&f), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "exec.workspace: data is"));
  assert_non_null(strstr(gdn2_last_error(), "overlaps q at"));
  b.dq.data = inside;
  assert_int_equal(gdn2_backward(&b), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "overlaps dq at"));
  n.problem.x.data = inside;
  assert_int_equal(gdn2_norm_backward(&n), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "overlaps x at"));
  size_t needed = 0; /* what lies behind the part that the call uses is no business of it */
  assert_int_equal(gdn2_forward_workspace(&f, &needed), GDN2_OK);
  assert_true(needed + sizeof(float) * TOKENS * K < BYTES);
  f.problem.q.data = space + needed;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
}

/* In place means: at the same address, with the same layout. */
static void test_almost_in_place(void **state) {
  (void)state;
  place[LAST] = place[H0] + 1;
  refuse_forward("overlaps h0 at");
  place[LAST] = place[H0] + 1;
  refuse_step("overlaps from at");
  place[LAST] = place[H0] + 1;
  refuse_conv("overlaps state at");
  place[OUT] = place[Q] + K;
  refuse_norm("overlaps x at");
  place[LAST] = place[H0];
  gdn2_forward_args f = forward();
  memcpy(f.h_final.stride, (int64_t[]){H * K * V, K * V, 1, K}, sizeof f.h_final.stride);
  REFUSED(gdn2_forward(&f), GDN2_ERR_STRIDE, "h_final begins where h0 does");
  place[OUT] = place[Q];
  gdn2_norm_forward_args n = norm();
  n.y.dtype = GDN2_BF16;
  REFUSED(gdn2_norm_forward(&n), GDN2_ERR_STRIDE, "y begins where x does");
  place[DQ] = place[Q]; /* dx may be dy, not x */
  const gdn2_norm_backward_args b = norm_backward();
  REFUSED(gdn2_norm_backward(&b), GDN2_ERR_ARGUMENT, "overlaps x at");
}

static void test_in_place(void **state) {
  (void)state;
  static float want[STATES];
  gdn2_forward_args f = forward();
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  memcpy(want, place[LAST], sizeof want);
  fresh();
  place[LAST] = place[H0];
  f = forward();
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  assert_memory_equal(want, place[H0], sizeof want);
  place[OUT] = place[KEY];
  const gdn2_norm_forward_args n = norm();
  assert_int_equal(gdn2_norm_forward(&n), GDN2_OK);
  place[DQ] = place[DO], place[DK] = place[KEY];
  const gdn2_norm_backward_args b = norm_backward();
  assert_int_equal(gdn2_norm_backward(&b), GDN2_OK);
}

/* q, k and their gradients as columns of one matrix: their bytes mix, their elements do not. */
static void test_interleaved(void **state) {
  (void)state;
  static float want[2][TOKENS * K];
  gdn2_backward_args b = backward();
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
  memcpy(want[0], place[DQ], sizeof want[0]);
  memcpy(want[1], place[DK], sizeof want[1]);
  fresh();
  place[DK] = place[DQ] + K;
  b = backward();
  const int64_t stride[4] = {(int64_t)T * H * 2 * K, (int64_t)H * 2 * K, (int64_t)2 * K, 1};
  memcpy(b.dq.stride, stride, sizeof stride);
  memcpy(b.dk.stride, stride, sizeof stride);
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
  for (int token = 0; token < TOKENS; token++)
    for (int n = 0; n < 2; n++) assert_memory_equal(want[n] + token * K, place[DQ] + (2 * token + n) * K, K * sizeof(float));
}

/* Who asks for the bytes of a workspace need not have the tensors yet. */
static void test_query(void **state) {
  (void)state;
  size_t bytes = 0, same = 0;
  gdn2_backward_args b = backward();
  assert_int_equal(gdn2_backward_workspace(&b, &bytes), GDN2_OK);
  place[DQ] = place[DK] = place[DV] = place[DH0] = place[Q];
  b = backward();
  assert_int_equal(gdn2_backward_workspace(&b, &same), GDN2_OK);
  assert_true(bytes > 0 && same == bytes);
  place[OUT] = place[Q];
  const gdn2_forward_args f = forward();
  assert_int_equal(gdn2_forward_workspace(&f, &bytes), GDN2_OK);
}

/* Nothing lies where a tensor has no elements. */
static void test_empty(void **state) {
  (void)state;
  place[OUT] = place[VALUE];
  gdn2_forward_args f = forward();
  f.problem.T = 0;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_every_distance, set_up),
      cmocka_unit_test_setup(test_pairs, set_up),
      cmocka_unit_test_setup(test_almost_in_place, set_up),
      cmocka_unit_test_setup(test_in_place, set_up),
      cmocka_unit_test_setup(test_interleaved, set_up),
      cmocka_unit_test_setup(test_empty, set_up),
      cmocka_unit_test_setup(test_query, set_up),
      cmocka_unit_test_setup(test_reversed, set_up),
      cmocka_unit_test_setup(test_indices, set_up),
      cmocka_unit_test_setup(test_states_on_the_way, set_up),
      cmocka_unit_test_setup(test_place_of_the_workspace, set_up),
  };
  return TEST_RUN(tests);
}
