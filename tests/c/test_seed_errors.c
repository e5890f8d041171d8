/* The seed's pipeline: presets, sizes of memory, and what is refused, with which sentence. */
#include <math.h>
#include <stdarg.h>

#include "seed_case.h"
#include "test.h"

/* The status, and a sentence that holds every one of the words; NULL ends them. */
static void refused(gdn2_status status, gdn2_status wanted, ...) {
  if (status != wanted) fail_msg("%s instead of %s: %s", gdn2_status_name(status), gdn2_status_name(wanted), gdn2_last_error());
  va_list words;
  va_start(words, wanted);
  for (const char *word = va_arg(words, const char *); word; word = va_arg(words, const char *))
    if (!strstr(gdn2_last_error(), word)) fail_msg("\"%s\" lacks \"%s\"", gdn2_last_error(), word);
  va_end(words);
}

static void expect_config(gdn2_seed_preset preset, gdn2_seed_config want) {
  gdn2_seed_config got = {0};
  assert_int_equal(gdn2_seed_config_preset(preset, &got), GDN2_OK);
  assert_true(got.bt == want.bt && got.bc == want.bc && got.mb == want.mb && got.clip == want.clip && got.wy_eps == want.wy_eps);
  assert_int_equal(gdn2_seed_config_check_strict(&got), GDN2_OK);
}

static void test_presets(void **unused) {
  (void)unused;
  expect_config(GDN2_SEED_PLAIN, (gdn2_seed_config){256, 128, 16, 1e4, 0});
  expect_config(GDN2_SEED_SMALL, (gdn2_seed_config){128, 64, 16, 1e4, 1e-3});
  expect_config(GDN2_SEED_MEDIUM, (gdn2_seed_config){256, 128, 16, 1e4, 1e-3});
  expect_config(GDN2_SEED_LARGE, (gdn2_seed_config){256, 128, 16, 5e3, 1e-3});
  expect_config(GDN2_SEED_DEFAULT, (gdn2_seed_config){256, 128, 16, 1e4, 1e-3});
  gdn2_seed_config c;
  refused(gdn2_seed_config_preset((gdn2_seed_preset)9, &c), GDN2_ERR_ARGUMENT, "preset", "9", NULL);
  refused(gdn2_seed_config_preset(GDN2_SEED_SMALL, NULL), GDN2_ERR_ARGUMENT, "config is NULL", NULL);
}

