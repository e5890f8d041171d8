/* The seed's pipeline: its clip, its diagnostics, its references, and what must not change a bit. */
#include <math.h>

#include "seed_case.h"
#include "test.h"

static const gdn2_seed_config small = {32, 16, 8, 1e4, 1e-3};

static void ok(gdn2_status status) {
  if (status != GDN2_OK) fail_msg("%s: %s", gdn2_status_name(status), gdn2_last_error());
}

static void same(tensor t, const float *got, const float *want) { expect_same_bits(&t, got, want); }

static void run(seed_case *c) { ok(gdn2_seed_forward(&c->call, &c->in, c->o, c->h_final, &c->made)); }

/* ---- Clip ------------------------------------------------------------------------------------------------------------------ */

static void test_sanitize(void **unused) {
  (void)unused;
  const float in[] = {0, -0.0f, 1, -1, 9999, 1e4f, 10001, -10001, 3e38f, INFINITY, -INFINITY, NAN, -NAN, 1e-45f, -3e38f};
  const float out[] = {0, -0.0f, 1, -1, 9999, 1e4f, 1e4f, -1e4f, 1e4f, 1e4f, -1e4f, 0, 0, 1e-45f, -1e4f};
  enum { VALUES = sizeof in / sizeof *in };
  gdn2_status (*const functions[])(const gdn2_seed_config *, int64_t, const float *,
                                   float *) = {gdn2_seed_sanitize, gdn2_seed_sanitize_h0, gdn2_seed_clip_acc};
  for (int f = 0; f < 3; f++)
    for (int n = 0; n <= 50; n++) {
      const void *mark = test_mark();
      float *x = test_floats((size_t)n), *y = test_floats((size_t)n);
      for (int i = 0; i < n; i++) x[i] = in[(i * 7) % VALUES];
      ok(functions[f](NULL, n, x, y));
      for (int i = 0; i < n; i++)
        if (memcmp(&y[i], &out[(i * 7) % VALUES], sizeof *y) != 0) fail_msg("element %d of %d: %g", i, n, (double)y[i]);
      ok(functions[f](NULL, n, x, x)); /* in place */
      assert_memory_equal(x, y, (size_t)n * sizeof *x);
      test_release_to(mark);
    }
}

static void test_sanitize_with_other_clips(void **unused) {
  (void)unused;
  float *x = test_floats(4), *y = test_floats(4);
  memcpy(x, (float[]){7, -INFINITY, NAN, 0.25f}, 4 * sizeof *x);
  gdn2_seed_config c = small;
  c.clip = 0.5;
  ok(gdn2_seed_sanitize(&c, 4, x, y));
  assert_memory_equal(y, ((float[]){0.5f, -0.5f, 0, 0.25f}), 4 * sizeof *y);
  c.clip = INFINITY;
  ok(gdn2_seed_sanitize(&c, 4, x, y));
  assert_memory_equal(y, ((float[]){7, -INFINITY, 0, 0.25f}), 4 * sizeof *y);
}

/* ---- Diagnostics ----------------------------------------------------------------------------------------------------------- */

static const char *const stages[] = {"kernel_A_Aqk", "kernel_A_Akk", "kernel_B_wy_inverse_A", "kernel_C_w_pseudo", "kernel_C_u",
                                     "kernel_C_kg",  "kernel_C_qg",  "kernel_D_h_final",      "kernel_D_o"};

typedef struct diary {
  int count;
  gdn2_seed_report reports[16];
  char text[16][160];
} diary;

static void keep(void *context, const gdn2_seed_report *report) {
  diary *l = context;
  assert_true(l->count < 16);
  assert_true(gdn2_seed_report_text(report, l->text[l->count], sizeof l->text[0]) < (int)sizeof l->text[0]);
  l->reports[l->count++] = *report;
}

static void start(seed_case *c, diary *l, double clip) {
  const gdn2_seed_config config = {64, 32, 8, clip, 1e-3};
  seed_case_init(c, 3, (const int64_t[]){1, 64, 2, 17, 19}, config, 0.3);
  *l = (diary){0};
  c->call.report = keep;
  c->call.report_context = l;
  c->call.tag = "layer 3";
}

static const gdn2_seed_report *find(const diary *l, const char *stage) {
  for (int i = 0; i < l->count; i++)
    if (strcmp(l->reports[i].stage, stage) == 0) return &l->reports[i];
  return NULL;
}

static void test_no_report_when_all_is_well(void **unused) {
  (void)unused;
  seed_case c;
  diary l;
  start(&c, &l, 1e4);
  run(&c);
  assert_int_equal(l.count, 0);
  float *o = seed_array(seed_value_tokens(&c, "o"));
  memcpy(o, c.o, 64 * 2 * 19 * sizeof *o);
  c.call.report = NULL; /* diagnostics change no value */
  run(&c);
  same(seed_value_tokens(&c, "o"), c.o, o);
}

