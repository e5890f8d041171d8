/* The residual that the forward leaves to the backward: what it is, and that the gradients have the bits of the backward that
 * computes it again. */
#include "gradient.h"
#include "test.h"

static const int64_t lengths_of_packed[] = {0, 17, 30, 30, 130, 290};

static tensor residual_tensor(const width_case *c) { return (tensor){"residual", {c->B, c->T, c->HV, c->V}}; }

/* Heads before tokens, gaps. */
static const width_layout strange = {
    .token_order = {2, 0, 1, 3}, .state_order = {0, 1, 2, 3}, .padding = {0, 5, 3, 0}, .sign = {1, 1, 1, 1}};

/* What a forward wrote, and its states every so many tokens (0: none). */
typedef struct left {
  width_buffer residual;
  gdn2_states snapshots;
  int64_t every;
} left;

static left forward_left(const width_case *c, const width_layout *layout, int64_t every, int threads) {
  left l = {.residual = width_buffer_new(residual_tensor(c), GDN2_F32, layout, false, false), .every = every};
  if (every > 0) l.snapshots = width_snapshots_new(c, c->T / every, GDN2_F32, false);
  width_call call = width_call_new(c, GDN2_F32, &width_contiguous);
  call.args.residual = width_output(&l.residual);
  call.args.snapshots = l.snapshots;
  call.args.snapshot_every = every;
  call.args.exec.threads = threads;
  (void)width_call_run(c, &call);
  width_buffer_expect_gaps(&l.residual);
  return l;
}

static gradients run_from(const gradient_case *x, const left *l, int64_t checkpoint_every, int threads) {
  gradient_call call = gradient_call_new(x, GDN2_F32, &width_contiguous);
  call.args.residual = width_input(&l->residual);
  call.args.snapshots = l->snapshots;
  call.args.snapshot_every = l->every;
  call.args.checkpoint_every = checkpoint_every;
  call.args.exec.threads = threads;
  return gradient_call_run(x, &call);
}

/* S_t = diag(alpha_t) S_{t-1} + k_t r_t^T, in float64: r_t by its definition, w_t v_t - (diag(alpha_t) S_{t-1})^T (b_t k_t). */
static double *by_definition(const width_case *c) {
  double *r = test_doubles((size_t)(c->B * c->T * c->HV * c->V)), *S = test_doubles((size_t)(c->K * c->V));
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->HV; h++) {
      memset(S, 0, (size_t)(c->K * c->V) * sizeof *S);
      for (int64_t t = 0; t < c->T; t++) {
        const double *k = width_row(c, W_K, b, t, h), *v = width_row(c, W_V, b, t, h), *g = width_row(c, W_G, b, t, h),
                     *e = width_row(c, W_B, b, t, h), *w = width_row(c, W_W, b, t, h);
        double *row = r + ((b * c->T + t) * c->HV + h) * c->V;
        for (int64_t m = 0; m < c->V; m++) {
          row[m] = w[m] * v[m];
          for (int64_t i = 0; i < c->K; i++) row[m] -= e[i] * k[i] * (S[i * c->V + m] *= exp(g[i]));
          for (int64_t i = 0; i < c->K; i++) S[i * c->V + m] += k[i] * row[m];
        }
      }
    }
  return r;
}

static void test_what_is_written(void **state) {
  (void)state;
  for (int heads = 1; heads <= 3; heads += 2) {
    width_case c = width_new(750, 2, 77, heads, heads, 24, 70);
    c.in[W_H0] = NULL;
    const double *want = by_definition(&c);
    const size_t count = (size_t)(c.B * c.T * c.HV * c.V);
    double size = 0;
    for (size_t i = 0; i < count; i++) size += want[i] * want[i];
    assert_true(size > 0.1 * (double)count);
    for (int threads = 1; threads <= 3; threads++) {
      const left l = forward_left(&c, threads == 2 ? &strange : &width_contiguous, 0, threads);
      float *got = test_floats(count);
      width_buffer_load(&l.residual, got, NULL);
      double error = 0;
      for (size_t i = 0; i < count; i++) error += (got[i] - want[i]) * (got[i] - want[i]);
      assert_true(sqrt(error / size) < 1e-6);
    }
  }
}

static void test_same_bits(void **state) {
  (void)state;
  for (int is_packed = 0; is_packed < 2; is_packed++) {
    const gradient_case x = gradient_with_options(760, is_packed ? 1 : 2, 300, 19, 21, is_packed ? lengths_of_packed : NULL, 5);
    const gradients want = gradient_run(&x);
    const int64_t every[] = {0, 0, 32, 128}, chunks[] = {0, 3, 0, 0};
    for (int n = 0; n < 4; n++) {
      const void *mark = test_mark();
      const left l = forward_left(&x.c, n % 2 ? &strange : &width_contiguous, every[n], 1 + n % 3);
      const gradients got = run_from(&x, &l, chunks[n], 1 + n % 3);
      gradient_expect_equal(&x, &got, &want);
      test_release_to(mark);
    }
  }
}

