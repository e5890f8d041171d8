/* Numbers of a call that are none, and parameters that belong to nothing in it, are refused by every function that takes them:
 * with a sentence that has the name, the value and what it must be, and no write. */
#include <math.h>

#include "seed_functions.h"
#include "test.h"

enum { ROOM = 64 };

/* What a call may read and write, of either type. */
typedef union {
  float narrow[ROOM];
  double wide[ROOM];
} room;
static room in, out[2], untouched;

static int set_up(void **state) {
  (void)state;
  memset(&in, 0, sizeof in);
  memset(&untouched, 0x5a, sizeof untouched);
  out[0] = out[1] = untouched;
  return 0;
}

static void refused(gdn2_status status, const char *name, double value, const char *wanted) {
  char words[64];
  if (status != GDN2_ERR_ARGUMENT) fail_msg("%s = %g: %s", name, value, gdn2_status_name(status));
  snprintf(words, sizeof words, "%s is %g; it must be", name, value);
  if (!strstr(gdn2_last_error(), words) || !strstr(gdn2_last_error(), wanted))
    fail_msg("\"%s\" lacks \"%s\" or \"%s\"", gdn2_last_error(), words, wanted);
  assert_memory_equal(&out[0], &untouched, sizeof untouched);
  assert_memory_equal(&out[1], &untouched, sizeof untouched);
}

/* ---- The rule and decode ----------------------------------------------------------------------------------------------------
 */

static gdn2_problem problem(gdn2_dtype type) {
  const gdn2_input x = {.data = &in, .dtype = type};
  return (gdn2_problem){.B = 1, .T = 1, .H = 1, .K = 2, .V = 3, .q = x, .k = x, .v = x};
}

/* The problem in each of the five functions that take one. */
enum { RULE_CALLS = 5 };
static gdn2_status run(int n, gdn2_problem p) {
  const gdn2_output o = {.data = &out[0], .dtype = p.q.dtype}, d = {.data = &out[1], .dtype = p.q.dtype};
  const gdn2_forward_args f = {.struct_size = sizeof f, .problem = p, .o = o};
  const gdn2_backward_args b = {.struct_size = sizeof b, .problem = p, .d_o = p.v, .dq = d};
  const gdn2_step_args s = {.struct_size = sizeof s, .problem = p, .o = o};
  size_t bytes = 77;
  gdn2_status status = GDN2_OK;
  switch (n) {
  case 0: return gdn2_forward(&f);
  case 1: return gdn2_backward(&b);
  case 2: return gdn2_step(&s);
  case 3: status = gdn2_forward_workspace(&f, &bytes); break;
  default: status = gdn2_backward_workspace(&b, &bytes); break;
  }
  assert_true((bytes == 77) == (status != GDN2_OK));
  return status;
}

static void all_take(gdn2_problem p) {
  for (int n = 0; n < RULE_CALLS; n++)
    if (run(n, p) != GDN2_OK) fail_msg("call %d: \"%s\"", n, gdn2_last_error());
  (void)set_up(NULL);
}

static void test_scale(void **state) {
  (void)state;
  const double wrong[] = {NAN, INFINITY, -INFINITY, 1e39, -1e300};
  gdn2_problem p = problem(GDN2_F32), wide = problem(GDN2_F64);
  for (int i = 0; i < 5; i++)
    for (int n = 0; n < RULE_CALLS; n++) {
      p.scale = wide.scale = &wrong[i];
      refused(run(n, p), "scale", wrong[i], "finite as a float32");
      if (i < 3) refused(run(n, wide), "scale", wrong[i], "finite as a float64");
    }
  wide.scale = &wrong[4];
  all_take(wide);
  const double right[] = {0, -2, 3e38, 1e-300};
  for (int i = 0; i < 4; i++) {
    p.scale = &right[i];
    all_take(p);
  }
}

static void test_lower_bound(void **state) {
  (void)state;
  const double wrong[] = {NAN, INFINITY, -INFINITY, -1e39, 0, 3};
  gdn2_problem p = problem(GDN2_F32);
  p.g = p.A_log = p.q;
  p.decay = GDN2_DECAY_BOUNDED;
  for (int i = 0; i < 6; i++)
    for (int n = 0; n < RULE_CALLS; n++) {
      p.lower_bound = wrong[i];
      refused(run(n, p), "lower_bound", wrong[i], "below 0 and finite as a float32");
    }
  p.lower_bound = -5;
  all_take(p);
}

