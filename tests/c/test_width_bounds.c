/* Accuracy on inputs like a trained layer's, every option in use, against the bounds of tests/budgets_width.csv: one line a case
 * and tensor, about twice what was measured on the worst instruction set, and never above 1e-6. */
#include <math.h>

#include "test.h"
#include "width.h"

/* The bound of a case and tensor; a missing line fails. */
static double budget(const char *name, const char *output) {
  FILE *file = fopen(GDN2_BUDGETS, "r");
  if (!file) fail_msg("cannot open %s", GDN2_BUDGETS);
  char line[128], wanted[96];
  const size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s,%s,", name, output);
  double bound = -1;
  while (bound < 0 && fgets(line, sizeof line, file))
    if (strncmp(line, wanted, length) == 0) bound = strtod(line + length, NULL);
  fclose(file);
  if (bound < 0) fail_msg("%s has no line %s", GDN2_BUDGETS, wanted);
  assert_true(bound <= 1e-6);
  return bound;
}

static void expect_within_budget(const width_case *c, const char *name) {
  if (getenv("GDN2_TEST_VERBOSE")) print_message("  %s\n", name);
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  const width_truth want = width_oracle(c);
  const width_result got = width_run(c, GDN2_F32);
  expect_close(&o, got.o, want.o, budget(name, "o"));
  expect_close(&h, got.h_final, want.h_final, budget(name, "h_final"));
}

/* The parameters of layers in use: A_log from ln 1 to ln 16, dt from 1e-3 to 0.1 a token. */
static width_case trained(uint64_t seed, int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V, gdn2_decay decay) {
  rng r = {seed};
  width_case c = width_new(seed, 1, T, H, HV, K, V);
  width_make_raw_decay(&c, decay, seed);
  width_make_raw_gates(&c, GDN2_GATE_SIGMOID, GDN2_GATE_SIGMOID, seed);
  for (size_t i = 0; i < width_count(&c, W_A); i++) c.in[W_A][i] = width_round(GDN2_F32, log(rng_uniform(&r, 1, 16)));
  for (size_t i = 0; i < width_count(&c, W_DT); i++)
    c.in[W_DT][i] = width_round(GDN2_F32, log(expm1(exp(rng_uniform(&r, log(1e-3), log(0.1))))));
  for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, seed, 1);
  c.l2norm = true;
  return c;
}

static void test_softplus(void **state) {
  (void)state;
  const char *const names[] = {"softplus_f32", "softplus_bf16", "softplus_f16"};
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    width_case c = trained(1, 1000, 1, 2, 128, 128, GDN2_DECAY_SOFTPLUS);
    width_set_dtypes(&c, (gdn2_dtype)type);
    expect_within_budget(&c, names[type]);
  }
}

static void test_bounded(void **state) {
  (void)state;
  const char *const names[] = {"bounded_f32", "bounded_bf16", "bounded_f16"};
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    width_case c = trained(2, 1000, 1, 2, 100, 36, GDN2_DECAY_BOUNDED);
    width_set_dtypes(&c, (gdn2_dtype)type);
    expect_within_budget(&c, names[type]);
  }
}

static void test_per_head(void **state) {
  (void)state;
  width_case c = trained(3, 2000, 1, 2, 64, 64, GDN2_DECAY_SOFTPLUS);
  for (int i = W_G; i <= W_W; i++) width_make_per_head(&c, i);
  width_make_per_head(&c, W_DT);
  width_set_dtypes(&c, GDN2_BF16);
  expect_within_budget(&c, "per_head_bf16");
}

static void test_negative_eigenvalues(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 700, 701, 1500};
  width_case c = trained(4, 1500, 1, 2, 64, 48, GDN2_DECAY_SOFTPLUS);
  width_cut(&c, cu, 3, 4);
  c.erase = GDN2_GATE_TWO_SIGMOID;
  width_set_dtypes(&c, GDN2_BF16);
  expect_within_budget(&c, "two_sigmoid_bf16");
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_softplus), TEST(test_bounded), TEST(test_per_head),
                                     TEST(test_negative_eigenvalues)};
  return TEST_RUN(tests);
}
