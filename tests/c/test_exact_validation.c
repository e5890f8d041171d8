/* What the door refuses: each wrong argument gives its status, a sentence that names it, and no write to any output. */
#include <ctype.h>

#include "exact.h"
#include "test.h"

/* One valid pair of calls; each test spoils a part of it. */
static exact_case c;
static results r;
static gdn2_forward_args f;
static gdn2_backward_args b;
static void *space;

static void fresh(void) {
  c = case_trained(1, 2, 5, 3, 7, 6);
  r = results_new(&c, OUT_ALL);
  f = forward_args(&c, &r);
  b = backward_args(&c, &r);
}

/* Sets a field of both calls. */
#define BOTH(field, value) (f.field = (value), b.field = (value))

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

static void expect_sentence(const char *call, gdn2_status got, gdn2_status want, const char *name) {
  if (got != want) fail_msg("%s, wrong %s: %s, must be %s", call, name, gdn2_status_name(got), gdn2_status_name(want));
  const char *sentence = gdn2_last_error();
  if (!names(sentence, name)) fail_msg("%s: the sentence does not name %s: \"%s\"", call, name, sentence);
  if (strlen(sentence) < strlen(name) + 10) fail_msg("%s: the sentence says too little: \"%s\"", call, sentence);
}

static void expect_untouched(void) {
  for (int i = 0; i < OUTPUTS; i++)
    for (size_t n = 0; n < output_count(&c, i); n++) {
      uint32_t bits;
      memcpy(&bits, r.out[i] + n, sizeof bits);
      if (bits != TEST_POISON) fail_msg("%s was written by a call that failed", output_tensor(&c, i).name);
    }
}

static void forward_refused(gdn2_status want, const char *name) {
  expect_sentence("gdn2_forward", gdn2_forward(&f), want, name);
  expect_untouched();
}

static void backward_refused(gdn2_status want, const char *name) {
  expect_sentence("gdn2_backward", gdn2_backward(&b), want, name);
  expect_untouched();
}

/* Both calls, and what they would say of their workspace. */
static void refused(gdn2_status want, const char *name) {
  size_t bytes = 77;
  forward_refused(want, name);
  backward_refused(want, name);
  expect_sentence("gdn2_forward_workspace", gdn2_forward_workspace(&f, &bytes), want, name);
  expect_sentence("gdn2_backward_workspace", gdn2_backward_workspace(&b, &bytes), want, name);
  assert_int_equal(bytes, 77);
  fresh();
}

static int set_up(void **state) {
  (void)state;
  fresh();
  return 0;
}

/* ---- Arguments ---- */

static void test_null(void **state) {
  (void)state;
  size_t bytes;
  expect_sentence("gdn2_forward", gdn2_forward(NULL), GDN2_ERR_ARGUMENT, "args");
  expect_sentence("gdn2_backward", gdn2_backward(NULL), GDN2_ERR_ARGUMENT, "args");
  expect_sentence("gdn2_forward_workspace", gdn2_forward_workspace(NULL, &bytes), GDN2_ERR_ARGUMENT, "args");
  expect_sentence("gdn2_backward_workspace", gdn2_backward_workspace(NULL, &bytes), GDN2_ERR_ARGUMENT, "args");
  expect_sentence("gdn2_forward_workspace", gdn2_forward_workspace(&f, NULL), GDN2_ERR_ARGUMENT, "bytes");
  expect_sentence("gdn2_backward_workspace", gdn2_backward_workspace(&b, NULL), GDN2_ERR_ARGUMENT, "bytes");
}

static void test_struct_size(void **state) {
  (void)state;
  const size_t wrong[] = {0, 8, sizeof f - 1, sizeof b + 64, SIZE_MAX};
  for (int n = 0; n < 5; n++) {
    BOTH(struct_size, wrong[n]);
    refused(GDN2_ERR_ARGUMENT, "struct_size");
  }
}

