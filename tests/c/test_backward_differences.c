/* Gradients against what does not know how they were derived: central differences of the float64 forward through every option,
 * and the identity of an adjoint. */
#include <math.h>

#include "gradient.h"
#include "test.h"

/* ---- Central differences ---- */

static double *differences(gradient_case *x, int input) {
  const size_t count = width_count(&x->c, input);
  double *slopes = test_doubles(count);
  width_own(&x->c, input);
  for (size_t i = 0; i < count; i++) {
    double *at = x->c.in[input] + i;
    const double value = *at, step = 1e-5;
    *at = value + step;
    const double above = gradient_loss(x);
    *at = value - step;
    slopes[i] = (above - gradient_loss(x)) / (2 * step);
    *at = value;
  }
  return slopes;
}

/* Of every input that is there, by the library and by the oracle of the other tests. */
static void expect_differences(const width_case *c) {
  gradient_case x = gradient_of(*c, 3);
  const gradients got = gradient_run(&x);
  const gradient_truth truth = gradient_oracle(&x);
  for (int i = 0; i < GRADIENTS; i++) {
    if (!gradient_has(&x, i) || !x.c.in[i]) continue;
    const tensor t = gradient_tensor(&x, i);
    const double *want = differences(&x, i);
    expect_close(&t, got.values[i], want, 3e-6);
    for (size_t n = 0; n < tensor_count(&t); n++)
      if (!(fabs(truth.values[i][n] - want[n]) < 1e-7 * (1 + fabs(want[n]))))
        fail_msg("the oracle's %s: element %zu is %.12g, by differences %.12g", t.name, n, truth.values[i][n], want[n]);
  }
}

static width_case small(uint64_t seed) { return width_new(seed, 1, 18, 1, 1, 3, 2); }

static void test_decays(void **state) {
  (void)state;
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++)
    for (int per_head = 0; per_head < 4; per_head++) {
      width_case c = small(10);
      width_make_raw_decay(&c, (gdn2_decay)form, 11);
      if (per_head & 1) width_make_per_head(&c, W_G);
      if (per_head & 2) width_make_per_head(&c, W_DT);
      expect_differences(&c);
    }
}

static void test_gates(void **state) {
  (void)state;
  for (int per_head = 0; per_head < 2; per_head++)
    for (int form = GDN2_GATE_SIGMOID; form <= GDN2_GATE_TWO_SIGMOID; form++) {
      width_case c = small(20);
      width_make_raw_gates(&c, (gdn2_gate)form, GDN2_GATE_SIGMOID, 21);
      if (per_head) width_make_per_head(&c, W_B), width_make_per_head(&c, W_W);
      expect_differences(&c);
    }
}

static void test_norm(void **state) {
  (void)state;
  width_case c = small(30);
  for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, 31, 2);
  c.l2norm = true;
  expect_differences(&c);
}

static void test_heads(void **state) {
  (void)state;
  for (int map = 0; map < 2; map++)
    for (int key_gates = 0; key_gates < 4; key_gates++) {
      width_case c = width_new(40, 1, 17, 2, 4, 2, 1);
      c.map = (gdn2_head_map)map;
      if (key_gates & 1) width_make_key_gate(&c, W_G);
      if (key_gates & 2) width_make_key_gate(&c, W_B);
      expect_differences(&c);
    }
}

/* Everything at once: packed sequences, raw gates of key heads, normalised rows. */
static void test_all_options(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 3, 3, 20};
  for (int form = GDN2_DECAY_SOFTPLUS; form <= GDN2_DECAY_BOUNDED; form++) {
    width_case c = width_new(50, 1, 22, 1, 2, 3, 2);
    width_make_key_gate(&c, W_G);
    width_make_key_gate(&c, W_B);
    width_make_raw_decay(&c, (gdn2_decay)form, 51);
    width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 52);
    for (int i = W_Q; i <= W_K; i++) width_fill_normal(&c, i, 53, 1);
    c.l2norm = true;
    width_cut(&c, cu, 3, 54);
    expect_differences(&c);
  }
}

/* ---- The adjoint: the forward is linear in (v, h0), so <d_o, o> + <dh_final, h_final> = <dv, v> + <dh0, h0> ---- */

static double dot(const double *x, const float *y, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += x[i] * (double)y[i];
  return sum;
}

static void test_adjoint(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 50, 50, 51, 180};
  width_case c = width_new(60, 1, 190, 2, 6, 40, 24);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, 61);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, 62);
  c.l2norm = true;
  width_cut(&c, cu, 4, 63);
  const width_result y = width_run(&c, GDN2_F32);
  gradient_case x = gradient_of(c, 64);
  const size_t o = width_count(&c, W_V), h = width_count(&c, W_H0);
  for (size_t i = 0; i < o; i++) x.d_o[i] = (double)y.o[i]; /* so that the sums do not cancel */
  for (size_t i = 0; i < h; i++) x.dh_final[i] = (double)y.h_final[i];
  const gradients got = gradient_run(&x);
  const double forward = dot(x.d_o, y.o, o) + dot(x.dh_final, y.h_final, h);
  const double backward = dot(c.in[W_V], got.values[D_V], o) + dot(c.in[W_H0], got.values[D_H0], h);
  assert_true(forward > 1);
  assert_true(fabs(forward - backward) < 1e-6 * forward);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_decays), TEST(test_gates),       TEST(test_norm),
                                     TEST(test_heads),  TEST(test_all_options), TEST(test_adjoint)};
  return TEST_RUN(tests);
}
