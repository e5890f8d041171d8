/* The times of stages: there for every stage that ran, within the time of the call, added up, and without influence on results.
 */
#include <time.h>

#include "gradient.h"
#include "test.h"

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Exactly the stages from..to ran, and together they took no longer than the calls, but a part of them that can be seen. */
static void expect_stages(const gdn2_profile *p, int from, int to, int except, uint64_t elapsed) {
  uint64_t sum = 0;
  for (int i = 0; i < GDN2_STAGES; i++) {
    const bool ran = i >= from && i <= to && i != except;
    if ((p->nanoseconds[i] > 0) != ran)
      fail_msg("stage %s: %llu ns", gdn2_stage_name((gdn2_stage)i), (unsigned long long)p->nanoseconds[i]);
    sum += p->nanoseconds[i];
  }
  if (sum > elapsed || sum < elapsed / 20)
    fail_msg("%llu ns in stages of a call of %llu", (unsigned long long)sum, (unsigned long long)elapsed);
}

static gradient_case problem(void) {
  width_case c = width_new(1, 1, 1600, 1, 2, 48, 40);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 2);
  return gradient_of(c, 3);
}

static void test_forward(void **state) {
  (void)state;
  const gradient_case x = problem();
  const width_result want = width_run(&x.c, GDN2_F32);
  gdn2_profile p = {{0}};
  uint64_t elapsed = 0, before = 0;
  for (int n = 0; n < 2; n++) {
    width_call call = width_call_new(&x.c, GDN2_F32, &width_contiguous);
    call.args.exec.threads = 1;
    call.args.profile = &p;
    const uint64_t start = now();
    assert_int_equal(gdn2_forward(&call.args), GDN2_OK);
    elapsed += now() - start;
    expect_stages(&p, GDN2_STAGE_SCORES, GDN2_STAGE_UPDATE, -1, elapsed);
    assert_true(p.nanoseconds[GDN2_STAGE_UPDATE] > before);
    before = p.nanoseconds[GDN2_STAGE_UPDATE];
    call.args.profile = NULL;
    const width_result got = width_call_run(&x.c, &call);
    width_expect_equal(&x.c, &got, &want);
  }
}

/* One thread, and two that add to one profile. */
static void test_backward(void **state) {
  (void)state;
  const gradient_case x = problem();
  const gradients want = gradient_run(&x);
  for (int threads = 1; threads <= 2; threads++) {
    gdn2_profile p = {{0}};
    gradient_call call = gradient_call_new(&x, GDN2_F32, &width_contiguous);
    call.args.exec.threads = threads;
    call.args.profile = &p;
    const uint64_t start = now();
    assert_int_equal(gdn2_backward(&call.args), GDN2_OK);
    expect_stages(&p, GDN2_STAGE_SCORES, GDN2_STAGE_CHAIN, GDN2_STAGE_OUTPUT, (uint64_t)threads * (now() - start));
    const gradients got = gradient_call_run(&x, &call);
    gradient_expect_equal(&x, &got, &want);
  }
}

static void test_seed(void **state) {
  (void)state;
  enum { L = 128, D = 16 };
  float *x[6], *y[8];
  rng r = {5};
  for (int i = 0; i < 6; i++) {
    x[i] = test_floats(L * D);
    for (int n = 0; n < L * D; n++) x[i][n] = (float)(i == 5 ? rng_uniform(&r, -0.1, 0) : rng_uniform(&r, 0, 0.5));
  }
  for (int i = 0; i < 8; i++) y[i] = test_floats(L * D);
  gdn2_profile p = {{0}};
  gdn2_seed_config config;
  assert_int_equal(gdn2_seed_config_preset(GDN2_SEED_DEFAULT, &config), GDN2_OK);
  const gdn2_seed_call call = {.struct_size = sizeof call,
                               .B = 1,
                               .L = L,
                               .H = 1,
                               .K = D,
                               .V = D,
                               .config = &config,
                               .exec = {.threads = 1},
                               .profile = &p};
  const gdn2_seed_inputs in = {.q = x[0], .k = x[1], .v = x[2], .w = x[3], .b = x[4], .g = x[5]};
  const gdn2_seed_gradients out = {y[0], y[1], y[2], y[3], y[4], y[5], y[6]};
  const uint64_t start = now();
  assert_int_equal(gdn2_seed_forward(&call, &in, y[0], y[7], NULL), GDN2_OK);
  expect_stages(&p, GDN2_STAGE_SEED_A, GDN2_STAGE_SEED_D, -1, now() - start);
  const uint64_t a = p.nanoseconds[GDN2_STAGE_SEED_A];
  assert_int_equal(gdn2_seed_backward(&call, &in, NULL, x[2], NULL, &out), GDN2_OK);
  expect_stages(&p, GDN2_STAGE_SEED_A, GDN2_STAGE_SEED_B5, -1, now() - start);
  assert_true(p.nanoseconds[GDN2_STAGE_SEED_A] > a); /* the residuals are made anew */
}

static void test_names(void **state) {
  (void)state;
  for (int i = 0; i < GDN2_STAGES; i++) {
    assert_string_not_equal(gdn2_stage_name((gdn2_stage)i), "unknown");
    for (int j = 0; j < i; j++) assert_string_not_equal(gdn2_stage_name((gdn2_stage)i), gdn2_stage_name((gdn2_stage)j));
  }
  assert_string_equal(gdn2_stage_name(GDN2_STAGES), "unknown");
  assert_string_equal(gdn2_stage_name((gdn2_stage)-1), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_forward), TEST(test_backward), TEST(test_seed), TEST(test_names)};
  return TEST_RUN(tests);
}