static void test_configurations(void **unused) {
  (void)unused;
  const struct {
    gdn2_seed_config config;
    int strict_only;
    const char *argument, *value, *wanted;
  } wrong[] = {
      {{100, 64, 16, 1e4, 0}, 0, "config.bt", "100", "64"},
      {{256, 64, 16, 1e4, 0}, 1, "config.bt", "256", "128"},
      {{64, 64, 16, 1e4, 0}, 1, "config.bt", "64", "128"},
      {{64, 32, 12, 1e4, 0}, 0, "config.bc", "32", "12"},
      {{64, 32, 16, 1e4, 1}, 0, "config.wy_eps", "1", "[0, 1)"},
      {{64, 32, 16, 1e4, -0.5}, 0, "config.wy_eps", "-0.5", "[0, 1)"},
      {{64, 32, 16, 1e4, NAN}, 0, "config.wy_eps", "nan", "[0, 1)"},
      {{64, 32, 16, -2, 0}, 0, "config.clip", "-2", "0 or more"},
      {{64, 32, 16, NAN, 0}, 0, "config.clip", "nan", "0 or more"},
      {{0, 32, 16, 1e4, 0}, 0, "config.bt", "0", "1"},
      {{64, 0, 16, 1e4, 0}, 0, "config.bc", "0", "1"},
      {{64, 32, -1, 1e4, 0}, 0, "config.mb", "-1", "1"},
      {{32768, 16384, 16, 1e4, 0}, 0, "config.bt", "32768", "16384"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    refused(gdn2_seed_config_check_strict(&wrong[i].config), GDN2_ERR_ARGUMENT, wrong[i].argument, wrong[i].value,
            wrong[i].wanted, NULL);
    if (wrong[i].strict_only)
      assert_int_equal(gdn2_seed_config_check(&wrong[i].config), GDN2_OK);
    else
      refused(gdn2_seed_config_check(&wrong[i].config), GDN2_ERR_ARGUMENT, wrong[i].argument, wrong[i].value, NULL);
  }
  const gdn2_seed_config unclipped = {64, 32, 16, INFINITY, 0.999};
  assert_int_equal(gdn2_seed_config_check_strict(&unclipped), GDN2_OK);
  refused(gdn2_seed_config_check(NULL), GDN2_ERR_ARGUMENT, "config is NULL", NULL);
}

static void test_memory(void **unused) {
  (void)unused;
  double megabytes = 0;
  /* 1 x 6 heads, 16 chunks of 3 x 256^2 + 7 x 256 x 128 + 2 x 128^2 numbers of 4 bytes. */
  assert_int_equal(gdn2_seed_estimate_memory(1, 4096, 6, 128, 256, 4, &megabytes), GDN2_OK);
  assert_true(megabytes == 6 * 16 * (196608.0 + 229376 + 32768) * 4 / 1048576);
  assert_int_equal(gdn2_seed_estimate_memory(2, 255, 6, 128, 256, 4, &megabytes), GDN2_OK);
  assert_true(megabytes == 0);
  refused(gdn2_seed_estimate_memory(1, -1, 1, 1, 1, 1, &megabytes), GDN2_ERR_ARGUMENT, "seq_len", "-1", NULL);
  refused(gdn2_seed_estimate_memory(1, 1, 1, 1, 0, 1, &megabytes), GDN2_ERR_ARGUMENT, "bt", "0", NULL);
  refused(gdn2_seed_estimate_memory(1, 1, 1, 1, 1, 1, NULL), GDN2_ERR_ARGUMENT, "megabytes", NULL);
  const struct {
    int64_t batch;
    gdn2_seed_preset preset;
  } chosen[] = {
      {1, GDN2_SEED_SMALL}, {14, GDN2_SEED_SMALL}, {15, GDN2_SEED_MEDIUM}, {35, GDN2_SEED_MEDIUM}, {36, GDN2_SEED_LARGE}};
  for (int i = 0; i < 5; i++) { /* 168 MB a batch row */
    gdn2_seed_config got, want;
    assert_int_equal(gdn2_seed_recommended_config(chosen[i].batch, 4096, 6, 128, &got), GDN2_OK);
    assert_int_equal(gdn2_seed_config_preset(chosen[i].preset, &want), GDN2_OK);
    assert_true(got.bt == want.bt && got.clip == want.clip);
  }
}

static gdn2_seed_shape shape(int64_t a, int64_t b, int64_t c, int64_t d) { return (gdn2_seed_shape){4, {a, b, c, d}}; }

static void test_shapes(void **unused) {
  (void)unused;
  const gdn2_seed_config config = {64, 32, 16, 1e4, 1e-3};
  const gdn2_seed_shape t = shape(2, 128, 3, 128);
  const gdn2_seed_shapes right = {t, t, t, t, t, t, shape(2, 3, 128, 128)};
  gdn2_seed_shapes s = right;
  assert_int_equal(gdn2_seed_validate_strict(&s, &config), GDN2_OK);
  s.h0.ndim = 0;
  assert_int_equal(gdn2_seed_validate_strict(&s, &config), GDN2_OK);
  gdn2_seed_shape *const tensors[] = {&s.k, &s.v, &s.w, &s.b, &s.g};
  const char *const names[] = {"k has shape (2, 127, 3, 128)", "v has shape (2, 127, 3, 128)", "w has shape (2, 127, 3, 128)",
                               "b has shape (2, 127, 3, 128)", "g has shape (2, 127, 3, 128)"};
  for (int i = 0; i < 5; i++) {
    s = right;
    *tensors[i] = shape(2, 127, 3, 128);
    refused(gdn2_seed_validate(&s, &config), GDN2_ERR_SHAPE, names[i], "(2, 128, 3, 128)", NULL);
    refused(gdn2_seed_validate_strict(&s, &config), GDN2_ERR_SHAPE, names[i], NULL);
  }
  s = right;
  s.h0 = shape(2, 3, 128, 64);
  refused(gdn2_seed_validate(&s, &config), GDN2_ERR_SHAPE, "h0", "(2, 3, 128, 64)", "(2, 3, 128, 128)", NULL);
  s = right;
  s.q.ndim = 3;
  refused(gdn2_seed_validate(&s, &config), GDN2_ERR_SHAPE, "q has 3 dimensions", NULL);
  s = right;
  s.b.ndim = 3;
  refused(gdn2_seed_validate(&s, &config), GDN2_ERR_SHAPE, "b has 3 dimensions", NULL);
  s = right;
  s.q.dim[2] = -3;
  refused(gdn2_seed_validate(&s, &config), GDN2_ERR_SHAPE, "q has shape (2, 128, -3, 128)", NULL);
  refused(gdn2_seed_validate(NULL, &config), GDN2_ERR_ARGUMENT, "shapes is NULL", NULL);
}

/* The seed's own limits: only the strict check has them. */
static void test_lifted_limits(void **unused) {
  (void)unused;
  const gdn2_seed_config config = {64, 32, 16, 1e4, 1e-3};
  const gdn2_seed_shape keys = shape(2, 128, 3, 64), values = shape(2, 128, 3, 40), tail = shape(2, 100, 3, 128);
  const gdn2_seed_shapes small = {keys, keys, values, values, keys, keys, shape(2, 3, 64, 40)};
  const gdn2_seed_shapes short_of_a_chunk = {tail, tail, tail, tail, tail, tail, {0}};
  assert_int_equal(gdn2_seed_validate(&small, &config), GDN2_OK);
  refused(gdn2_seed_validate_strict(&small, &config), GDN2_ERR_SHAPE, "d_head", "64", "128", NULL);
  assert_int_equal(gdn2_seed_validate(&short_of_a_chunk, &config), GDN2_OK);
  refused(gdn2_seed_validate_strict(&short_of_a_chunk, &config), GDN2_ERR_SHAPE, "seq_len", "100", "64", NULL);
  gdn2_seed_shapes wide = small;
  wide.v = wide.w = shape(2, 128, 3, 257);
  refused(gdn2_seed_validate(&wide, &config), GDN2_ERR_SHAPE, "v", "257", "256", NULL);
}

/* ---- Calls ----------------------------------------------------------------------------------------------------------------- */

static gdn2_status forward(const seed_case *c) { return gdn2_seed_forward(&c->call, &c->in, c->o, c->h_final, &c->made); }

static void test_calls(void **unused) {
  (void)unused;
  seed_case right, c;
  seed_case_init(&right, 1, (const int64_t[]){1, 40, 2, 5, 3}, (gdn2_seed_config){16, 8, 4, 1e4, 1e-3}, 0.3);
  const struct {
    size_t field;
    int64_t value;
    const char *name, *text;
  } sizes[] = {{offsetof(gdn2_seed_call, B), -1, "call->B", "-1"},
               {offsetof(gdn2_seed_call, L), -7, "call->L", "-7"},
               {offsetof(gdn2_seed_call, H), -2, "call->H", "-2"},
               {offsetof(gdn2_seed_call, K), 0, "call->K", "0"},
               {offsetof(gdn2_seed_call, K), 257, "call->K", "257"},
               {offsetof(gdn2_seed_call, V), 0, "call->V", "0"},
               {offsetof(gdn2_seed_call, V), 300, "call->V", "300"},
               {offsetof(gdn2_seed_call, B), INT64_MAX, "overflow", "B"},
               {offsetof(gdn2_seed_call, L), INT64_MAX, "call->L", "must be"},
               {offsetof(gdn2_seed_call, L), INT64_MAX / 1000, "overflow", "L"}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    c = right;
    memcpy((char *)&c.call + sizes[i].field, &sizes[i].value, sizeof sizes[i].value);
    refused(forward(&c), GDN2_ERR_SHAPE, sizes[i].name, sizes[i].text, NULL);
  }
  c = right;
  c.call.struct_size = 8;
  refused(forward(&c), GDN2_ERR_ARGUMENT, "call->struct_size", "8", NULL);
  refused(gdn2_seed_token_serial(&c.call, &c.in, c.o, c.h_final), GDN2_ERR_ARGUMENT, "call->struct_size", NULL);
  c = right;
  c.call.exec.threads = -1;
  refused(forward(&c), GDN2_ERR_ARGUMENT, "call->exec.threads", "-1", NULL);
  c = right;
  c.call.exec.isa = (gdn2_isa)77;
  refused(forward(&c), GDN2_ERR_ISA, "exec.isa", "77", NULL);
  c = right;
  const gdn2_seed_config uneven = {16, 8, 3, 1e4, 0};
  c.call.config = &uneven;
  refused(forward(&c), GDN2_ERR_ARGUMENT, "config.bc", "8", "3", NULL);
  c = right;
  c.in.b = NULL;
  refused(forward(&c), GDN2_ERR_ARGUMENT, "inputs->b is NULL", NULL);
  c = right;
  c.in.b = (const void *)((const char *)c.in.b + 2);
  refused(forward(&c), GDN2_ERR_ARGUMENT, "inputs->b is 0x", "aligned to 4 bytes", NULL);
  c = right;
  c.made.v_new_all = NULL;
  refused(forward(&c), GDN2_ERR_ARGUMENT, "residuals->v_new_all is NULL", NULL);
  refused(gdn2_seed_forward(NULL, &right.in, right.o, right.h_final, NULL), GDN2_ERR_ARGUMENT, "call is NULL", NULL);
  /* None of these has written anything. */
  float *fresh = seed_array(seed_value_tokens(&right, "o"));
  expect_same_bits(&(tensor){"o", {1, 40, 2, 3}}, right.o, fresh);
  assert_int_equal(forward(&right), GDN2_OK);
}

static void test_chunked_reference(void **unused) {
  (void)unused;
  seed_case c;
  seed_case_init(&c, 1, (const int64_t[]){1, 40, 2, 5, 3}, (gdn2_seed_config){16, 8, 4, 1e4, 1e-3}, 0.3);
  refused(gdn2_seed_chunked_wy(&c.call, &c.in, 16, 0, c.o, c.h_final), GDN2_ERR_SHAPE, "call->L is 40", "chunk_size = 16", NULL);
  refused(gdn2_seed_chunked_wy(&c.call, &c.in, 0, 0, c.o, c.h_final), GDN2_ERR_ARGUMENT, "chunk_size is 0", NULL);
  refused(gdn2_seed_chunked_wy(&c.call, &c.in, 8, 1.5, c.o, c.h_final), GDN2_ERR_ARGUMENT, "wy_eps is 1.5", NULL);
  refused(gdn2_seed_forward_fallback(&c.call, &c.in, c.o, c.h_final), GDN2_ERR_SHAPE, "call->L is 40", "16", NULL);
  refused(gdn2_seed_to_chunks(&c.call, 4, c.o, c.made.u), GDN2_ERR_SHAPE, "D is 4", "K = 5", "V = 3", NULL);
  refused(gdn2_seed_sanitize(NULL, -1, c.o, c.o), GDN2_ERR_SHAPE, "n is -1", NULL);
  refused(gdn2_seed_sanitize(NULL, 1, NULL, c.o), GDN2_ERR_ARGUMENT, "x is NULL", NULL);
  refused(gdn2_seed_dav_backward(&c.call, c.made.Aqk, NULL, c.d_o, c.made.A, c.made.u), GDN2_ERR_ARGUMENT, "v_new is NULL", NULL);
  refused(gdn2_seed_wy_backward(&c.call, &(gdn2_seed_wy_inputs){.q = c.o}, &(gdn2_seed_wy_gradients){0}), GDN2_ERR_ARGUMENT,
          "inputs->k is NULL", NULL);
  refused(gdn2_seed_backward(&c.call, &c.in, NULL, c.d_o, NULL, &(gdn2_seed_gradients){.dq = c.o}), GDN2_ERR_ARGUMENT,
          "gradients->dk is NULL", NULL);
}

/* More memory than there are addresses, 192 MiB of residuals for each of two million rows of one number: a status, and nothing
 * held. */
static void test_no_memory(void **unused) {
  (void)unused;
  enum { ROWS = 1 << 21 };
  const gdn2_seed_config config = {4096, 64, 16, 1e4, 1e-3};
  const gdn2_seed_call call = {
      .struct_size = sizeof call, .B = ROWS, .L = 1, .H = 1, .K = 1, .V = 1, .config = &config, .exec.threads = 1};
  const float *x = test_floats(ROWS);
  float *o = test_floats(ROWS), *h_final = test_floats(ROWS);
  const gdn2_seed_inputs in = {x, x, x, x, x, x, NULL};
  refused(gdn2_seed_forward(&call, &in, o, h_final, NULL), GDN2_ERR_MEMORY, "no memory", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_presets), TEST(test_configurations),    TEST(test_memory),   TEST(test_shapes), TEST(test_lifted_limits),
      TEST(test_calls),   TEST(test_chunked_reference), TEST(test_no_memory)};
  return TEST_RUN(tests);
}