static void test_threads(void **state) {
  (void)state;
  BOTH(exec.threads, -1);
  refused(GDN2_ERR_ARGUMENT, "threads");
  BOTH(exec.threads, INT32_MIN);
  refused(GDN2_ERR_ARGUMENT, "threads");
}

static void test_isa(void **state) {
  (void)state;
  const int wrong[] = {-1, 50, 99};
  for (int n = 0; n < 3; n++) {
    BOTH(exec.isa, (gdn2_isa)wrong[n]);
    refused(GDN2_ERR_ISA, "isa");
  }
}

/* ---- Sizes ---- */

static void test_sizes(void **state) {
  (void)state;
  const int64_t negative[] = {-1, INT64_MIN};
  for (int n = 0; n < 2; n++) {
    BOTH(problem.B, negative[n]);
    refused(GDN2_ERR_SHAPE, "B");
    BOTH(problem.T, negative[n]);
    refused(GDN2_ERR_SHAPE, "T");
    BOTH(problem.H, negative[n]);
    refused(GDN2_ERR_SHAPE, "H");
  }
  const int64_t outside[] = {0, -1, GDN2_MAX_DIM + 1, INT64_MAX, INT64_MIN};
  for (int n = 0; n < 5; n++) {
    BOTH(problem.K, outside[n]);
    refused(GDN2_ERR_SHAPE, "K");
    BOTH(problem.V, outside[n]);
    refused(GDN2_ERR_SHAPE, "V");
  }
}

/* Sizes whose products overflow 64 bits: an error before anything is read, whatever of T, B and H is the large one. */
static void test_overflowing_sizes(void **state) {
  (void)state;
  const int64_t large[] = {INT64_MAX, INT64_MAX / 2, (int64_t)1 << 61};
  for (int n = 0; n < 3; n++) {
    BOTH(problem.T, large[n]);
    refused(GDN2_ERR_SHAPE, "T");
    BOTH(problem.B, large[n]);
    refused(GDN2_ERR_SHAPE, "B");
    BOTH(problem.H, large[n]);
    refused(GDN2_ERR_SHAPE, "H");
  }
  BOTH(problem.B, (int64_t)1 << 32);
  BOTH(problem.H, (int64_t)1 << 32);
  refused(GDN2_ERR_SHAPE, "B");
}

/* ---- Tensors ---- */

typedef struct named {
  const char *name;
  gdn2_input *forward, *backward; /* NULL: not of that call */
} named;

/* The inputs of both calls; the last two are the backward's only. */
static named input_at(int i) {
  const named all[INPUTS] = {
      {"q", &f.problem.q, &b.problem.q},    {"k", &f.problem.k, &b.problem.k},
      {"v", &f.problem.v, &b.problem.v},    {"g", &f.problem.g, &b.problem.g},
      {"b", &f.problem.b, &b.problem.b},    {"w", &f.problem.w, &b.problem.w},
      {"h0", &f.problem.h0, &b.problem.h0}, {"d_o", NULL, &b.d_o},
      {"dh_final", NULL, &b.dh_final},
  };
  return all[i];
}

static gdn2_output *output_at(int i) {
  gdn2_output *const all[OUTPUTS] = {&f.o, &f.h_final, &b.dq, &b.dk, &b.dv, &b.dg, &b.db, &b.dw, &b.dh0};
  return all[i];
}

static void input_refused(int i, gdn2_status want) {
  const named x = input_at(i);
  if (x.forward) forward_refused(want, x.name);
  backward_refused(want, x.name);
  fresh();
}

static void output_refused(int i, gdn2_status want) {
  const char *name = output_tensor(&c, i).name;
  if (i <= OUT_HF)
    forward_refused(want, name);
  else
    backward_refused(want, name);
  fresh();
}

static void set_input_strides(int i, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
  const named x = input_at(i);
  const int64_t stride[4] = {s0, s1, s2, s3};
  if (x.forward) memcpy(x.forward->stride, stride, sizeof stride);
  memcpy(x.backward->stride, stride, sizeof stride);
}