/* Behind the clip a NaN is 0 already: the report says what the clip has replaced. */
static void test_report_of_a_nan(void **unused) {
  (void)unused;
  seed_case c;
  diary l;
  start(&c, &l, 1e4);
  float *v = test_floats(64 * 2 * 19);
  memcpy(v, c.in.v, 64 * 2 * 19 * sizeof *v);
  v[(40 * 2 + 1) * 19 + 4] = NAN; /* token 40, head 1, channel 4 */
  c.in.v = v;
  run(&c);
  assert_int_equal(l.count, 1);
  const gdn2_seed_report *u = find(&l, "kernel_C_u");
  assert_non_null(u);
  assert_string_equal(u->tag, "layer 3");
  /* A product with a whole row of A: 0 times NaN reaches the rows before it. */
  assert_int_equal(u->replaced, 64);
  assert_int_equal(u->nonfinite, 0);
  assert_non_null(strstr(l.text[0], "clipped at layer 3:kernel_C_u: n_replaced=64 "));
  for (int i = 0; i < 64 * 2 * 19; i++) assert_true(isfinite(c.o[i]));
}

/* Without a clip infinities stay, and are counted, at the stage that makes them and at every stage behind it. */
static void test_report_of_infinities(void **unused) {
  (void)unused;
  seed_case c;
  diary l;
  start(&c, &l, INFINITY);
  float *q = test_floats(64 * 2 * 17);
  memcpy(q, c.in.q, 64 * 2 * 17 * sizeof *q);
  q[(40 * 2 + 0) * 17 + 2] = INFINITY;
  c.in.q = q;
  run(&c);
  const gdn2_seed_report *qg = find(&l, "kernel_C_qg"), *o = find(&l, "kernel_D_o"), *Aqk = find(&l, "kernel_A_Aqk");
  assert_non_null(qg);
  assert_int_equal(qg->nonfinite, 1);
  float largest = 0;
  for (int i = 0; i < 2 * 64 * 17; i++)
    if (isfinite(c.made.qg[i])) largest = fmaxf(largest, fabsf(c.made.qg[i]));
  assert_true(qg->max_abs == largest);
  assert_non_null(Aqk);
  assert_int_equal(Aqk->nonfinite, 41); /* its row, up to the diagonal */
  assert_non_null(o);
  assert_non_null(strstr(l.text[0], "[GDN2-FWD-DIAG] non-finite at layer 3:kernel_A_Aqk: n_nonfinite=41 max_abs_finite="));
  assert_null(find(&l, "kernel_C_u"));
  assert_null(find(&l, "kernel_D_h_final"));
}

static void test_report_of_large_values(void **unused) {
  (void)unused;
  seed_case c;
  diary l;
  start(&c, &l, 1e30);
  float *v = test_floats(64 * 2 * 19);
  for (int i = 0; i < 64 * 2 * 19; i++) v[i] = c.in.v[i] * 1e8f;
  c.in.v = v;
  run(&c);
  const gdn2_seed_report *u = find(&l, "kernel_C_u");
  assert_non_null(u);
  assert_true(u->nonfinite == 0 && u->replaced == 0 && u->max_abs > 1e7f);
  assert_non_null(strstr(l.text[0], "[GDN2-FWD-DIAG] suspiciously large (still finite) at layer 3:kernel_C_u: max_abs="));
  assert_non_null(find(&l, "kernel_D_h_final"));
  assert_non_null(find(&l, "kernel_D_o"));
  assert_int_equal(l.count, 3);
}

static float *times(const float *x, tensor t, float factor) {
  float *y = seed_array(t);
  for (size_t i = 0; i < tensor_count(&t); i++) y[i] = factor * x[i];
  return y;
}

/* With a small clip and large inputs every stage has something to report: in the seed's order. */
static void test_order_of_reports(void **unused) {
  (void)unused;
  seed_case c;
  diary l;
  start(&c, &l, 0.5);
  c.in.q = times(c.in.q, seed_key_tokens(&c, "q"), 1000);
  c.in.k = times(c.in.k, seed_key_tokens(&c, "k"), 10);
  c.in.v = times(c.in.v, seed_value_tokens(&c, "v"), 1000);
  c.in.b = times(c.in.b, seed_key_tokens(&c, "b"), 1000);
  run(&c);
  assert_int_equal(l.count, 9);
  for (int i = 0; i < 9; i++) assert_string_equal(l.reports[i].stage, stages[i]);
  c.call.tag = NULL;
  l.count = 0;
  ok(gdn2_seed_combine(&c.call, c.made.Aqk, c.made.w_pseudo, c.made.u, c.made.kg, c.made.qg, c.made.gc_last, c.in.h0,
                       seed_array(seed_values(&c, "o")), c.h_final));
  assert_string_equal(l.reports[0].tag, "");
}

