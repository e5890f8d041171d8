/* What the door of the norm refuses: each wrong field gives its status, a sentence that names it, and no write. */
#include <math.h>

#include "layer.h"
#include "test.h"

static slab in[N_INPUTS], out[N_OUTPUTS];
static gdn2_norm_forward_args f;
static gdn2_norm_backward_args b;
static gdn2_norm_problem *fp, *bp;

static void fresh(void) {
  const norm_case c = norm_new(1, GDN2_F16, 2, 3, 2, 7);
  for (int i = 0; i < N_INPUTS; i++) in[i] = slab_new(norm_in_tensor(&c, i), GDN2_F16, NULL), slab_put(&in[i], c.in[i]);
  for (int i = 0; i < N_OUTPUTS; i++) out[i] = slab_new(norm_out_tensor(&c, i), GDN2_F16, NULL);
  f = (gdn2_norm_forward_args){.struct_size = sizeof f, .y = slab_output(&out[N_Y])};
  f.problem = (gdn2_norm_problem){.B = 2, .T = 3, .H = 2, .D = 7, .x = slab_input(&in[N_X]), .z = slab_input(&in[N_Z])};
  f.problem.weight = slab_input(&in[N_WEIGHT]);
  b = (gdn2_norm_backward_args){.struct_size = sizeof b, .problem = f.problem, .dy = slab_input(&in[N_DY])};
  b.dx = slab_output(&out[N_DX]);
  b.dz = slab_output(&out[N_DZ]);
  b.dweight = slab_output(&out[N_DWEIGHT]);
  fp = &f.problem;
  bp = &b.problem;
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

static void untouched(void) {
  for (int i = 0; i < N_OUTPUTS; i++) slab_expect_untouched(&out[i]);
}

static void forward_refused(gdn2_status want, const char *name) {
  layer_expect_sentence(gdn2_norm_forward(&f), want, name);
  untouched();
  fresh();
}

static void backward_refused(gdn2_status want, const char *name) {
  size_t bytes = 77;
  layer_expect_sentence(gdn2_norm_backward(&b), want, name);
  layer_expect_sentence(gdn2_norm_backward_workspace(&b, &bytes), want, name);
  assert_int_equal(bytes, 77);
  untouched();
  fresh();
}

static void refused(gdn2_status want, const char *name) {
  *bp = *fp;
  layer_expect_sentence(gdn2_norm_forward(&f), want, name);
  backward_refused(want, name);
}

static void test_valid(void **state) {
  (void)state;
  assert_int_equal(gdn2_norm_forward(&f), GDN2_OK);
  assert_int_equal(gdn2_norm_backward(&b), GDN2_OK);
}

static void test_arguments(void **state) {
  (void)state;
  layer_expect_sentence(gdn2_norm_forward(NULL), GDN2_ERR_ARGUMENT, "args");
  layer_expect_sentence(gdn2_norm_backward(NULL), GDN2_ERR_ARGUMENT, "args");
  layer_expect_sentence(gdn2_norm_backward_workspace(&b, NULL), GDN2_ERR_ARGUMENT, "bytes");
  f.struct_size++;
  forward_refused(GDN2_ERR_ARGUMENT, "struct_size");
  b.struct_size = 0;
  backward_refused(GDN2_ERR_ARGUMENT, "struct_size");
}

static void test_sizes(void **state) {
  (void)state;
  const int64_t wrong[] = {-1, INT64_MIN};
  const char *const names[] = {"B", "T", "H"};
  for (int i = 0; i < 3; i++)
    for (int n = 0; n < 2; n++) {
      int64_t *const sizes[] = {&fp->B, &fp->T, &fp->H};
      *sizes[i] = wrong[n];
      refused(GDN2_ERR_SHAPE, names[i]);
    }
  const int64_t widths[] = {0, -1, GDN2_MAX_CHANNELS + 1, INT64_MAX, INT64_MIN};
  for (int n = 0; n < 5; n++) {
    fp->D = widths[n];
    refused(GDN2_ERR_SHAPE, "D");
  }
  fp->B = fp->T = (int64_t)1 << 30;
  refused(GDN2_ERR_SHAPE, "T");
}

static void test_options(void **state) {
  (void)state;
  const int wrong[] = {-1, 2, INT32_MAX, INT32_MIN};
  for (int n = 0; n < 4; n++) {
    fp->gate = (gdn2_norm_gate)wrong[n];
    refused(GDN2_ERR_ARGUMENT, "gate");
    fp->plus_one = wrong[n];
    refused(GDN2_ERR_ARGUMENT, "plus_one");
  }
  const double eps[] = {-1e-9, NAN, INFINITY, -INFINITY};
  for (int n = 0; n < 4; n++) {
    fp->eps = eps[n];
    refused(GDN2_ERR_ARGUMENT, "eps");
  }
  f.exec.threads = -1;
  forward_refused(GDN2_ERR_ARGUMENT, "threads");
  f.exec.isa = (gdn2_isa)99;
  forward_refused(GDN2_ERR_ISA, "isa");
}

static void test_tensors(void **state) {
  (void)state;
  gdn2_input *const shared[] = {&fp->x, &fp->z, &fp->weight};
  const char *const names[] = {"x", "z", "weight"};
  for (int i = 0; i < 3; i++) {
    shared[i]->dtype = (gdn2_dtype)4;
    refused(GDN2_ERR_DTYPE, names[i]);
    shared[i]->data = (const char *)shared[i]->data - 1;
    refused(GDN2_ERR_ARGUMENT, names[i]);
    shared[i]->stride[3] = 2;
    refused(GDN2_ERR_STRIDE, names[i]);
    shared[i]->dtype = GDN2_F64;
    shared[i]->data = (const char *)shared[i]->data - (uintptr_t)shared[i]->data % 8;
    refused(GDN2_ERR_DTYPE, i == 0 ? "z" : names[i]);
  }
  fp->x.data = NULL;
  refused(GDN2_ERR_ARGUMENT, "x");
  b.dy.dtype = GDN2_F64;
  backward_refused(GDN2_ERR_DTYPE, "dy");
  bp->z.data = NULL;
  backward_refused(GDN2_ERR_ARGUMENT, "dz");
}

static void test_outputs(void **state) {
  (void)state;
  for (int i = 0; i < N_OUTPUTS; i++)
    for (int fault = 0; fault < 3; fault++) {
      gdn2_output *const outputs[] = {&f.y, &b.dx, &b.dz, &b.dweight};
      const char *const names[] = {"y", "dx", "dz", "dweight"};
      const gdn2_status want[] = {GDN2_ERR_DTYPE, GDN2_ERR_ARGUMENT, GDN2_ERR_STRIDE};
      if (fault == 0) outputs[i]->dtype = (gdn2_dtype)(i % 2 ? 3 : -1);
      if (fault == 1) outputs[i]->data = (char *)outputs[i]->data + 1;
      if (fault == 2) outputs[i]->stride[3] = 0, outputs[i]->stride[2] = 1;
      if (i == N_Y)
        forward_refused(want[fault], names[i]);
      else
        backward_refused(want[fault], names[i]);
    }
}

static void test_workspaces(void **state) {
  (void)state;
  size_t bytes = 0;
  assert_int_equal(gdn2_norm_backward_workspace(&b, &bytes), GDN2_OK);
  b.exec.workspace = test_workspace(bytes);
  b.exec.workspace_bytes = bytes - 1;
  layer_expect_sentence(gdn2_norm_backward(&b), GDN2_ERR_WORKSPACE, "workspace_bytes");
  b.exec.workspace = (char *)b.exec.workspace + 4;
  b.exec.workspace_bytes = bytes;
  layer_expect_sentence(gdn2_norm_backward(&b), GDN2_ERR_WORKSPACE, "workspace");
  untouched();
}

#define CHECK(test) cmocka_unit_test_setup_teardown(test, set_up, test_release)

int main(void) {
  const struct CMUnitTest tests[] = {CHECK(test_valid),   CHECK(test_arguments), CHECK(test_sizes),     CHECK(test_options),
                                     CHECK(test_tensors), CHECK(test_outputs),   CHECK(test_workspaces)};
  return TEST_RUN(tests);
}
