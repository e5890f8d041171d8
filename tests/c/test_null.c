/* Every function that the library exports, called with NULL: a status and a sentence where a pointer must be given, the
 * documented answer where it need not be, and no crash. The list of functions is tests/house/symbols.txt. */
#include "seed_functions.h"
#include "test.h"

static void expect(gdn2_status status, const char *words) {
  if (status != GDN2_ERR_ARGUMENT) fail_msg("%s instead of GDN2_ERR_ARGUMENT, for \"%s\"", gdn2_status_name(status), words);
  if (!strstr(gdn2_last_error(), words)) fail_msg("\"%s\" lacks \"%s\"", gdn2_last_error(), words);
}

/* ---- Struct arguments: none, and one all of whose pointers are NULL ---------------------------------------------------------
 */

#define ONE_TOKEN .B = 1, .T = 1, .H = 1, .K = 1, .V = 1
#define BARE(type, ...) (&(type){.struct_size = sizeof(type), .problem = {__VA_ARGS__}})

static void forward(void) {
  expect(gdn2_forward(NULL), "args is NULL");
  expect(gdn2_forward(BARE(gdn2_forward_args, ONE_TOKEN)), "q: data is NULL");
}
static void forward_workspace(void) {
  size_t bytes;
  expect(gdn2_forward_workspace(NULL, &bytes), "args is NULL");
  expect(gdn2_forward_workspace(BARE(gdn2_forward_args, ONE_TOKEN), NULL), "bytes is NULL");
  expect(gdn2_forward_workspace(NULL, NULL), "is NULL");
}
static void backward(void) {
  expect(gdn2_backward(NULL), "args is NULL");
  expect(gdn2_backward(BARE(gdn2_backward_args, ONE_TOKEN)), "q: data is NULL");
}
static void backward_workspace(void) {
  size_t bytes;
  expect(gdn2_backward_workspace(NULL, &bytes), "args is NULL");
  expect(gdn2_backward_workspace(BARE(gdn2_backward_args, ONE_TOKEN), NULL), "bytes is NULL");
  expect(gdn2_backward_workspace(NULL, NULL), "is NULL");
}
static void step(void) {
  expect(gdn2_step(NULL), "args is NULL");
  expect(gdn2_step(BARE(gdn2_step_args, ONE_TOKEN)), "q: data is NULL");
  gdn2_step_args args = *BARE(gdn2_step_args, ONE_TOKEN);
  const float x[1] = {1};
  const int32_t none[1] = {0};
  args.problem.q.data = args.problem.k.data = args.problem.v.data = x;
  args.accepted = none, args.history_length = 1;
  expect(gdn2_step(&args), "history: data is NULL");
}
static void conv_forward(void) {
  expect(gdn2_conv_forward(NULL), "args is NULL");
  expect(gdn2_conv_forward(BARE(gdn2_conv_forward_args, .B = 1, .T = 1, .D = 1, .W = 2)), "x: data is NULL");
}
static void conv_backward(void) {
  expect(gdn2_conv_backward(NULL), "args is NULL");
  expect(gdn2_conv_backward(BARE(gdn2_conv_backward_args, .B = 1, .T = 1, .D = 1, .W = 2)), "x: data is NULL");
}
static void conv_backward_workspace(void) {
  size_t bytes;
  expect(gdn2_conv_backward_workspace(NULL, &bytes), "args is NULL");
  expect(gdn2_conv_backward_workspace(BARE(gdn2_conv_backward_args, .W = 2), NULL), "bytes is NULL");
}
static void norm_forward(void) {
  expect(gdn2_norm_forward(NULL), "args is NULL");
  expect(gdn2_norm_forward(BARE(gdn2_norm_forward_args, .B = 1, .T = 1, .H = 1, .D = 1)), "x: data is NULL");
}
static void norm_backward(void) {
  expect(gdn2_norm_backward(NULL), "args is NULL");
  expect(gdn2_norm_backward(BARE(gdn2_norm_backward_args, .B = 1, .T = 1, .H = 1, .D = 1)), "x: data is NULL");
}
static void norm_backward_workspace(void) {
  size_t bytes;
  expect(gdn2_norm_backward_workspace(NULL, &bytes), "args is NULL");
  expect(gdn2_norm_backward_workspace(BARE(gdn2_norm_backward_args, .D = 1), NULL), "bytes is NULL");
}

/* ---- Introspection ----------------------------------------------------------------------------------------------------------
 */