static void set_output_strides(int i, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
  const int64_t stride[4] = {s0, s1, s2, s3};
  memcpy(output_at(i)->stride, stride, sizeof stride);
}

static void test_missing_tensors(void **state) {
  (void)state;
  for (int i = IN_Q; i <= IN_V; i++) {
    input_at(i).forward->data = input_at(i).backward->data = NULL;
    input_refused(i, GDN2_ERR_ARGUMENT);
  }
}

static void test_dtypes(void **state) {
  (void)state;
  for (int i = 0; i < INPUTS; i++) {
    if (input_at(i).forward) input_at(i).forward->dtype = (gdn2_dtype)7;
    input_at(i).backward->dtype = (gdn2_dtype)7;
    input_refused(i, GDN2_ERR_DTYPE);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    output_at(i)->dtype = (gdn2_dtype)7;
    output_refused(i, GDN2_ERR_DTYPE);
  }
}

/* A pointer that is not a multiple of 4. */
static void test_misaligned_tensors(void **state) {
  (void)state;
  for (int i = 0; i < INPUTS; i++) {
    const void *odd = (const char *)c.in[i] + 2;
    if (input_at(i).forward) input_at(i).forward->data = odd;
    input_at(i).backward->data = odd;
    input_refused(i, GDN2_ERR_ARGUMENT);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    output_at(i)->data = (char *)output_at(i)->data + 1;
    output_refused(i, GDN2_ERR_ARGUMENT);
  }
}

/* A channel stride of 2 (one slice of an interleaved buffer) or -1 is refused, and 0 too where there is no gate per head. */
static void test_channel_strides(void **state) {
  (void)state;
  const int64_t wrong[] = {2, -1, INT64_MAX, 0};
  for (int n = 0; n < 4; n++)
    for (int i = 0; i < INPUTS; i++) {
      const bool gate = i >= IN_G && i <= IN_W, is_state = i == IN_H0 || i == IN_DHF;
      if (is_state || (gate && wrong[n] == 0)) continue;
      set_input_strides(i, 1000, 100, 20, wrong[n]);
      input_refused(i, GDN2_ERR_STRIDE);
    }
  for (int i = 0; i < OUTPUTS; i++) {
    if (i == OUT_HF || i == OUT_DH0) continue;
    set_output_strides(i, 1000, 100, 20, 2);
    output_refused(i, GDN2_ERR_STRIDE);
    if (i >= OUT_DG && i <= OUT_DW) continue;
    set_output_strides(i, 1000, 100, 20, 0);
    output_refused(i, GDN2_ERR_STRIDE);
  }
}

/* Outputs whose elements would lie on each other. */
static void test_overlapping_outputs(void **state) {
  (void)state;
  for (int i = 0; i < OUTPUTS; i++) {
    const bool is_state = i == OUT_HF || i == OUT_DH0;
    for (int axis = 0; axis < (is_state ? 4 : 3); axis++)
      for (int small = 0; small < 2; small++) {
        set_output_strides(i, 2000, 200, 20, 1);
        output_at(i)->stride[axis] = small ? (axis == 3 ? 20 : 1) : 0;
        output_refused(i, GDN2_ERR_STRIDE);
      }
    set_output_strides(i, 2000, -200, 200, 1);
    output_refused(i, GDN2_ERR_STRIDE);
  }
}

/* Strides that reach beyond the address space. */
static void test_overflowing_strides(void **state) {
  (void)state;
  const int64_t wrong[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 4};
  for (int n = 0; n < 4; n++)
    for (int axis = 0; axis < 3; axis++) {
      for (int i = 0; i < INPUTS; i++) {
        set_input_strides(i, 1000, 100, 20, 1);
        if (input_at(i).forward) input_at(i).forward->stride[axis] = wrong[n];
        input_at(i).backward->stride[axis] = wrong[n];
        input_refused(i, GDN2_ERR_STRIDE);
      }
      for (int i = 0; i < OUTPUTS; i++) {
        set_output_strides(i, 1000, 100, 20, 1);
        output_at(i)->stride[axis] = wrong[n];
        output_refused(i, GDN2_ERR_STRIDE);
      }
    }
}

