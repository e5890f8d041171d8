/* Gradients of grouped value heads: of q, k and gates of key heads they are sums over the value heads that read them. */
#include <math.h>

#include "gradient.h"
#include "test.h"

static const int64_t ratios[] = {1, 2, 3, 8};

/* bits of key_gates: g, b have H heads; all: raw gates, normalised rows, bits of per_head: g, b, w, dt_bias are one per head. */
static gradient_case grouped(uint64_t seed, int64_t ratio, gdn2_head_map map, int key_gates, bool all, bool per_head) {
  const int64_t H = ratio == 8 ? 1 : 2;
  width_case c = width_new(seed, 2, 35, H, H * ratio, 13, 10);
  c.map = map;
  if (key_gates & 1) width_make_key_gate(&c, W_G);
  if (key_gates & 2) width_make_key_gate(&c, W_B);
  if (all) {
    width_make_raw_decay(&c, ratio % 2 ? GDN2_DECAY_SOFTPLUS : GDN2_DECAY_BOUNDED, seed);
    width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, seed);
    for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, seed, 1);
    c.l2norm = true;
  }
  for (int i = W_G; per_head && i <= W_W; i++) width_make_per_head(&c, i);
  if (per_head && all) width_make_per_head(&c, W_DT);
  return gradient_of(c, seed);
}

/* The gradients of the problem with a key head per value head, added up in float64. */
static void expect_sums(const gradient_case *x, const gradients *got, const gradient_truth *truth) {
  const gradient_case whole = gradient_repeated(x);
  const gradients each = gradient_run(&whole);
  for (int i = 0; i < GRADIENTS; i++) {
    if (!gradient_has(x, i)) continue;
    const tensor t = gradient_tensor(x, i), w = gradient_tensor(&whole, i);
    if (tensor_count(&t) == tensor_count(&w)) {
      if (i == D_A || i == D_DT || x->c.HV == x->c.H) continue;
      expect_same_bits(&t, got->values[i], each.values[i]);
      continue;
    }
    double *sums = test_doubles(tensor_count(&t));
    for (size_t n = 0; n < tensor_count(&t); n++) sums[n] = 0;
    const size_t rows = (size_t)(w.shape[0] * w.shape[1]);
    for (size_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < x->c.HV; j++)
        for (int64_t d = 0; d < t.shape[3]; d++)
          sums[((int64_t)r * t.shape[2] + width_key_head(&x->c, j)) * t.shape[3] + d] +=
              (double)each.values[i][((int64_t)r * x->c.HV + j) * t.shape[3] + d];
    expect_close_to_unit(&t, got->values[i], sums, 5e-7, fmax(truth->spread[i], 1e-4));
  }
}

static void test_ratios(void **state) {
  (void)state;
  for (int n = 0; n < 4; n++)
    for (int map = 0; map < 2; map++)
      for (int key_gates = 0; key_gates < 4; key_gates++) {
        const void *mark = test_mark();
        const bool all = (n + map + key_gates) % 2, per_head = key_gates == 3 || (n + key_gates) % 3 == 0;
        const gradient_case x = grouped(100 + (uint64_t)n, ratios[n], (gdn2_head_map)map, key_gates, all, per_head);
        const gradients got = gradient_run(&x);
        const gradient_truth want = gradient_oracle(&x);
        gradient_expect_right(&x, &got, &want, 1e-6);
        expect_sums(&x, &got, &want);
        test_release_to(mark);
      }
}

/* The other map is another problem. */
static void test_a_swapped_map_is_seen(void **state) {
  (void)state;
  gradient_case x = grouped(110, 3, GDN2_HEADS_GROUPED, 0, false, false);
  const gradient_truth want = gradient_oracle(&x);
  x.c.map = GDN2_HEADS_TILED;
  const gradients got = gradient_run(&x);
  for (int i = D_Q; i <= D_K; i++) {
    const tensor t = gradient_tensor(&x, i);
    assert_true(relative_error(got.values[i], want.values[i], tensor_count(&t)) > 0.1);
  }
}

/* 16-bit gradients of shared heads are sums in float32, rounded once; a gate per head over the channels too. */
static void test_rounded_once(void **state) {
  (void)state;
  for (int type = GDN2_BF16; type <= GDN2_F16; type++)
    for (int all = 0; all < 2; all++)
      for (int per_head = 0; per_head < 2; per_head++) {
        gradient_case x = grouped(120, 3, GDN2_HEADS_TILED, 3, all, per_head);
        gradient_set_type(&x, (gdn2_dtype)type);
        const gradients single = gradient_run(&x);
        const gradients half = gradient_run_as(&x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
        const gradient_truth want = gradient_oracle(&x);
        gradient_expect_right(&x, &single, &want, 1e-6);
        for (int i = 0; i < D_H0; i++) {
          const tensor t = gradient_tensor(&x, i);
          for (size_t n = 0; n < tensor_count(&t); n++)
            if (half.bits[i][n] != width_encode((gdn2_dtype)type, (double)single.values[i][n]))
              fail_msg("%s: element %zu is not %.9g rounded", t.name, n, (double)single.values[i][n]);
        }
      }
}

/* Strided tensors of every kind, gaps untouched, the ends at pages that may not be touched. */
static void test_layouts(void **state) {
  (void)state;
  static const width_layout layouts[] = {
      {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START},
      {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END},
      {{1, 0, 2, 3}, {0, 1, 2, 3}, {1, 0, 9, 2}, {1, -1, 1, 1}, TEST_AT_START},
  };
  for (int type = GDN2_F32; type <= GDN2_F16; type++)
    for (int per_head = 0; per_head < 2; per_head++) {
      gradient_case x = grouped(130, 2, GDN2_HEADS_TILED, 3, true, per_head);
      gradient_set_type(&x, (gdn2_dtype)type);
      const gradients want = gradient_run_as(&x, (gdn2_dtype)type, &width_contiguous, (gdn2_exec){0});
      for (int n = 0; n < 3; n++) {
        const gradients got = gradient_run_as(&x, (gdn2_dtype)type, &layouts[n], (gdn2_exec){0});
        gradient_expect_equal(&x, &got, &want);
      }
    }
}

/* Each row of the batch has the bits of a call of its own. */
static void test_batch_rows(void **state) {
  (void)state;
  width_case c = width_new(140, 3, 37, 2, 6, 11, 9);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 141);
  width_make_raw_gates(&c, GDN2_GATE_SIGMOID, GDN2_GATE_SIGMOID, 142);
  c.l2norm = true;
  const gradient_case x = gradient_of(c, 143);
  const gradients got = gradient_run(&x);
  for (int64_t n = 0; n < 3; n++) {
    const gradient_case part = gradient_sequence(&x, n);
    const gradients alone = gradient_run(&part);
    gradient_expect_equal_part(&x, &got, &part, &alone, n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_ratios), TEST(test_a_swapped_map_is_seen), TEST(test_rounded_once),
                                     TEST(test_layouts), TEST(test_batch_rows)};
  return TEST_RUN(tests);
}