static void isa_choose(void) { expect(gdn2_isa_choose(GDN2_ISA_AUTO, NULL), "chosen is NULL"); }
static void no_pointers(void) {
  assert_non_null(gdn2_version());
  assert_non_null(gdn2_last_error());
  assert_non_null(gdn2_status_name((gdn2_status)0));
  assert_non_null(gdn2_isa_name((gdn2_isa)0));
  assert_non_null(gdn2_stage_name((gdn2_stage)0));
  assert_null(gdn2_cpu_feature_name(0));
  assert_true(gdn2_threads(0) >= 1);
  (void)gdn2_cpu_features();
  (void)gdn2_seed_diag_wanted();
}

/* ---- The seed's -------------------------------------------------------------------------------------------------------------
 */

static void seed_config(void) {
  const gdn2_seed_shapes shapes = {.q = {.ndim = 4}};
  gdn2_seed_config config;
  assert_int_equal(gdn2_seed_config_preset(GDN2_SEED_DEFAULT, &config), GDN2_OK);
  expect(gdn2_seed_config_preset(GDN2_SEED_DEFAULT, NULL), "config is NULL");
  expect(gdn2_seed_config_check(NULL), "config is NULL");
  expect(gdn2_seed_config_check_strict(NULL), "config is NULL");
  expect(gdn2_seed_recommended_config(1, 1, 1, 1, NULL), "config is NULL");
  expect(gdn2_seed_estimate_memory(1, 1, 1, 1, 1, 1, NULL), "megabytes is NULL");
  expect(gdn2_seed_validate(NULL, &config), "shapes is NULL");
  expect(gdn2_seed_validate(&shapes, NULL), "config is NULL");
  expect(gdn2_seed_validate_strict(NULL, &config), "shapes is NULL");
  expect(gdn2_seed_validate_strict(&shapes, NULL), "config is NULL");
}

static void seed_report_text(void) {
  const gdn2_seed_report report = {.tag = "a", .stage = "b", .replaced = 3};
  gdn2_seed_report broken = report;
  char text[64] = "as it was";
  const int length = gdn2_seed_report_text(&report, NULL, 0);
  assert_int_equal(length, gdn2_seed_report_text(&report, text, sizeof text));
  assert_int_equal(length, strlen(text));
  assert_int_equal(gdn2_seed_report_text(NULL, text, sizeof text), -1);
  assert_non_null(strstr(gdn2_last_error(), "report is NULL"));
  assert_int_equal(gdn2_seed_report_text(NULL, NULL, 0), -1);
  assert_int_equal(gdn2_seed_report_text(&report, NULL, 5), -1);
  assert_non_null(strstr(gdn2_last_error(), "text is NULL"));
  broken.tag = NULL;
  assert_int_equal(gdn2_seed_report_text(&broken, text, sizeof text), -1);
  assert_non_null(strstr(gdn2_last_error(), "report->tag is NULL"));
  broken = report, broken.stage = NULL;
  assert_int_equal(gdn2_seed_report_text(&broken, text, sizeof text), -1);
  assert_non_null(strstr(gdn2_last_error(), "report->stage is NULL"));
}

static void seed_clips(void) {
  gdn2_status (*const clips[])(const gdn2_seed_config *, int64_t, const float *,
                               float *) = {gdn2_seed_sanitize, gdn2_seed_sanitize_h0, gdn2_seed_clip_acc};
  float x[2] = {1, 2};
  for (int i = 0; i < 3; i++) {
    expect(clips[i](NULL, 1, NULL, x), "x is NULL");
    expect(clips[i](NULL, 1, x, NULL), "y is NULL");
    assert_int_equal(clips[i](NULL, 1, x, x + 1), GDN2_OK);
  }
}

/* Where arrays come in structs. */
static void seed_structs(void) {
  static float zeros[SEED_LARGEST_ARRAY], out[2][SEED_LARGEST_ARRAY];
  const gdn2_seed_call *c = &seed_small_call;
  const gdn2_seed_inputs in = {zeros, zeros, zeros, zeros, zeros, zeros, NULL};
  expect(gdn2_seed_forward(c, NULL, out[0], out[1], NULL), "inputs is NULL");
  expect(gdn2_seed_token_serial(c, NULL, out[0], out[1]), "inputs is NULL");
  expect(gdn2_seed_chunked_wy(c, NULL, 1, 0, out[0], out[1]), "inputs is NULL");
  expect(gdn2_seed_forward_fallback(c, NULL, out[0], out[1]), "inputs is NULL");
  expect(gdn2_seed_backward(c, NULL, NULL, zeros, NULL, &(gdn2_seed_gradients){0}), "inputs is NULL");
  expect(gdn2_seed_backward(c, &in, NULL, zeros, NULL, NULL), "gradients is NULL");
  expect(gdn2_seed_wy_backward(c, NULL, &(gdn2_seed_wy_gradients){0}), "inputs is NULL");
  expect(gdn2_seed_wy_backward(c, &(gdn2_seed_wy_inputs){0}, NULL), "gradients is NULL");
}

