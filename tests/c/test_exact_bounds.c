/* Accuracy on inputs like a trained layer's, against the bounds of tests/budgets.csv: one line a case and tensor. A bound is a
 * reviewed number: about twice what was measured, and never above 1e-6 for outputs, 2e-6 for gradients. */
#include <math.h>

#include "exact.h"
#include "test.h"

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
  return bound;
}

/* The outputs `wanted`. least: a reference below it would show nothing. */
static void expect_within_budget(const exact_case *c, const char *name, unsigned wanted, double least) {
  if (getenv("GDN2_TEST_VERBOSE")) print_message("  %s\n", name);
  const results got = engine_run_some(c, wanted, (gdn2_exec){0});
  const oracle want = oracle_run(c);
  for (int i = 0; i < OUTPUTS; i++) {
    if (!got.out[i]) continue;
    const tensor t = output_tensor(c, i);
    const double bound = budget(name, t.name), most = (1u << i) & OUT_FORWARD ? 1e-6 : 2e-6;
    assert_true(bound <= most);
    assert_true(root_mean_square(want.out[i], tensor_count(&t)) > least);
    expect_close_to_unit(&t, got.out[i], want.out[i], bound, 0);
  }
}

static void test_trained_128(void **state) {
  (void)state;
  const exact_case c = case_trained(1, 1, 1000, 2, 128, 128);
  expect_within_budget(&c, "trained_128x128", OUT_ALL, 1e-4);
}

static void test_trained_64_192(void **state) {
  (void)state;
  const exact_case c = case_trained(2, 1, 1000, 2, 64, 192);
  expect_within_budget(&c, "trained_64x192", OUT_ALL, 1e-4);
}

static void test_trained_100_36(void **state) {
  (void)state;
  const exact_case c = case_trained(3, 2, 1000, 2, 100, 36);
  expect_within_budget(&c, "trained_100x36", OUT_ALL, 1e-4);
}

static void test_trained_16(void **state) {
  (void)state;
  const exact_case c = case_trained(4, 2, 3000, 2, 16, 16);
  expect_within_budget(&c, "trained_16x16", OUT_ALL, 1e-4);
}

/* Constant decays, where dg and db are e^g in size: dg in the form of differences would have lost every digit. (dh0 is e^(1000
 * g).) */
static void test_constant_decays(void **state) {
  (void)state;
  const double decays[] = {-5, -20, -60};
  for (int n = 0; n < 3; n++) {
    char name[32];
    snprintf(name, sizeof name, "constant_g%g", decays[n]);
    exact_case c = case_trained(5, 1, 1000, 1, 128, 128);
    case_fill(&c, IN_G, decays[n]);
    expect_within_budget(&c, name, OUT_ALL & ~(1u << OUT_DH0), 1e-5 * exp(decays[n]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_trained_128), TEST(test_trained_64_192),  TEST(test_trained_100_36),
      TEST(test_trained_16),  TEST(test_constant_decays),
  };
  return TEST_RUN(tests);
}
