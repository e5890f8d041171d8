/* A float64 call is float64 throughout: any tensor of another type is refused with a sentence that names it, and so is a float64
 * tensor in a call of another type. Nothing is written then. */
#include <ctype.h>
#include <math.h>

#include "double.h"
#include "test.h"

static const int64_t offsets[] = {0, 2, 2, 7};
static double_problem x;
static double_call call;

static void fresh(gdn2_dtype dtype) {
  width_case c = width_new(400, 1, 9, 2, 4, 7, 6);
  width_cut(&c, offsets, 3, 401);
  width_make_raw_decay(&c, GDN2_DECAY_BOUNDED, 402);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 403);
  c.l2norm = true;
  x = double_new(&c, 404);
  call = double_call_new(&x, DOUBLE_O | DOUBLE_H_FINAL | DOUBLE_GRADIENTS, &width_contiguous);
  if (dtype == GDN2_F64) return;
  /* The same arrays, called float32: none is read, since one tensor of each call will be wrong. */
  gdn2_problem *const p[] = {&call.width.args.problem, &call.backward.problem};
  for (int n = 0; n < 2; n++) {
    gdn2_input *const in[] = {&p[n]->q, &p[n]->k,  &p[n]->v,     &p[n]->g,      &p[n]->b,
                              &p[n]->w, &p[n]->h0, &p[n]->A_log, &p[n]->dt_bias};
    for (int i = 0; i < W_INPUTS; i++) in[i]->dtype = dtype;
  }
  call.width.args.o.dtype = call.width.args.h_final.dtype = dtype;
}

static bool names(const char *sentence, const char *name) {
  const size_t length = strlen(name);
  return strncmp(sentence, name, length) == 0 && !isalnum((unsigned char)sentence[length]) && sentence[length] != '_';
}

static void expect(gdn2_status got, gdn2_status want, const char *name, const char *says) {
  if (got != want) fail_msg("%s: %s (%s), must be %s", name, gdn2_status_name(got), gdn2_last_error(), gdn2_status_name(want));
  if (!names(gdn2_last_error(), name)) fail_msg("the sentence does not begin with %s: \"%s\"", name, gdn2_last_error());
  if (!strstr(gdn2_last_error(), says)) fail_msg("the sentence does not say \"%s\": \"%s\"", says, gdn2_last_error());
}

static void forward_refused(gdn2_status want, const char *name, const char *says) {
  size_t bytes = 77;
  expect(gdn2_forward(&call.width.args), want, name, says);
  expect(gdn2_forward_workspace(&call.width.args, &bytes), want, name, says);
  width_buffer_expect_untouched(&call.width.o);
  width_buffer_expect_untouched(&call.width.h_final);
  assert_int_equal(bytes, 77);
}

static void backward_refused(gdn2_status want, const char *name, const char *says) {
  size_t bytes = 77;
  expect(gdn2_backward(&call.backward), want, name, says);
  expect(gdn2_backward_workspace(&call.backward, &bytes), want, name, says);
  for (int i = 0; i < W_INPUTS; i++) width_buffer_expect_untouched(&call.grad[i]);
  assert_int_equal(bytes, 77);
}

static const char *const input_names[] = {"q", "k", "v", "g", "b", "w", "h0", "A_log", "dt_bias"};

static gdn2_input *input_of(gdn2_problem *p, int i) {
  gdn2_input *const in[] = {&p->q, &p->k, &p->v, &p->g, &p->b, &p->w, &p->h0, &p->A_log, &p->dt_bias};
  return in[i];
}

static gdn2_output *gradient_of(gdn2_backward_args *b, int i) {
  gdn2_output *const out[] = {&b->dq, &b->dk, &b->dv, &b->dg, &b->db, &b->dw, &b->dh0, &b->dA_log, &b->ddt_bias};
  return out[i];
}

static const char *const gradient_names[] = {"dq", "dk", "dv", "dg", "db", "dw", "dh0", "dA_log", "ddt_bias"};

static void test_valid(void **state) {
  (void)state;
  fresh(GDN2_F64);
  const double_result want = double_oracle(&x), got = double_call_run(&x, &call);
  for (int i = 0; i < W_INPUTS; i++) {
    const tensor t = double_tensor(&x, i);
    double_expect_close(&t, got.grad[i], want.grad[i], 1e-13);
  }
}

/* Every other tensor of a float64 call in every other type. */
static void test_mixed_inputs(void **state) {
  (void)state;
  for (int i = 1; i < W_INPUTS; i++)
    for (int type = GDN2_F32; type <= GDN2_F16; type++) {
      fresh(GDN2_F64);
      input_of(&call.width.args.problem, i)->dtype = input_of(&call.backward.problem, i)->dtype = (gdn2_dtype)type;
      forward_refused(GDN2_ERR_DTYPE, input_names[i], "must be GDN2_F64 (3), as that of q is");
      backward_refused(GDN2_ERR_DTYPE, input_names[i], "must be GDN2_F64 (3), as that of q is");
    }
}