/* One array after the other. */
static void seed_arrays(void) {
  static float memory[SEED_MOST_ARRAYS][SEED_LARGEST_ARRAY];
  for (size_t n = 0; n < seed_function_count; n++) {
    const seed_function *f = &seed_functions[n];
    float *array[SEED_MOST_ARRAYS] = {NULL};
    expect(f->run(NULL, array), "call is NULL");
    for (int x = 0; x < SEED_MOST_ARRAYS; x++) array[x] = memory[x];
    for (int x = 0; f->arrays[x].name; x++) {
      char words[64];
      snprintf(words, sizeof words, "%s is NULL", f->arrays[x].name);
      array[x] = NULL;
      if (f->arrays[x].optional)
        assert_int_equal(f->run(&seed_small_call, array), GDN2_OK);
      else
        expect(f->run(&seed_small_call, array), words);
      array[x] = memory[x];
    }
  }
}

/* ---- The list ---------------------------------------------------------------------------------------------------------------
 */

static const struct {
  const char *name;
  void (*call)(void);
} functions[] = {
    {"gdn2_backward", backward},
    {"gdn2_backward_workspace", backward_workspace},
    {"gdn2_conv_backward", conv_backward},
    {"gdn2_conv_backward_workspace", conv_backward_workspace},
    {"gdn2_conv_forward", conv_forward},
    {"gdn2_cpu_feature_name", no_pointers},
    {"gdn2_cpu_features", no_pointers},
    {"gdn2_forward", forward},
    {"gdn2_forward_workspace", forward_workspace},
    {"gdn2_isa_choose", isa_choose},
    {"gdn2_isa_name", no_pointers},
    {"gdn2_last_error", no_pointers},
    {"gdn2_norm_backward", norm_backward},
    {"gdn2_norm_backward_workspace", norm_backward_workspace},
    {"gdn2_norm_forward", norm_forward},
    {"gdn2_seed_clip_acc", seed_clips},
    {"gdn2_seed_config_check", seed_config},
    {"gdn2_seed_config_check_strict", seed_config},
    {"gdn2_seed_config_preset", seed_config},
    {"gdn2_seed_diag_wanted", no_pointers},
    {"gdn2_seed_estimate_memory", seed_config},
    {"gdn2_seed_recommended_config", seed_config},
    {"gdn2_seed_report_text", seed_report_text},
    {"gdn2_seed_sanitize", seed_clips},
    {"gdn2_seed_sanitize_h0", seed_clips},
    {"gdn2_seed_validate", seed_config},
    {"gdn2_seed_validate_strict", seed_config},
    {"gdn2_stage_name", no_pointers},
    {"gdn2_status_name", no_pointers},
    {"gdn2_step", step},
    {"gdn2_threads", no_pointers},
    {"gdn2_version", no_pointers},
};

static void test_functions(void **state) {
  (void)state;
  for (size_t n = 0; n < sizeof functions / sizeof *functions; n++) functions[n].call();
  seed_structs();
  seed_arrays();
}

static bool is_called(const char *name) {
  const char *seed = "gdn2_seed_";
  for (size_t n = 0; n < sizeof functions / sizeof *functions; n++)
    if (strcmp(functions[n].name, name) == 0) return true;
  for (size_t n = 0; n < seed_function_count && strncmp(name, seed, strlen(seed)) == 0; n++)
    if (strcmp(seed_functions[n].name, name + strlen(seed)) == 0) return true;
  return false;
}

/* A function that is exported from now on must get its call here. Handlers of XLA are given a frame by XLA alone. */
static void test_the_list_is_whole(void **state) {
  (void)state;
  char name[128];
  int count = 0;
  FILE *file = fopen(GDN2_SYMBOLS, "r");
  assert_non_null(file);
  for (; fscanf(file, "%127s", name) == 1; count++)
    if (strncmp(name, "gdn2_xla_", 9) != 0 && !is_called(name)) fail_msg("%s is called nowhere in this file", name);
  (void)fclose(file);
  assert_true(count > 40);
  assert_false(is_called("gdn2_seed_nothing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_functions), TEST(test_the_list_is_whole)};
  return TEST_RUN(tests);
}
