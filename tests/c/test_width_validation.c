/* What the door refuses of the forward's options: each wrong field gives its status, a sentence that names it, and no write to
 * any output; and what the backward refuses altogether. */
#include <ctype.h>
#include <math.h>

#include "test.h"
#include "width.h"

/* One valid call with every option; each test spoils a part of it. */
static const int64_t offsets[] = {0, 2, 2, 7};
static width_case c;
static width_call call;
static gdn2_problem *p;

static void fresh(void) {
  c = width_new(400, 1, 9, 2, 4, 7, 6);
  width_cut(&c, offsets, 3, 401);
  width_make_raw_decay(&c, GDN2_DECAY_BOUNDED, 402);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 403);
  width_set_dtypes(&c, GDN2_BF16);
  c.l2norm = true;
  call = width_call_new(&c, GDN2_F16, &width_contiguous);
  p = &call.args.problem;
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

/* Does the sentence hold the name as a word of its own? */
static bool names(const char *sentence, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = strstr(sentence, name); at; at = strstr(at + 1, name)) {
    const bool starts = at == sentence || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    const bool ends = !(isalnum((unsigned char)at[length]) || at[length] == '_');
    if (starts && ends) return true;
  }
  return false;
}

static void expect_sentence(gdn2_status got, gdn2_status want, const char *name) {
  if (got != want) fail_msg("wrong %s: %s, must be %s", name, gdn2_status_name(got), gdn2_status_name(want));
  if (!names(gdn2_last_error(), name)) fail_msg("the sentence does not name %s: \"%s\"", name, gdn2_last_error());
  if (strlen(gdn2_last_error()) < strlen(name) + 10) fail_msg("the sentence says too little: \"%s\"", gdn2_last_error());
}

static void refused(gdn2_status want, const char *name) {
  size_t bytes = 77;
  expect_sentence(gdn2_forward(&call.args), want, name);
  width_buffer_expect_untouched(&call.o);
  width_buffer_expect_untouched(&call.h_final);
  expect_sentence(gdn2_forward_workspace(&call.args, &bytes), want, name);
  assert_int_equal(bytes, 77);
  fresh();
}

static void accepted(void) {
  if (gdn2_forward(&call.args) != GDN2_OK) fail_msg("refused: %s", gdn2_last_error());
  fresh();
}

/* The call that every test spoils is right. */
static void test_valid(void **state) {
  (void)state;
  const width_truth want = width_oracle(&c);
  const width_result got = width_call_run(&c, &call);
  width_expect_right(&c, &got, &want, 1e-6);
}

/* ---- Heads ---- */

static void test_heads(void **state) {
  (void)state;
  const int64_t wrong[] = {-2, -1, 1, 3, 5, INT64_MIN};
  for (int n = 0; n < 6; n++) {
    p->HV = wrong[n];
    refused(GDN2_ERR_SHAPE, "HV");
  }
  const int64_t large[] = {INT64_MAX - 1, (int64_t)1 << 61, (int64_t)1 << 58};
  for (int n = 0; n < 3; n++) {
    p->HV = large[n];
    refused(GDN2_ERR_SHAPE, "HV");
  }
  p->H = 0;
  refused(GDN2_ERR_SHAPE, "HV");
  p->map = (gdn2_head_map)2;
  refused(GDN2_ERR_ARGUMENT, "map");
  p->map = (gdn2_head_map)-1;
  refused(GDN2_ERR_ARGUMENT, "map");
  const int flags[] = {-1, 2, INT32_MAX, INT32_MIN};
  for (int n = 0; n < 4; n++) {
    p->g_key_heads = flags[n];
    refused(GDN2_ERR_ARGUMENT, "g_key_heads");
    p->b_key_heads = flags[n];
    refused(GDN2_ERR_ARGUMENT, "b_key_heads");
  }
}

/* ---- Sequences ---- */

static void set_offset(int n, int32_t value) {
  test_unlock(call.cu);
  ((int32_t *)call.cu)[n] = value;
}

static void test_offsets(void **state) {
  (void)state;
  const struct {
    int n;
    int32_t value;
  } wrong[] = {{0, 1}, {0, -1}, {1, 3}, {2, 1}, {2, 8}, {3, 1}, {3, 10}, {1, -2}, {3, INT32_MAX}, {1, INT32_MIN}, {0, 9}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    set_offset(wrong[i].n, wrong[i].value);
    refused(GDN2_ERR_SHAPE, "cu_seqlens");
  }
  set_offset(3, 9);
  accepted();
  /* The cases of reports: [0,12,8,16], [1,5], [0,5] with T = 4. */
  const int32_t reported[][4] = {{0, 12, 8, 16}, {1, 5, 5, 5}, {0, 5, 5, 5}};
  const int64_t lengths[] = {16, 16, 4}, counts[] = {3, 1, 1};
  for (int i = 0; i < 3; i++) {
    for (int n = 0; n < 4; n++) set_offset(n, reported[i][n]);
    p->N = counts[i];
    if (lengths[i] < p->T) p->T = lengths[i];
    refused(GDN2_ERR_SHAPE, "cu_seqlens");
  }
}