/* lower_bound belongs to the bounded decay alone, A_log and dt_bias to raw decays: a caller who gives them means one. */
static void test_parameters_of_another_decay(void **state) {
  (void)state;
  const double wrong[] = {NAN, INFINITY, -INFINITY, -5, 1e-300};
  gdn2_problem p = problem(GDN2_F32);
  p.g = p.q;
  for (int decay = GDN2_DECAY_LOG; decay <= GDN2_DECAY_SOFTPLUS; decay++)
    for (int i = 0; i < 5; i++)
      for (int n = 0; n < RULE_CALLS; n++) {
        gdn2_problem x = p;
        x.decay = (gdn2_decay)decay;
        if (decay == GDN2_DECAY_SOFTPLUS) x.A_log = p.q;
        x.lower_bound = wrong[i];
        refused(run(n, x), "lower_bound", wrong[i], "0 where decay is not GDN2_DECAY_BOUNDED (2)");
      }
  for (int which = 0; which < 2; which++)
    for (int n = 0; n < RULE_CALLS; n++) {
      gdn2_problem x = p;
      *(which ? &x.dt_bias : &x.A_log) = p.q;
      assert_int_equal(run(n, x), GDN2_ERR_ARGUMENT);
      assert_string_equal(gdn2_last_error(), which ? "dt_bias is given; it must be absent where decay is GDN2_DECAY_LOG (0)"
                                                   : "A_log is given; it must be absent where decay is GDN2_DECAY_LOG (0)");
      x.decay = GDN2_DECAY_SOFTPLUS;
      x.A_log = p.q;
      assert_int_equal(run(n, x), GDN2_OK);
    }
  (void)set_up(NULL);
  all_take(p);
}

/* ---- The norm ---------------------------------------------------------------------------------------------------------------
 */

static gdn2_status run_norm(int n, gdn2_dtype type, double eps) {
  const gdn2_input x = {.data = &in, .dtype = type};
  const gdn2_norm_problem p = {.B = 1, .T = 1, .H = 1, .D = 3, .x = x, .eps = eps};
  const gdn2_norm_forward_args f = {.struct_size = sizeof f, .problem = p, .y = {.data = &out[0], .dtype = type}};
  const gdn2_norm_backward_args b = {.struct_size = sizeof b, .problem = p, .dy = x, .dx = {.data = &out[1], .dtype = type}};
  size_t bytes = 0;
  return n == 0 ? gdn2_norm_forward(&f) : n == 1 ? gdn2_norm_backward(&b) : gdn2_norm_backward_workspace(&b, &bytes);
}

static void test_eps(void **state) {
  (void)state;
  const double wrong[] = {NAN, INFINITY, 1e39, -1e-6, -INFINITY};
  for (int i = 0; i < 5; i++)
    for (int n = 0; n < 3; n++) {
      refused(run_norm(n, GDN2_F32, wrong[i]), "eps", wrong[i], "finite");
      if (i != 2) refused(run_norm(n, GDN2_F64, wrong[i]), "eps", wrong[i], "finite");
    }
  for (int n = 0; n < 3; n++) {
    assert_int_equal(run_norm(n, GDN2_F64, 1e39), GDN2_OK);
    assert_int_equal(run_norm(n, GDN2_F32, 1e-6), GDN2_OK);
  }
}

/* ---- The seed's -------------------------------------------------------------------------------------------------------------
 */

static void run_seed(gdn2_seed_call call, const char *name, double value, const char *wanted) {
  static float arrays[SEED_MOST_ARRAYS][SEED_LARGEST_ARRAY];
  float *array[SEED_MOST_ARRAYS];
  for (int x = 0; x < SEED_MOST_ARRAYS; x++) array[x] = arrays[x];
  for (size_t n = 0; n < seed_function_count; n++) {
    const bool configured =
        strcmp(seed_functions[n].name, "token_serial") != 0 && strcmp(seed_functions[n].name, "chunked_wy") != 0;
    if (strncmp(name, "config", 6) != 0 || configured) refused(seed_functions[n].run(&call, array), name, value, wanted);
  }
}

static void test_seed(void **state) {
  (void)state;
  const double wrong[] = {NAN, INFINITY, -INFINITY, 1e39};
  for (int i = 0; i < 4; i++) {
    gdn2_seed_call call = seed_small_call;
    call.scale = &wrong[i];
    run_seed(call, "call->scale", wrong[i], "finite as a float32");
    gdn2_seed_config config = *seed_small_call.config;
    call = seed_small_call, call.config = &config;
    config.wy_eps = wrong[i];
    run_seed(call, "config.wy_eps", wrong[i], "in [0, 1)");
    config.wy_eps = 0;
    if (wrong[i] > 0) continue;
    config.clip = wrong[i];
    run_seed(call, "config.clip", wrong[i], "0 or more");
  }
  const gdn2_seed_inputs some = {in.narrow, in.narrow, in.narrow, in.narrow, in.narrow, in.narrow, NULL};
  gdn2_seed_call tiny = seed_small_call;
  tiny.L = tiny.H = tiny.K = tiny.V = 1;
  for (int i = 0; i < 4; i++)
    refused(gdn2_seed_chunked_wy(&tiny, &some, 1, wrong[i], out[0].narrow, out[1].narrow), "wy_eps", wrong[i], "in [0, 1)");
}

#define CHECK(test) cmocka_unit_test_setup(test, set_up)

int main(void) {
  const struct CMUnitTest tests[] = {CHECK(test_scale), CHECK(test_lower_bound), CHECK(test_parameters_of_another_decay),
                                     CHECK(test_eps), CHECK(test_seed)};
  return TEST_RUN(tests);
}