static void test_diag_wanted(void **unused) {
  (void)unused;
  const char *const values[] = {"1", "0", "", "yes", "11"};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(setenv("GDN2_FWD_DIAG", values[i], 1), 0);
    assert_int_equal(gdn2_seed_diag_wanted(), i == 0);
  }
  assert_int_equal(unsetenv("GDN2_FWD_DIAG"), 0);
  assert_int_equal(gdn2_seed_diag_wanted(), 0);
  const gdn2_seed_report report = {.tag = "t", .stage = "s", .nonfinite = 3, .max_abs = 2};
  char text[8];
  assert_int_equal(gdn2_seed_report_text(&report, text, sizeof text),
                   (int)strlen("[GDN2-FWD-DIAG] non-finite at t:s: n_nonfinite=3 max_abs_finite=2.000e+00"));
  assert_string_equal(text, "[GDN2-F");
}

/* ---- What changes no bit --------------------------------------------------------------------------------------------------- */

typedef struct outputs {
  float *o, *h_final;
  gdn2_seed_gradients grad;
} outputs;

static outputs everything(const seed_case *c) {
  const tensor keys = seed_key_tokens(c, "keys"), values = seed_value_tokens(c, "values"), state = seed_state(c, "state");
  outputs y = {seed_array(values),
               seed_array(state),
               {seed_array(keys), seed_array(keys), seed_array(values), seed_array(values), seed_array(keys), seed_array(keys),
                seed_array(state)}};
  ok(gdn2_seed_forward(&c->call, &c->in, y.o, y.h_final, NULL));
  ok(gdn2_seed_backward(&c->call, &c->in, NULL, c->d_o, c->dh_final, &y.grad));
  return y;
}

static void expect_same(const seed_case *c, const outputs *a, const outputs *b) {
  same(seed_value_tokens(c, "o"), a->o, b->o);
  same(seed_state(c, "h_final"), a->h_final, b->h_final);
  same(seed_key_tokens(c, "dq"), a->grad.dq, b->grad.dq);
  same(seed_key_tokens(c, "dk"), a->grad.dk, b->grad.dk);
  same(seed_value_tokens(c, "dv"), a->grad.dv, b->grad.dv);
  same(seed_value_tokens(c, "dw"), a->grad.dw, b->grad.dw);
  same(seed_key_tokens(c, "db"), a->grad.db, b->grad.db);
  same(seed_key_tokens(c, "dg"), a->grad.dg, b->grad.dg);
  same(seed_state(c, "dh0"), a->grad.dh0, b->grad.dh0);
}

static void test_threads(void **unused) {
  (void)unused;
  seed_case c;
  seed_case_init(&c, 5, (const int64_t[]){2, 150, 3, 40, 130}, small, 0.3);
  c.call.exec.threads = 1;
  const outputs one = everything(&c);
  const int counts[] = {2, 3, 4, 7, 16, 0};
  for (int i = 0; i < 6; i++) {
    c.call.exec.threads = counts[i];
    const outputs more = everything(&c);
    expect_same(&c, &one, &more);
  }
}

/* The second row of a batch alone. */
static void test_batch(void **unused) {
  (void)unused;
  seed_case c;
  seed_case_init(&c, 6, (const int64_t[]){3, 64, 2, 24, 18}, small, 0.3);
  const outputs all = everything(&c);
  seed_case alone = c;
  alone.call.config = &alone.config, alone.call.scale = &alone.scale, alone.call.B = 1;
  const int64_t keys = 64 * 2 * 24, values = 64 * 2 * 18, state = 2 * 24 * 18;
  alone.in = (gdn2_seed_inputs){c.in.q + keys, c.in.k + keys, c.in.v + values, c.in.w + values,
                                c.in.b + keys, c.in.g + keys, c.in.h0 + state};
  alone.d_o += values, alone.dh_final += state;
  const outputs one = everything(&alone);
  const outputs part = {all.o + values,
                        all.h_final + state,
                        {all.grad.dq + keys, all.grad.dk + keys, all.grad.dv + values, all.grad.dw + values, all.grad.db + keys,
                         all.grad.dg + keys, all.grad.dh0 + state}};
  expect_same(&alone, &one, &part);
}

