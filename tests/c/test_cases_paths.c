/* Which engine a call takes: the vectorised one on the best instruction set, whatever its options, and the slow float64 path for
 * float64 alone. The linker leads the calls of the engines through the counters below (--wrap). */
#include "double/double.h"
#include "drive/drive.h"
#include "gradient.h"
#include "step.h"
#include "test.h"

typedef enum { NONE, FORWARD, BACKWARD, DECODE, SLOW_FORWARD, SLOW_BACKWARD, SLOW_DECODE } engine;
static engine taken;
static const gdn2_table *table;

#define WATCHED(NAME, ENGINE, IN, PARAMETERS, ...)                                                                               \
  void __real_##NAME PARAMETERS;                                                                                                 \
  void __wrap_##NAME PARAMETERS;                                                                                                 \
  void __wrap_##NAME PARAMETERS {                                                                                                \
    taken = ENGINE;                                                                                                              \
    table = IN.table;                                                                                                            \
    __real_##NAME(__VA_ARGS__);                                                                                                  \
  }
WATCHED(gdn2_drive_forward, FORWARD, call->in, (const gdn2_forward_call *call, void *workspace), call, workspace)
WATCHED(gdn2_drive_backward, BACKWARD, call->in, (const gdn2_backward_call *call, void *workspace), call, workspace)
WATCHED(gdn2_drive_step, DECODE, call->in, (const gdn2_step_call *call), call)
WATCHED(gdn2_double_forward, SLOW_FORWARD, call->in, (const gdn2_forward_call *call, void *workspace), call, workspace)
WATCHED(gdn2_double_backward, SLOW_BACKWARD, call->in, (const gdn2_backward_call *call, void *workspace), call, workspace)
WATCHED(gdn2_double_decode, SLOW_DECODE, call->in, (const gdn2_step_call *call), call)

static void expect_engine(const char *what, engine want) {
  gdn2_isa best;
  assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, &best), GDN2_OK);
  if (taken != want) fail_msg("%s took engine %d instead of %d", what, (int)taken, (int)want);
  if (table->isa != best) fail_msg("%s took %s instead of %s", what, gdn2_isa_name(table->isa), gdn2_isa_name(best));
  taken = NONE;
}

/* Forward, backward and decode of one problem. */
static void expect_engines(const char *what, const gradient_case *x, const width_layout *layout) {
  (void)width_run_as(&x->c, GDN2_F32, layout, (gdn2_exec){0});
  expect_engine(what, FORWARD);
  (void)gradient_run_as(x, GDN2_F32, layout, (gdn2_exec){0});
  expect_engine(what, BACKWARD);
  const step_how how = {.layout = layout};
  (void)step_run(&x->c, GDN2_F32, &how);
  expect_engine(what, DECODE);
}

static width_case plain(int64_t T) { return width_new(89, 1, T, 2, 4, 24, 17); }

static void test_every_option(void **state) {
  (void)state;
  static const int64_t cuts[] = {0, 3, 3, 20};
  gradient_case x = gradient_of(plain(1), 1);
  expect_engines("one token", &x, &width_contiguous);
  x = gradient_of(plain(20), 1);
  expect_engines("a sequence", &x, &width_contiguous);
  expect_engines("strided tensors", &x, &step_spread);
  expect_engines("V x K states", &x, &step_rows);
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    gradient_set_type(&x, (gdn2_dtype)type);
    expect_engines(width_dtype_name((gdn2_dtype)type), &x, &width_contiguous);
  }
  width_case c = plain(20);
  c.in[W_H0] = NULL;
  x = gradient_of(c, 1);
  expect_engines("no initial state", &x, &width_contiguous);
  c = plain(20);
  c.in[W_G] = c.in[W_B] = c.in[W_W] = NULL;
  x = gradient_of(c, 1);
  expect_engines("no gates", &x, &width_contiguous);
  c = plain(20);
  width_cut(&c, cuts, 3, 2);
  x = gradient_of(c, 1);
  expect_engines("packed sequences", &x, &width_contiguous);
  x = gradient_with_options(3, 1, 20, 24, 17, NULL, 0);
  expect_engines("every option", &x, &width_contiguous);
  x = gradient_with_options(3, 1, 20, 24, 17, cuts, 3);
  expect_engines("every option, packed", &x, &width_contiguous);
}

/* The watch is alive: float64 takes the other three. */
static void test_float64(void **state) {
  (void)state;
  static double q[24], v[17], o[17], dq[24];
  const gdn2_problem p = {.B = 1,
                          .T = 1,
                          .H = 1,
                          .K = 24,
                          .V = 17,
                          .q = {.data = q, .dtype = GDN2_F64},
                          .k = {.data = q, .dtype = GDN2_F64},
                          .v = {.data = v, .dtype = GDN2_F64}};
  const gdn2_output out = {.data = o, .dtype = GDN2_F64}, gradient = {.data = dq, .dtype = GDN2_F64};
  const gdn2_forward_args f = {.struct_size = sizeof f, .problem = p, .o = out};
  const gdn2_backward_args b = {.struct_size = sizeof b, .problem = p, .d_o = p.v, .dq = gradient};
  const gdn2_step_args s = {.struct_size = sizeof s, .problem = p, .o = out};
  assert_int_equal(gdn2_forward(&f), GDN2_OK);
  expect_engine("float64", SLOW_FORWARD);
  assert_int_equal(gdn2_backward(&b), GDN2_OK);
  expect_engine("float64", SLOW_BACKWARD);
  assert_int_equal(gdn2_step(&s), GDN2_OK);
  expect_engine("float64", SLOW_DECODE);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_every_option), TEST(test_float64)};
  return TEST_RUN(tests);
}
