/* The instruction sets against each other in one process, forced by exec.isa: they agree to rounding, and each is what it says.
 */
#include "exact.h"
#include "test.h"

static bool has(gdn2_isa isa) {
  gdn2_isa chosen = GDN2_ISA_AUTO;
  const gdn2_status status = gdn2_isa_choose(isa, &chosen);
  if (status != GDN2_OK) {
    assert_int_equal(status, GDN2_ERR_ISA);
    assert_non_null(strstr(gdn2_last_error(), gdn2_isa_name(isa)));
    return false;
  }
  assert_int_equal(chosen, isa);
  return true;
}

static void expect_agreement(const exact_case *c) {
  const results plain = engine_run_some(c, OUT_ALL, (gdn2_exec){.isa = GDN2_ISA_GENERIC});
  oracle middle;
  for (int i = 0; i < OUTPUTS; i++) {
    middle.out[i] = test_doubles(output_count(c, i));
    for (size_t n = 0; n < output_count(c, i); n++) middle.out[i][n] = plain.out[i][n];
  }
  for (gdn2_isa isa = GDN2_ISA_AVX2; isa <= GDN2_ISA_NEON; isa++)
    if (has(isa)) {
      const results got = engine_run_some(c, OUT_ALL, (gdn2_exec){.isa = isa});
      expect_right_to_unit(c, &got, &middle, 1e-6, 1e-4);
    }
}

static void test_sets_agree(void **state) {
  (void)state;
  const int64_t shapes[][5] = {
      {2, 37, 3, 5, 7}, {1, 65, 2, 100, 36}, {1, 130, 1, 128, 128}, {3, 16, 2, 17, 1}, {1, 33, 1, 3, 250}};
  for (int n = 0; n < 5; n++) {
    const int64_t *s = shapes[n];
    const exact_case c = case_trained(1 + (uint64_t)n, s[0], s[1], s[2], s[3], s[4]);
    expect_agreement(&c);
  }
}

/* A forced set wins over GDN2_ISA, and GDN2_ISA is what the default follows. */
static void test_choice(void **state) {
  (void)state;
  gdn2_isa chosen = GDN2_ISA_AUTO;
  for (gdn2_isa isa = GDN2_ISA_GENERIC; isa <= GDN2_ISA_NEON; isa++) {
    if (!has(isa)) continue;
    setenv("GDN2_ISA", gdn2_isa_name(isa), 1);
    assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, &chosen), GDN2_OK);
    assert_int_equal(chosen, isa);
    assert_int_equal(gdn2_isa_choose(GDN2_ISA_GENERIC, &chosen), GDN2_OK);
    assert_int_equal(chosen, GDN2_ISA_GENERIC);
  }
  setenv("GDN2_ISA", "", 1);
  assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, &chosen), GDN2_OK);
  unsetenv("GDN2_ISA");
  gdn2_isa unset = GDN2_ISA_AUTO;
  assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, &unset), GDN2_OK);
  assert_int_equal(chosen, unset);
}

/* The environment and exec.isa reach the same code: the same bits. */
static void test_environment_equals_argument(void **state) {
  (void)state;
  const exact_case c = case_trained(9, 1, 40, 2, 30, 20);
  for (gdn2_isa isa = GDN2_ISA_GENERIC; isa <= GDN2_ISA_NEON; isa++) {
    if (!has(isa)) continue;
    const results by_argument = engine_run_some(&c, OUT_ALL, (gdn2_exec){.isa = isa});
    setenv("GDN2_ISA", gdn2_isa_name(isa), 1);
    const results by_environment = engine_run(&c);
    unsetenv("GDN2_ISA");
    expect_equal(&c, &by_environment, &by_argument);
  }
}

/* A name that is none is an error of every call, and the sentence says so. */
static void test_unknown_name(void **state) {
  (void)state;
  const exact_case c = case_trained(10, 1, 3, 1, 4, 4);
  const results r = results_new(&c, OUT_ALL);
  const gdn2_forward_args forward = forward_args(&c, &r);
  const gdn2_backward_args backward = backward_args(&c, &r);
  gdn2_isa chosen = GDN2_ISA_AUTO;
  setenv("GDN2_ISA", "nonsense", 1);
  assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, &chosen), GDN2_ERR_ISA);
  assert_non_null(strstr(gdn2_last_error(), "nonsense"));
  assert_int_equal(gdn2_forward(&forward), GDN2_ERR_ISA);
  assert_non_null(strstr(gdn2_last_error(), "GDN2_ISA"));
  assert_int_equal(gdn2_backward(&backward), GDN2_ERR_ISA);
  unsetenv("GDN2_ISA");
  for (int i = 0; i < OUTPUTS; i++)
    for (size_t n = 0; n < output_count(&c, i); n++) {
      uint32_t bits;
      memcpy(&bits, r.out[i] + n, sizeof bits);
      assert_int_equal(bits, TEST_POISON);
    }
}

static void test_names(void **state) {
  (void)state;
  assert_string_equal(gdn2_isa_name(GDN2_ISA_AUTO), "auto");
  assert_string_equal(gdn2_isa_name(GDN2_ISA_GENERIC), "generic");
  assert_string_equal(gdn2_isa_name(GDN2_ISA_AVX2), "avx2");
  assert_string_equal(gdn2_isa_name(GDN2_ISA_AVX512), "avx512");
  assert_string_equal(gdn2_isa_name(GDN2_ISA_NEON), "neon");
  assert_string_equal(gdn2_isa_name((gdn2_isa)99), "unknown");
  assert_int_equal(gdn2_isa_choose(GDN2_ISA_AUTO, NULL), GDN2_ERR_ARGUMENT);
  assert_true(gdn2_threads(3) >= 1 && gdn2_threads(3) <= 3 && gdn2_threads(0) >= 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_sets_agree), TEST(test_choice), TEST(test_environment_equals_argument), TEST(test_unknown_name), TEST(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