static void test_mixed_outputs(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    fresh(GDN2_F64);
    call.width.args.o.dtype = (gdn2_dtype)type;
    forward_refused(GDN2_ERR_DTYPE, "o", "GDN2_F64");
    fresh(GDN2_F64);
    call.width.args.h_final.dtype = (gdn2_dtype)type;
    forward_refused(GDN2_ERR_DTYPE, "h_final", "GDN2_F64");
    fresh(GDN2_F64);
    call.backward.d_o.dtype = (gdn2_dtype)type;
    backward_refused(GDN2_ERR_DTYPE, "d_o", "GDN2_F64");
    fresh(GDN2_F64);
    call.backward.dh_final.dtype = (gdn2_dtype)type;
    backward_refused(GDN2_ERR_DTYPE, "dh_final", "GDN2_F64");
    for (int i = 0; i < W_INPUTS; i++) {
      fresh(GDN2_F64);
      gradient_of(&call.backward, i)->dtype = (gdn2_dtype)type;
      backward_refused(GDN2_ERR_DTYPE, gradient_names[i], "GDN2_F64");
    }
  }
}

/* One float64 tensor in a call of another type. */
static void test_float64_alone(void **state) {
  (void)state;
  for (int i = 1; i < W_INPUTS; i++) {
    fresh(GDN2_F32);
    input_of(&call.width.args.problem, i)->dtype = GDN2_F64;
    forward_refused(GDN2_ERR_DTYPE, input_names[i], "only where q is");
  }
  fresh(GDN2_F32);
  call.width.args.o.dtype = GDN2_F64;
  forward_refused(GDN2_ERR_DTYPE, "o", "only where q is");
  fresh(GDN2_F32);
  call.width.args.h_final.dtype = GDN2_F64;
  forward_refused(GDN2_ERR_DTYPE, "h_final", "only where q is");
}

/* The type of q counts where there is no token to point to. */
static void test_type_of_an_absent_q(void **state) {
  (void)state;
  double h0 = 0.25, h = 0;
  gdn2_forward_args f = {.struct_size = sizeof f,
                         .problem = {.B = 1, .H = 1, .K = 1, .V = 1, .q = {.dtype = GDN2_F64}, .h0 = {&h0, GDN2_F64, {0}}},
                         .h_final = {&h, GDN2_F64, {0}}};
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  assert_true(h == 0.25);
  f.problem.q.dtype = GDN2_F32;
  assert_int_equal(gdn2_forward(&f), GDN2_ERR_DTYPE);
  /* The type of any other absent tensor does not. */
  f.problem.q.dtype = GDN2_F64;
  f.problem.g.dtype = f.problem.k.dtype = (gdn2_dtype)9;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
}

static void test_alignment(void **state) {
  (void)state;
  for (int i = 0; i < W_INPUTS; i++) {
    fresh(GDN2_F64);
    gdn2_input *const in = input_of(&call.backward.problem, i);
    in->data = (const char *)in->data - 4;
    backward_refused(GDN2_ERR_ARGUMENT, input_names[i], "aligned to its element size, 8");
    fresh(GDN2_F64);
    gdn2_output *const out = gradient_of(&call.backward, i);
    out->data = (char *)out->data - 4;
    backward_refused(GDN2_ERR_ARGUMENT, gradient_names[i], "aligned to its element size, 8");
  }
}

/* 8 bytes an element: what float32 could reach is beyond the address space. */
static void test_reach(void **state) {
  (void)state;
  fresh(GDN2_F64);
  call.backward.dk.stride[1] = INT64_MAX / 32 / 3;
  backward_refused(GDN2_ERR_STRIDE, "dk", "address space");
  fresh(GDN2_F64);
  call.backward.problem.v.stride[3] = 2;
  backward_refused(GDN2_ERR_STRIDE, "v", "it must be 1");
  fresh(GDN2_F64);
  call.backward.dA_log.stride[2] = 0;
  call.backward.dA_log.stride[3] = 1;
  backward_refused(GDN2_ERR_STRIDE, "dA_log", "overlap");
}

/* Finished decays have no parameters. */
static void test_parameters_of_finished_decays(void **state) {
  (void)state;
  for (int which = W_A; which <= W_DT; which++) {
    fresh(GDN2_F64);
    call.backward.problem.decay = GDN2_DECAY_LOG;
    call.backward.problem.lower_bound = 0;
    call.backward.problem.A_log.data = call.backward.problem.dt_bias.data = NULL;
    gradient_of(&call.backward, which == W_A ? W_DT : W_A)->data = NULL;
    backward_refused(GDN2_ERR_ARGUMENT, gradient_names[which], "GDN2_DECAY_LOG");
  }
}

/* A bound that float32 does not have is one of float64. */
static void test_lower_bound(void **state) {
  (void)state;
  fresh(GDN2_F64);
  call.width.args.problem.lower_bound = -1e200;
  assert_int_equal(gdn2_forward(&call.width.args), GDN2_OK);
  const double wrong[] = {0, 1, -INFINITY, NAN};
  for (int n = 0; n < 4; n++) {
    fresh(GDN2_F64);
    call.width.args.problem.lower_bound = wrong[n];
    forward_refused(GDN2_ERR_ARGUMENT, "lower_bound", "float64");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_valid),         TEST(test_mixed_inputs),        TEST(test_mixed_outputs),
      TEST(test_float64_alone), TEST(test_type_of_an_absent_q), TEST(test_alignment),
      TEST(test_reach),         TEST(test_lower_bound),         TEST(test_parameters_of_finished_decays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