static void test_wide_offsets(void **state) {
  (void)state;
  const int64_t wrong[][4] = {{0, 2, 2, (int64_t)1 << 32}, {0, ((int64_t)1 << 32) + 1, 2, 7}, {INT64_MIN, 2, 2, 7},
                              {0, 2, INT64_MAX, 7},        {(int64_t)1 << 32, 2, 2, 7},       {0, 2, -1, 7}};
  int64_t *wide = (int64_t *)(void *)test_doubles(4);
  for (int i = 0; i < 6; i++) {
    memcpy(wide, wrong[i], sizeof wrong[i]);
    p->cu_seqlens = wide;
    p->cu_seqlens_type = GDN2_I64;
    refused(GDN2_ERR_SHAPE, "cu_seqlens");
  }
}

static void test_sequences(void **state) {
  (void)state;
  p->B = 2;
  refused(GDN2_ERR_SHAPE, "B");
  p->B = 0;
  refused(GDN2_ERR_SHAPE, "B");
  p->N = -1;
  refused(GDN2_ERR_SHAPE, "N");
  p->N = INT64_MIN;
  refused(GDN2_ERR_SHAPE, "N");
  p->cu_seqlens = NULL;
  refused(GDN2_ERR_SHAPE, "N");
  p->cu_seqlens_type = (gdn2_index)2;
  refused(GDN2_ERR_ARGUMENT, "cu_seqlens_type");
  p->cu_seqlens_type = (gdn2_index)-1;
  refused(GDN2_ERR_ARGUMENT, "cu_seqlens_type");
  p->cu_seqlens = (const char *)call.cu + 2;
  refused(GDN2_ERR_ARGUMENT, "cu_seqlens");
  p->cu_seqlens = (const char *)p->q.data - (uintptr_t)p->q.data % 8 + 4;
  p->cu_seqlens_type = GDN2_I64;
  refused(GDN2_ERR_ARGUMENT, "cu_seqlens");
}

/* ---- Gates ---- */

static void test_forms(void **state) {
  (void)state;
  const int flags[] = {-1, 3, 99, INT32_MIN};
  for (int n = 0; n < 4; n++) {
    p->decay = (gdn2_decay)flags[n];
    refused(GDN2_ERR_ARGUMENT, "decay");
    p->erase = (gdn2_gate)flags[n];
    refused(GDN2_ERR_ARGUMENT, "erase");
    p->write = (gdn2_gate)flags[n];
    refused(GDN2_ERR_ARGUMENT, "write");
    p->qk_l2norm = flags[n];
    refused(GDN2_ERR_ARGUMENT, "qk_l2norm");
  }
  p->write = GDN2_GATE_TWO_SIGMOID;
  refused(GDN2_ERR_ARGUMENT, "write");
  p->qk_l2norm = 2;
  refused(GDN2_ERR_ARGUMENT, "qk_l2norm");
}

static void test_lower_bound(void **state) {
  (void)state;
  const double wrong[] = {0, -0.0, 1e-300, 5, INFINITY, NAN, -INFINITY, -1e39, -1e300};
  for (int n = 0; n < 9; n++) {
    p->lower_bound = wrong[n];
    refused(GDN2_ERR_ARGUMENT, "lower_bound");
  }
  const double beside[] = {5, -5, 1e-300, NAN, INFINITY};
  for (int n = 0; n < 5; n++) {
    p->decay = GDN2_DECAY_SOFTPLUS;
    p->lower_bound = beside[n];
    refused(GDN2_ERR_ARGUMENT, "lower_bound");
  }
  p->decay = GDN2_DECAY_SOFTPLUS;
  p->lower_bound = 0;
  accepted();
}

static void set_decay(gdn2_decay decay) {
  p->decay = decay;
  if (decay != GDN2_DECAY_BOUNDED) p->lower_bound = 0;
}

/* A form that needs a tensor does not make do without it; a finished gate does. */
static void test_missing(void **state) {
  (void)state;
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    set_decay((gdn2_decay)form);
    p->A_log.data = NULL;
    refused(GDN2_ERR_ARGUMENT, "A_log");
    set_decay((gdn2_decay)form);
    p->g.data = NULL;
    refused(GDN2_ERR_ARGUMENT, "g");
    set_decay((gdn2_decay)form);
    p->dt_bias.data = NULL;
    accepted();
  }
  for (int form = GDN2_GATE_SIGMOID; form <= GDN2_GATE_TWO_SIGMOID; form++) {
    p->erase = (gdn2_gate)form;
    p->b.data = NULL;
    refused(GDN2_ERR_ARGUMENT, "b");
  }
  p->w.data = NULL;
  refused(GDN2_ERR_ARGUMENT, "w");
  set_decay(GDN2_DECAY_LOG);
  p->erase = p->write = GDN2_GATE_GIVEN;
  p->g.data = p->b.data = p->w.data = p->A_log.data = p->dt_bias.data = p->h0.data = NULL;
  accepted();
}

