/* Grouped value heads: which key head each reads, gates per key head and per value head. */
#include <math.h>

#include "test.h"
#include "width.h"

static const int64_t ratios[] = {1, 2, 3, 8};
static const gdn2_head_map maps[] = {GDN2_HEADS_GROUPED, GDN2_HEADS_TILED};

static width_case grouped(uint64_t seed, int64_t H, int64_t ratio, gdn2_head_map map, int key_gates) {
  width_case c = width_new(seed, 2, 21, H, H * ratio, 13, 10);
  c.map = map;
  if (key_gates & 1) width_make_key_gate(&c, W_G);
  if (key_gates & 2) width_make_key_gate(&c, W_B);
  return c;
}

/* Every ratio, map and placement of gates: right, and with the bits of q, k and gates written out per value head. */
static void test_ratios(void **state) {
  (void)state;
  for (int n = 0; n < 4; n++)
    for (int m = 0; m < 2; m++)
      for (int key_gates = 0; key_gates < 4; key_gates++) {
        const width_case c = grouped(50 + (uint64_t)n, n == 3 ? 2 : 3, ratios[n], maps[m], key_gates);
        const width_case whole = width_repeated(&c);
        const width_truth want = width_oracle(&c);
        const width_result got = width_run(&c, GDN2_F32), same = width_run(&whole, GDN2_F32);
        width_expect_right(&c, &got, &want, 1e-6);
        width_expect_equal(&c, &got, &same);
      }
}

/* The same with all options on: raw gates, L2 norm, 16 bits, gates per head. */
static void test_ratios_with_all_options(void **state) {
  (void)state;
  for (int n = 0; n < 4; n++)
    for (int m = 0; m < 2; m++)
      for (int key_gates = 0; key_gates < 4; key_gates++) {
        width_case c = grouped(60 + (uint64_t)n, n == 3 ? 2 : 3, ratios[n], maps[m], key_gates);
        width_make_raw_decay(&c, n % 2 ? GDN2_DECAY_SOFTPLUS : GDN2_DECAY_BOUNDED, 61);
        width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 62);
        c.l2norm = true;
        width_set_dtypes(&c, m ? GDN2_BF16 : GDN2_F16);
        if (key_gates == 3) width_make_per_head(&c, W_G), width_make_per_head(&c, W_B), width_make_per_head(&c, W_DT);
        const width_case whole = width_repeated(&c);
        const width_truth want = width_oracle(&c);
        const width_result got = width_run(&c, GDN2_F32), same = width_run(&whole, GDN2_F32);
        width_expect_right(&c, &got, &want, 1e-6);
        width_expect_equal(&c, &got, &same);
      }
}

/* HV = 0 means H. */
static void test_default(void **state) {
  (void)state;
  const width_case c = grouped(70, 3, 1, GDN2_HEADS_GROUPED, 0);
  const width_result want = width_run(&c, GDN2_F32);
  width_call call = width_call_new(&c, GDN2_F32, &width_contiguous);
  call.args.problem.HV = 0;
  const width_result got = width_call_run(&c, &call);
  width_expect_equal(&c, &got, &want);
}

/* H = 2, HV = 6; key head i has its only key in channel i, so that each value head's state has one row, which names its key head:
 * 0 0 0 1 1 1 grouped, 0 1 0 1 0 1 tiled. */
static void test_maps_are_pinned(void **state) {
  (void)state;
  const int64_t H = 2, HV = 6;
  static const int grouped_heads[] = {0, 0, 0, 1, 1, 1}, tiled_heads[] = {0, 1, 0, 1, 0, 1};
  for (int m = 0; m < 2; m++) {
    width_case c = width_new(71, 1, 1, H, HV, 5, 4);
    c.map = maps[m];
    c.in[W_H0] = NULL;
    width_fill(&c, W_K, 0);
    for (int64_t i = 0; i < H; i++) width_row(&c, W_K, 0, 0, i)[i] = 1;
    width_fill(&c, W_V, 1);
    width_fill(&c, W_W, 1);
    const width_result got = width_run(&c, GDN2_F32);
    for (int64_t j = 0; j < HV; j++)
      for (int64_t d = 0; d < c.K; d++)
        assert_true(got.h_final[(j * c.K + d) * c.V] == (d == (maps[m] == GDN2_HEADS_TILED ? tiled_heads : grouped_heads)[j]));
  }
}

/* A gate per key head goes through the map too, and one per value head does not: each is the only decay of its head. */
static void test_gate_heads_are_pinned(void **state) {
  (void)state;
  static const double strengths[] = {-0.5, -1, -1.5, -2, -2.5, -3};
  for (int m = 0; m < 2; m++)
    for (int by_key = 0; by_key < 2; by_key++) {
      width_case c = width_new(72, 1, 1, 2, 6, 5, 4);
      c.map = maps[m];
      if (by_key) width_make_key_gate(&c, W_G);
      width_fill(&c, W_K, 0);
      width_fill(&c, W_H0, 1);
      for (int64_t h = 0; h < (by_key ? 2 : 6); h++)
        for (int64_t d = 0; d < c.K; d++) width_row(&c, W_G, 0, 0, h)[d] = strengths[h];
      const width_result got = width_run(&c, GDN2_F32);
      for (int64_t j = 0; j < 6; j++) {
        const double want = exp(strengths[by_key ? width_key_head(&c, j) : j]);
        assert_true(fabs((double)got.h_final[j * c.K * c.V] - want) < 1e-6);
      }
    }
}

/* One head in many rounds of a group of heads, and many heads on few threads: bits do not depend on it. */
static void test_threads(void **state) {
  (void)state;
  for (int m = 0; m < 2; m++) {
    width_case c = width_new(73, 1, 50, 3, 24, 40, 33);
    c.map = maps[m];
    width_make_key_gate(&c, W_B);
    const width_result want = width_run_as(&c, GDN2_BF16, &width_contiguous, (gdn2_exec){.threads = 1});
    const int counts[] = {2, 3, 5, 16};
    for (int n = 0; n < 4; n++) {
      const width_result got = width_run_as(&c, GDN2_BF16, &width_contiguous, (gdn2_exec){.threads = counts[n]});
      width_expect_equal(&c, &got, &want);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_ratios),          TEST(test_ratios_with_all_options), TEST(test_default),
      TEST(test_maps_are_pinned), TEST(test_gate_heads_are_pinned),   TEST(test_threads),
  };
  return TEST_RUN(tests);
}