/* In the place of dv. */
static void test_in_place(void **state) {
  (void)state;
  for (int is_packed = 0; is_packed < 2; is_packed++) {
    const gradient_case x = gradient_with_options(765, is_packed ? 1 : 2, 300, 19, 21, is_packed ? lengths_of_packed : NULL, 5);
    const gradients want = gradient_run(&x);
    for (int64_t every = 0; every <= 32; every += 32) {
      const left l = forward_left(&x.c, &width_contiguous, every, 1);
      gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
      memcpy(call.args.dv.data, l.residual.first, (size_t)(x.c.B * x.c.T * x.c.HV * x.c.V) * sizeof(float));
      call.args.residual = (gdn2_input){.data = call.args.dv.data, .dtype = GDN2_F32};
      memcpy(call.args.residual.stride, call.args.dv.stride, sizeof call.args.dv.stride);
      call.args.snapshots = l.snapshots;
      call.args.snapshot_every = every;
      call.args.exec.threads = 2;
      const gradients got = gradient_call_run(&x, &call);
      gradient_expect_equal(&x, &got, &want);
    }
  }
}

/* It is read: another number gives other gradients, of no token before it. */
static void test_wrong_number_shows(void **state) {
  (void)state;
  const gradient_case x = gradient_of(width_new(770, 1, 64, 1, 1, 8, 8), 771);
  const left l = forward_left(&x.c, &width_contiguous, 32, 1);
  const gradients want = gradient_run(&x);
  const size_t half = 32 * 8;
  ((float *)(void *)l.residual.first)[half] += 1.0f;
  const gradients got = run_from(&x, &l, 0, 1);
  assert_memory_not_equal(got.values[D_Q] + half, want.values[D_Q] + half, half * sizeof(float));
  assert_memory_equal(got.values[D_Q], want.values[D_Q], half * sizeof(float));
}

static void test_refused(void **state) {
  (void)state;
  const gradient_case x = gradient_of(width_new(780, 1, 64, 1, 1, 8, 8), 781);
  left l = forward_left(&x.c, &width_contiguous, 0, 1);
  gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
  call.args.residual = width_input(&l.residual);
  call.args.residual.dtype = GDN2_BF16;
  assert_int_equal(gdn2_backward(&call.args), GDN2_ERR_DTYPE);
  assert_non_null(strstr(gdn2_last_error(), "residual"));
  for (int i = 0; i < GRADIENTS; i++)
    if (call.out[i].base) width_buffer_expect_untouched(&call.out[i]);

  width_call forward = width_call_new(&x.c, GDN2_F32, &width_contiguous);
  forward.args.residual = forward.args.o;
  assert_int_equal(gdn2_forward(&forward.args), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_last_error(), "residual"));
  width_buffer_expect_untouched(&forward.o);
}

/* In float64 there is none. */
static void test_refused_in_float64(void **state) {
  (void)state;
  gradient_case x = gradient_of(width_new(790, 1, 32, 1, 1, 8, 8), 791);
  width_set_dtypes(&x.c, GDN2_F64);
  x.c.dtype[W_H0] = GDN2_F64;
  const width_buffer r = width_buffer_new(residual_tensor(&x.c), GDN2_F64, &width_contiguous, false, false);
  width_call forward = width_call_new(&x.c, GDN2_F64, &width_contiguous);
  forward.args.residual = width_output(&r);
  assert_int_equal(gdn2_forward(&forward.args), GDN2_ERR_ARGUMENT);
  assert_string_equal(gdn2_last_error(), "residual is given; the float64 path has none: it must be absent");
  width_buffer_expect_untouched(&r);
  gradient_call backward = gradient_call_new(&x, GDN2_F64, &width_contiguous);
  backward.args.residual = width_input(&r);
  assert_int_equal(gdn2_backward(&backward.args), GDN2_ERR_ARGUMENT);
  assert_string_equal(gdn2_last_error(), "residual is given; the float64 path has none: it must be absent");
  for (int i = 0; i < GRADIENTS; i++)
    if (backward.out[i].base) width_buffer_expect_untouched(&backward.out[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_what_is_written),    TEST(test_same_bits), TEST(test_in_place),
                                     TEST(test_wrong_number_shows), TEST(test_refused),   TEST(test_refused_in_float64)};
  return TEST_RUN(tests);
}
