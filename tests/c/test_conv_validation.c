/* What the door of the convolution refuses: each wrong field gives its status, a sentence that names it, and no write. */
#include <math.h>

#include "layer.h"
#include "test.h"

enum { B = 1, T = 9, D = 7, W = 4, N = 2 };
static slab in[C_INPUTS], out[C_OUTPUTS];
static gdn2_conv_forward_args f;
static gdn2_conv_backward_args b;
static gdn2_conv_problem *fp, *bp;
static const int64_t cu[] = {0, 4, 9};
static int32_t slots[N];

static gdn2_conv_problem problem(void) {
  return (gdn2_conv_problem){.B = B,
                             .T = T,
                             .D = D,
                             .W = W,
                             .silu = 1,
                             .x = slab_input(&in[C_X]),
                             .weight = slab_input(&in[C_WEIGHT]),
                             .bias = slab_input(&in[C_BIAS]),
                             .state = slab_input(&in[C_STATE]),
                             .cu_seqlens = cu,
                             .cu_seqlens_type = GDN2_I64,
                             .N = N};
}

/* One valid call each way; each test spoils a part of it. */
static void fresh(void) {
  conv_case c = conv_new(1, GDN2_BF16, B, T, D, W, 1);
  conv_cut(&c, cu, N, 2);
  for (int i = 0; i < C_INPUTS; i++) in[i] = slab_new(conv_in_tensor(&c, i), GDN2_BF16, NULL), slab_put(&in[i], c.in[i]);
  for (int i = 0; i < C_OUTPUTS; i++) out[i] = slab_new(conv_out_tensor(&c, i), GDN2_BF16, NULL);
  f = (gdn2_conv_forward_args){sizeof f, problem(), slab_output(&out[C_Y]), slab_output(&out[C_LAST]), {0}};
  b = (gdn2_conv_backward_args){.struct_size = sizeof b, .problem = problem(), .dy = slab_input(&in[C_DY])};
  b.dstate_final = slab_input(&in[C_DLAST]);
  b.dx = slab_output(&out[C_DX]);
  b.dweight = slab_output(&out[C_DWEIGHT]);
  b.dbias = slab_output(&out[C_DBIAS]);
  b.dstate = slab_output(&out[C_DSTATE]);
  fp = &f.problem;
  bp = &b.problem;
  slots[0] = 1, slots[1] = 0;
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

static void untouched(void) {
  for (int i = 0; i < C_OUTPUTS; i++) slab_expect_untouched(&out[i]);
}

static void forward_refused(gdn2_status want, const char *name) {
  layer_expect_sentence(gdn2_conv_forward(&f), want, name);
  untouched();
  fresh();
}

static void backward_refused(gdn2_status want, const char *name) {
  size_t bytes = 77;
  layer_expect_sentence(gdn2_conv_backward(&b), want, name);
  layer_expect_sentence(gdn2_conv_backward_workspace(&b, &bytes), want, name);
  assert_int_equal(bytes, 77);
  untouched();
  fresh();
}

/* What both share is spoilt in both. */
static void refused(gdn2_status want, const char *name) {
  const gdn2_conv_problem spoilt = *fp;
  *bp = spoilt;
  layer_expect_sentence(gdn2_conv_forward(&f), want, name);
  backward_refused(want, name);
}

static void accepted(void) {
  if (gdn2_conv_forward(&f) != GDN2_OK) fail_msg("refused: %s", gdn2_last_error());
  fresh();
}

static void test_valid(void **state) {
  (void)state;
  assert_int_equal(gdn2_conv_backward(&b), GDN2_OK);
  accepted();
}

static void test_arguments(void **state) {
  (void)state;
  layer_expect_sentence(gdn2_conv_forward(NULL), GDN2_ERR_ARGUMENT, "args");
  layer_expect_sentence(gdn2_conv_backward(NULL), GDN2_ERR_ARGUMENT, "args");
  layer_expect_sentence(gdn2_conv_backward_workspace(&b, NULL), GDN2_ERR_ARGUMENT, "bytes");
  f.struct_size--;
  forward_refused(GDN2_ERR_ARGUMENT, "struct_size");
  b.struct_size = 0;
  backward_refused(GDN2_ERR_ARGUMENT, "struct_size");
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t wrong[] = {-1, INT64_MIN};
  for (int n = 0; n < 2; n++) {
    fp->B = wrong[n];
    refused(GDN2_ERR_SHAPE, "B");
    fp->T = wrong[n];
    refused(GDN2_ERR_SHAPE, "T");
    fp->N = wrong[n];
    refused(GDN2_ERR_SHAPE, "N");
  }
  const int64_t channels[] = {0, -1, GDN2_MAX_CHANNELS + 1, INT64_MAX, INT64_MIN};
  for (int n = 0; n < 5; n++) {
    fp->D = channels[n];
    refused(GDN2_ERR_SHAPE, "D");
  }
  const int64_t widths[] = {1, 0, 5, -4, ((int64_t)1 << 32) + 4};
  for (int n = 0; n < 5; n++) {
    fp->W = widths[n];
    refused(GDN2_ERR_SHAPE, "W");
  }
  fp->cu_seqlens = NULL;
  fp->B = (int64_t)1 << 31, fp->T = (int64_t)1 << 31;
  refused(GDN2_ERR_SHAPE, "T");
  fp->B = 2;
  refused(GDN2_ERR_SHAPE, "B");
  fp->cu_seqlens = NULL;
  refused(GDN2_ERR_SHAPE, "N");
}

static void test_options(void **state) {
  (void)state;
  const int wrong[] = {-1, 2, INT32_MAX, INT32_MIN};
  for (int n = 0; n < 4; n++) {
    fp->silu = wrong[n];
    refused(GDN2_ERR_ARGUMENT, "silu");
    fp->cu_seqlens_type = (gdn2_index)wrong[n];
    refused(GDN2_ERR_ARGUMENT, "cu_seqlens_type");
    if (wrong[n] > 0) continue;
    f.exec.threads = wrong[n];
    forward_refused(GDN2_ERR_ARGUMENT, "threads");
    b.exec.threads = wrong[n];
    backward_refused(GDN2_ERR_ARGUMENT, "threads");
  }
  f.exec.isa = (gdn2_isa)99;
  forward_refused(GDN2_ERR_ISA, "isa");
}

static void test_sequences(void **state) {
  (void)state;
  static const int64_t wrong[][3] = {{1, 4, 9}, {0, 5, 4}, {0, 4, 10}, {0, -1, 9}, {0, (int64_t)1 << 32, 9}};
  for (int n = 0; n < 5; n++) {
    fp->cu_seqlens = wrong[n];
    refused(GDN2_ERR_SHAPE, "cu_seqlens");
  }
  fp->cu_seqlens = (const char *)cu + 4;
  refused(GDN2_ERR_ARGUMENT, "cu_seqlens");
}

static void with_slots(int32_t first, int32_t second, int64_t count) {
  slots[0] = first, slots[1] = second;
  fp->slots = slots;
  fp->slots_type = GDN2_I32;
  fp->slot_count = count;
}

static void test_slots(void **state) {
  (void)state;
  const int32_t wrong[][2] = {{0, 2}, {-2, 0}, {INT32_MAX, 1}, {1, INT32_MIN}, {1, 1}, {0, 0}};
  for (int n = 0; n < 6; n++) {
    with_slots(wrong[n][0], wrong[n][1], 2);
    forward_refused(GDN2_ERR_ARGUMENT, "slots");
  }
  with_slots(0, 1, -1);
  forward_refused(GDN2_ERR_SHAPE, "slot_count");
  with_slots(0, 1, 1);
  forward_refused(GDN2_ERR_ARGUMENT, "slot_count");
  with_slots(0, 1, 2);
  fp->slots_type = (gdn2_index)2;
  forward_refused(GDN2_ERR_ARGUMENT, "slots_type");
  with_slots(0, 1, 2);
  fp->slots = (const char *)slots + 1;
  forward_refused(GDN2_ERR_ARGUMENT, "slots");
  with_slots(-1, -1, 0);
  accepted();
  with_slots(1, 0, 2);
  accepted();
  bp->slots = slots;
  backward_refused(GDN2_ERR_ARGUMENT, "slots");
  bp->fresh = (const unsigned char *)"\1\1";
  backward_refused(GDN2_ERR_ARGUMENT, "fresh");
}

static void test_tensors(void **state) {
  (void)state;
  gdn2_input *const shared[] = {&fp->x, &fp->weight, &fp->bias, &fp->state};
  const char *const names[] = {"x", "weight", "bias", "state"};
  for (int i = 0; i < 4; i++) {
    shared[i]->dtype = (gdn2_dtype)4;
    refused(GDN2_ERR_DTYPE, names[i]);
    shared[i]->dtype = (gdn2_dtype)-1;
    refused(GDN2_ERR_DTYPE, names[i]);
    shared[i]->data = (const char *)shared[i]->data - 1;
    refused(GDN2_ERR_ARGUMENT, names[i]);
    shared[i]->stride[1] = shared[i]->stride[2] = shared[i]->stride[3] = INT64_MAX / 2;
    refused(GDN2_ERR_STRIDE, names[i]);
    if (i > 1) continue;
    shared[i]->data = NULL;
    refused(GDN2_ERR_ARGUMENT, names[i]);
  }
  fp->x.stride[3] = 2;
  refused(GDN2_ERR_STRIDE, "x");
  fp->bias.stride[3] = 0, fp->bias.stride[0] = 1;
  refused(GDN2_ERR_STRIDE, "bias");
}

static void test_outputs(void **state) {
  (void)state;
  for (int i = 0; i < C_OUTPUTS; i++)
    for (int fault = 0; fault < 3; fault++) {
      gdn2_output *const outputs[] = {&f.y, &f.state_final, &b.dx, &b.dweight, &b.dbias, &b.dstate};
      const char *const names[] = {"y", "state_final", "dx", "dweight", "dbias", "dstate"};
      const gdn2_status want[] = {GDN2_ERR_DTYPE, GDN2_ERR_ARGUMENT, GDN2_ERR_STRIDE};
      if (fault == 0) outputs[i]->dtype = (gdn2_dtype)(i % 2 ? 4 : -1);
      if (fault == 1) outputs[i]->data = (char *)outputs[i]->data + 1;
      if (fault == 2) outputs[i]->stride[3] = 3;
      if (fault == 2 && (i == C_LAST || i == C_DSTATE || i == C_DWEIGHT)) outputs[i]->stride[2] = 3;
      if (i <= C_LAST)
        forward_refused(want[fault], names[i]);
      else
        backward_refused(want[fault], names[i]);
    }
}

/* float64 is for every tensor of a call or for none. */
static void test_float64_is_for_all(void **state) {
  (void)state;
  fp->weight.dtype = GDN2_F64;
  fp->weight.data = (const void *)cu;
  refused(GDN2_ERR_DTYPE, "weight");
  fp->x.dtype = GDN2_F64;
  fp->x.data = (const void *)cu;
  refused(GDN2_ERR_DTYPE, "weight");
  f.y.dtype = GDN2_F64;
  forward_refused(GDN2_ERR_DTYPE, "y");
  b.dy.dtype = GDN2_F64;
  backward_refused(GDN2_ERR_DTYPE, "dy");
}

static void test_workspaces(void **state) {
  (void)state;
  size_t bytes = 0;
  assert_int_equal(gdn2_conv_backward_workspace(&b, &bytes), GDN2_OK);
  assert_true(bytes > 0);
  b.exec.workspace = test_workspace(bytes);
  b.exec.workspace_bytes = bytes - 1;
  layer_expect_sentence(gdn2_conv_backward(&b), GDN2_ERR_WORKSPACE, "workspace_bytes");
  untouched();
  b.exec.workspace = (char *)b.exec.workspace + 4;
  b.exec.workspace_bytes = bytes;
  layer_expect_sentence(gdn2_conv_backward(&b), GDN2_ERR_WORKSPACE, "workspace");
  untouched();
  b.dweight.data = b.dbias.data = NULL;
  assert_int_equal(gdn2_conv_backward_workspace(&b, &bytes), GDN2_OK);
  assert_int_equal(bytes, 0);
}

#define CHECK(test) cmocka_unit_test_setup_teardown(test, set_up, test_release)

int main(void) {
  const struct CMUnitTest tests[] = {CHECK(test_valid),     CHECK(test_arguments), CHECK(test_sizes),
                                     CHECK(test_options),   CHECK(test_slots),     CHECK(test_sequences),
                                     CHECK(test_tensors),   CHECK(test_outputs),   CHECK(test_float64_is_for_all),
                                     CHECK(test_workspaces)};
  return TEST_RUN(tests);
}