/* Absent tensors are not looked at. */
static void test_absent_tensors_are_not_judged(void **state) {
  (void)state;
  const gdn2_input nothing = {NULL, (gdn2_dtype)7, {INT64_MAX, -3, 0, 5}};
  BOTH(problem.g, nothing);
  BOTH(problem.b, nothing);
  BOTH(problem.w, nothing);
  BOTH(problem.h0, nothing);
  b.d_o = nothing;
  f.h_final = (gdn2_output){NULL, (gdn2_dtype)7, {INT64_MAX, -3, 0, 5}};
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
}

/* ---- Workspace ---- */

static void test_bad_workspaces(void **state) {
  (void)state;
  size_t forward, backward;
  assert_int_equal(gdn2_forward_workspace(&f, &forward), GDN2_OK);
  assert_int_equal(gdn2_backward_workspace(&b, &backward), GDN2_OK);
  assert_true(forward > 0 && backward > 0);
  space = test_workspace(forward > backward ? forward : backward);
  BOTH(exec.workspace, space);
  f.exec.workspace_bytes = forward - 1;
  b.exec.workspace_bytes = backward - 1;
  forward_refused(GDN2_ERR_WORKSPACE, "workspace_bytes");
  backward_refused(GDN2_ERR_WORKSPACE, "workspace_bytes");
  BOTH(exec.workspace_bytes, 0);
  forward_refused(GDN2_ERR_WORKSPACE, "workspace_bytes");
  backward_refused(GDN2_ERR_WORKSPACE, "workspace_bytes");
  BOTH(exec.workspace, (char *)space + 4);
  f.exec.workspace_bytes = forward;
  b.exec.workspace_bytes = backward;
  forward_refused(GDN2_ERR_WORKSPACE, "workspace");
  backward_refused(GDN2_ERR_WORKSPACE, "workspace");
  BOTH(exec.workspace, space);
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
}

/* ---- Sentences ---- */

/* A call that succeeds leaves the last sentence as it was. */
static void test_sentence_stays(void **state) {
  (void)state;
  f.problem.K = 300;
  assert_int_equal(gdn2_forward(&f), GDN2_ERR_SHAPE);
  char sentence[512];
  snprintf(sentence, sizeof sentence, "%s", gdn2_last_error());
  f.problem.K = c.K;
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  assert_string_equal(gdn2_last_error(), sentence);
}

static void test_status_names(void **state) {
  (void)state;
  const char *const all[] = {"GDN2_OK",         "GDN2_ERR_ARGUMENT",  "GDN2_ERR_SHAPE", "GDN2_ERR_DTYPE", "GDN2_ERR_STRIDE",
                             "GDN2_ERR_MEMORY", "GDN2_ERR_WORKSPACE", "GDN2_ERR_ISA",   "GDN2_ERR_MPI"};
  for (int n = 0; n < 9; n++) assert_string_equal(gdn2_status_name((gdn2_status)n), all[n]);
  assert_non_null(gdn2_status_name((gdn2_status)99));
}

#define CHECK(test) cmocka_unit_test_setup_teardown(test, set_up, test_release)

int main(void) {
  const struct CMUnitTest tests[] = {
      CHECK(test_null),
      CHECK(test_struct_size),
      CHECK(test_threads),
      CHECK(test_isa),
      CHECK(test_sizes),
      CHECK(test_overflowing_sizes),
      CHECK(test_missing_tensors),
      CHECK(test_dtypes),
      CHECK(test_misaligned_tensors),
      CHECK(test_channel_strides),
      CHECK(test_overlapping_outputs),
      CHECK(test_overflowing_strides),
      CHECK(test_absent_tensors_are_not_judged),
      CHECK(test_bad_workspaces),
      CHECK(test_sentence_stays),
      CHECK(test_status_names),
  };
  return TEST_RUN(tests);
}