/* A sequence that ends inside a chunk is that sequence with neutral tokens behind it; h0 = NULL is a state of zeros. */
static void test_tail_and_absent_state(void **unused) {
  (void)unused;
  seed_case full, c;
  seed_case_init(&full, 8, (const int64_t[]){1, 64, 1, 20, 12}, small, 0.3);
  const int64_t L = 45;
  float *const tokens[] = {(float *)(uintptr_t)full.in.q, (float *)(uintptr_t)full.in.k, (float *)(uintptr_t)full.in.b,
                           (float *)(uintptr_t)full.in.g};
  for (int i = 0; i < 4; i++) memset(tokens[i] + L * 20, 0, (size_t)((64 - L) * 20) * sizeof(float));
  memset((float *)(uintptr_t)full.in.v + L * 12, 0, (size_t)((64 - L) * 12) * sizeof(float));
  memset(full.d_o + L * 12, 0, (size_t)((64 - L) * 12) * sizeof(float));
  memset((float *)(uintptr_t)full.in.h0, 0, 20 * 12 * sizeof(float));
  const outputs padded = everything(&full);
  c = full;
  c.call.config = &c.config, c.call.scale = &c.scale, c.call.L = L;
  c.in.h0 = NULL;
  const outputs tail = everything(&c);
  expect_same(&c, &tail, &padded);
}

/* ---- References ------------------------------------------------------------------------------------------------------------ */

/* The recurrence in float64. */
static void token_loop(const seed_case *c, double *o, double *h_all) {
  const int64_t L = c->call.L, H = c->call.H, K = c->call.K, V = c->call.V;
  for (int64_t row = 0; row < c->call.B * L * H; row++) {
    const float *q = c->in.q + row * K, *k = c->in.k + row * K, *b = c->in.b + row * K, *g = c->in.g + row * K;
    double *h = h_all + (row / (L * H) * H + row % H) * K * V;
    for (int64_t x = 0; x < K * V; x++) h[x] *= exp((double)g[x / V]);
    for (int64_t j = 0; j < V; j++) {
      double v_new = (double)c->in.w[row * V + j] * (double)c->in.v[row * V + j], sum = 0;
      for (int64_t d = 0; d < K; d++) v_new -= (double)b[d] * (double)k[d] * h[d * V + j];
      for (int64_t d = 0; d < K; d++) sum += (double)q[d] * (h[d * V + j] += (double)k[d] * v_new);
      o[row * V + j] = c->scale * sum;
    }
  }
}

static void test_references(void **unused) {
  (void)unused;
  const int64_t sizes[][5] = {{2, 64, 3, 17, 33}, {1, 32, 1, 1, 1}, {1, 96, 2, 64, 3}};
  for (int n = 0; n < 3; n++) {
    seed_case c;
    seed_case_init(&c, 30 + (uint64_t)n, sizes[n], small, 0.5);
    const tensor o = seed_value_tokens(&c, "o"), state = seed_state(&c, "h_final");
    double *want_o = seed_wide(c.o, o), *want_h = seed_wide(c.in.h0, state);
    token_loop(&c, want_o, want_h);
    ok(gdn2_seed_token_serial(&c.call, &c.in, c.o, c.h_final));
    expect_close(&o, c.o, want_o, 2e-6);
    expect_close(&state, c.h_final, want_h, 2e-6);
    ok(gdn2_seed_chunked_wy(&c.call, &c.in, 16, 0.0, c.o, c.h_final));
    expect_close(&o, c.o, want_o, 2e-6);
    expect_close(&state, c.h_final, want_h, 2e-6);
    float *damped = seed_array(o);
    ok(gdn2_seed_chunked_wy(&c.call, &c.in, 16, 0.05, damped, c.h_final));
    assert_true(relative_error(damped, want_o, tensor_count(&o)) > 1e-4);
    /* The fallback is the chunked reference with chunks of bt and without the damping of the configuration. */
    ok(gdn2_seed_chunked_wy(&c.call, &c.in, 32, 0.0, c.o, c.h_final));
    ok(gdn2_seed_forward_fallback(&c.call, &c.in, damped, c.h_final));
    same(o, damped, c.o);
  }
}

static void test_empty(void **unused) {
  (void)unused;
  seed_case c;
  seed_case_init(&c, 9, (const int64_t[]){2, 0, 3, 5, 4}, small, 0.3);
  const outputs y = everything(&c);
  same(seed_state(&c, "h_final"), y.h_final, c.in.h0);
  same(seed_state(&c, "dh0"), y.grad.dh0, c.dh_final);
  ok(gdn2_seed_token_serial(&c.call, &c.in, c.o, c.h_final));
  same(seed_state(&c, "h_final"), c.h_final, c.in.h0);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_sanitize),
                                     TEST(test_sanitize_with_other_clips),
                                     TEST(test_no_report_when_all_is_well),
                                     TEST(test_report_of_a_nan),
                                     TEST(test_report_of_infinities),
                                     TEST(test_report_of_large_values),
                                     TEST(test_order_of_reports),
                                     TEST(test_diag_wanted),
                                     TEST(test_threads),
                                     TEST(test_batch),
                                     TEST(test_tail_and_absent_state),
                                     TEST(test_references),
                                     TEST(test_empty)};
  return TEST_RUN(tests);
}