/* ---- Types, alignment, strides ---- */

static void test_types(void **state) {
  (void)state;
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    p->A_log.dtype = (gdn2_dtype)type;
    refused(GDN2_ERR_DTYPE, "A_log");
    p->dt_bias.dtype = (gdn2_dtype)type;
    refused(GDN2_ERR_DTYPE, "dt_bias");
    p->h0.dtype = (gdn2_dtype)type;
    refused(GDN2_ERR_DTYPE, "h0");
    call.args.h_final.dtype = (gdn2_dtype)type;
    refused(GDN2_ERR_DTYPE, "h_final");
  }
  const char *const tokens[] = {"q", "k", "v", "g", "b", "w"};
  for (int wrong = -1; wrong <= 3; wrong += 4)
    for (int i = 0; i < 6; i++) {
      gdn2_input *const inputs[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w};
      inputs[i]->dtype = (gdn2_dtype)wrong;
      refused(GDN2_ERR_DTYPE, tokens[i]);
    }
  call.args.o.dtype = (gdn2_dtype)3;
  refused(GDN2_ERR_DTYPE, "o");
}

/* A 16-bit tensor may begin at any even address, and at no odd one. */
static void test_alignment(void **state) {
  (void)state;
  const char *const tokens[] = {"q", "k", "v", "g", "b", "w"};
  for (int i = 0; i < 6; i++) {
    gdn2_input *const inputs[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w};
    inputs[i]->data = (const char *)inputs[i]->data - 1;
    refused(GDN2_ERR_ARGUMENT, tokens[i]);
  }
  call.args.o.data = (char *)call.args.o.data - 1;
  refused(GDN2_ERR_ARGUMENT, "o");
  p->A_log.data = (const char *)p->A_log.data - 2;
  refused(GDN2_ERR_ARGUMENT, "A_log");
  p->dt_bias.data = (const char *)p->dt_bias.data - 2;
  refused(GDN2_ERR_ARGUMENT, "dt_bias");
}

static void test_strides(void **state) {
  (void)state;
  p->dt_bias.stride[3] = 2;
  refused(GDN2_ERR_STRIDE, "dt_bias");
  p->A_log.stride[2] = INT64_MAX;
  refused(GDN2_ERR_STRIDE, "A_log");
  p->dt_bias.stride[2] = INT64_MIN;
  refused(GDN2_ERR_STRIDE, "dt_bias");
  p->v.stride[3] = 2;
  refused(GDN2_ERR_STRIDE, "v");
  /* Four value heads: an output whose heads overlap. */
  call.args.o.stride[2] = 5;
  refused(GDN2_ERR_STRIDE, "o");
  call.args.h_final.stride[0] = 7;
  refused(GDN2_ERR_STRIDE, "h_final");
}

/* ---- The backward ---- */

static gdn2_backward_args plain_backward(float *dq) {
  width_case plain = width_new(410, 1, 9, 2, 2, 7, 6);
  width_call ready = width_call_new(&plain, GDN2_F32, &width_contiguous);
  gdn2_backward_args b = {.struct_size = sizeof b, .problem = ready.args.problem, .dq = {dq, GDN2_F32, {0}}};
  b.d_o = (gdn2_input){ready.args.problem.v.data, GDN2_F32, {0}};
  return b;
}

/* What means the plain rule is taken: HV = H in either map, N = B, gates of as many key heads. */
static void test_backward_takes_the_plain_rule(void **state) {
  (void)state;
  float *dq = test_floats(9 * 2 * 7), *same = test_floats(9 * 2 * 7);
  gdn2_backward_args b = plain_backward(dq);
  b.problem.HV = 0;
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
  memcpy(same, dq, 9 * 2 * 7 * sizeof *dq);
  for (int n = 0; n < 5; n++) {
    b = plain_backward(dq);
    b.problem.HV = n > 0 ? 2 : 0;
    b.problem.map = n == 1 ? GDN2_HEADS_TILED : GDN2_HEADS_GROUPED;
    b.problem.N = n == 2;
    b.problem.g_key_heads = n == 3;
    b.problem.b_key_heads = n == 4;
    if (gdn2_backward(&b) != GDN2_OK) fail_msg("refused: %s", gdn2_last_error());
    assert_memory_equal(dq, same, 9 * 2 * 7 * sizeof *dq);
  }
}

#define CHECK(test) cmocka_unit_test_setup_teardown(test, set_up, test_release)

int main(void) {
  const struct CMUnitTest tests[] = {
      CHECK(test_valid),     CHECK(test_heads),     CHECK(test_offsets),     CHECK(test_wide_offsets),
      CHECK(test_sequences), CHECK(test_forms),     CHECK(test_lower_bound), CHECK(test_missing),
      CHECK(test_types),     CHECK(test_alignment), CHECK(test_strides),     CHECK(test_backward_takes_the_plain_rule),
  };
  return TEST_RUN(tests);
}
