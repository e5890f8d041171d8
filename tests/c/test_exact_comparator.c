/* The tests' own tools: would they notice? A kernel with a known fault must be rejected, and so must a wrong element, a NaN, a
 * reference that is small, and a byte written beside an array. */
#include <math.h>

#include "loop.h"
#include "test.h"

/* The plain loop and the oracle were written apart; they must agree to float64. */
static void test_oracle_agrees_with_plain_loop(void **state) {
  (void)state;
  const exact_case c = case_trained(1, 2, 53, 3, 7, 5);
  double *o = test_doubles(output_count(&c, OUT_O)), *h = test_doubles(output_count(&c, OUT_HF));
  loop_forward(&c, LOOP_RIGHT, o, h);
  const oracle want = oracle_run(&c);
  for (size_t i = 0; i < output_count(&c, OUT_O); i++) assert_true(fabs(o[i] - want.out[OUT_O][i]) < 1e-13);
  for (size_t i = 0; i < output_count(&c, OUT_HF); i++) assert_true(fabs(h[i] - want.out[OUT_HF][i]) < 1e-13);
}

/* Each faulty kernel is further from the oracle, in o or in h_final, than the bound of the tests by a factor of 1000. */
static void test_faulty_kernels_are_rejected(void **state) {
  (void)state;
  const exact_case c = case_trained(2, 1, 24, 2, 8, 8);
  const oracle want = oracle_run(&c);
  double *o = test_doubles(output_count(&c, OUT_O)), *h = test_doubles(output_count(&c, OUT_HF));
  float *of = test_floats(output_count(&c, OUT_O)), *hf = test_floats(output_count(&c, OUT_HF));
  for (loop_fault fault = LOOP_RIGHT; fault < LOOP_FAULTS; fault++) {
    loop_forward(&c, fault, o, h);
    for (size_t i = 0; i < output_count(&c, OUT_O); i++) of[i] = (float)o[i];
    for (size_t i = 0; i < output_count(&c, OUT_HF); i++) hf[i] = (float)h[i];
    const double error_o = relative_error(of, want.out[OUT_O], output_count(&c, OUT_O));
    const double error_h = relative_error(hf, want.out[OUT_HF], output_count(&c, OUT_HF));
    if (fault == LOOP_RIGHT)
      assert_true(error_o < 1e-7 && error_h < 1e-7);
    else if (!(error_o > 1e-3))
      fail_msg("fault %d would pass: o is off by %.1e only, h_final by %.1e", (int)fault, error_o, error_h);
  }
}

/* h_final as a kernel would store it with the wrong axis first. */
static void test_transposed_state_is_rejected(void **state) {
  (void)state;
  const exact_case c = case_trained(3, 1, 24, 2, 8, 8);
  const oracle want = oracle_run(&c);
  float *transposed = test_floats(output_count(&c, OUT_HF));
  for (int64_t h = 0; h < c.H; h++)
    for (int64_t d = 0; d < c.K; d++)
      for (int64_t e = 0; e < c.V; e++) transposed[(h * c.K + d) * c.V + e] = (float)want.out[OUT_HF][(h * c.V + e) * c.K + d];
  assert_true(relative_error(transposed, want.out[OUT_HF], output_count(&c, OUT_HF)) > 0.1);
}

/* ---- Errors planted into a right answer; expect_close is run in a way that catches its failure ---- */

static exact_case planted;
static float *answer;
static double *truth;

static void make_answer(void) {
  planted = case_trained(4, 1, 24, 2, 8, 8);
  truth = oracle_run(&planted).out[OUT_O];
  answer = test_floats(output_count(&planted, OUT_O));
  for (size_t i = 0; i < output_count(&planted, OUT_O); i++) answer[i] = (float)truth[i];
}

static double error_now(void) { return relative_error(answer, truth, output_count(&planted, OUT_O)); }

static void test_planted_errors_are_seen(void **state) {
  (void)state;
  make_answer();
  assert_true(error_now() < 1e-7);
  answer[100] += 1e-3f;
  assert_true(error_now() > 1e-5);
  answer[100] = NAN;
  assert_true(isinf(error_now()));
  answer[100] = INFINITY;
  assert_true(isinf(error_now()));
}

/* Each of these must fail; the program runs them apart (see main) and counts the failures. */
static void must_fail_small_reference(void **state) {
  (void)state;
  make_answer();
  for (size_t i = 0; i < output_count(&planted, OUT_O); i++) answer[i] = (float)(truth[i] *= 1e-6);
  const tensor t = output_tensor(&planted, OUT_O);
  expect_close(&t, answer, truth, 1e-6);
}

static void must_fail_untouched_output(void **state) {
  (void)state;
  make_answer();
  const tensor t = output_tensor(&planted, OUT_O);
  expect_close(&t, test_floats(tensor_count(&t)), truth, 1e-6);
}

static void must_fail_one_bit(void **state) {
  (void)state;
  make_answer();
  const tensor t = output_tensor(&planted, OUT_O);
  float *other = test_floats(tensor_count(&t));
  memcpy(other, answer, tensor_count(&t) * sizeof *other);
  other[77] = nextafterf(other[77], 9);
  expect_same_bits(&t, other, answer);
}

static void must_fail_write_beside(void **state) {
  (void)state;
  const void *mark = test_mark();
  float *x = test_floats(10);
  x[-1] = 1;
  test_release_to(mark);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_oracle_agrees_with_plain_loop),
      TEST(test_faulty_kernels_are_rejected),
      TEST(test_transposed_state_is_rejected),
      TEST(test_planted_errors_are_seen),
  };
  const struct CMUnitTest failing[] = {
      TEST(must_fail_small_reference),
      TEST(must_fail_untouched_output),
      TEST(must_fail_one_bit),
      TEST(must_fail_write_beside),
  };
  const int missing = test_isa_missing();
  if (missing) return missing;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  const int caught = cmocka_run_group_tests_name("these four must fail", failing, NULL, NULL);
  return failed || caught != 4;
}
