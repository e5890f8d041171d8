/* The seed pipeline's whole backward against central differences of its float64 forward. */
#include <math.h>

#include "seed_case.h"
#include "test.h"

enum { Q, K_, V_, W, B_, G, H0, INPUT_COUNT };

/* sum(o d_o) + sum(h_final dh_final) of the float64 forward on inputs[...], each [B, L, H, .] or the state. */
static double loss(const seed_case *c, double *const inputs[INPUT_COUNT]) {
  const int64_t L = c->call.L, H = c->call.H, K = c->call.K, V = c->call.V;
  const seed_model m = seed_model_of(c);
  double total = 0;
  for (int64_t head = 0; head < c->call.B * H; head++) {
    const void *mark = test_mark();
    double *rows[H0], *h = test_doubles((size_t)(K * V)), *o = test_doubles((size_t)(L * V));
    for (int i = 0; i < H0; i++) {
      const int64_t D = i == V_ || i == W ? V : K;
      rows[i] = test_doubles((size_t)(L * D));
      for (int64_t x = 0; x < L * D; x++) rows[i][x] = inputs[i][((head / H * L + x / D) * H + head % H) * D + x % D];
    }
    memcpy(h, inputs[H0] + head * K * V, (size_t)(K * V) * sizeof *h);
    model_head(&m, (int)L, rows[Q], rows[K_], rows[V_], rows[W], rows[B_], rows[G], h, o);
    for (int64_t x = 0; x < L * V; x++) total += o[x] * (double)c->d_o[((head / H * L + x / V) * H + head % H) * V + x % V];
    for (int64_t x = 0; x < K * V; x++) total += h[x] * (double)c->dh_final[head * K * V + x];
    test_release_to(mark);
  }
  return total;
}

static void test_backward_is_the_gradient(void **unused) {
  (void)unused;
  const int64_t sizes[] = {2, 32, 2, 9, 6};
  seed_case c;
  seed_case_init(&c, 7, sizes, (gdn2_seed_config){16, 8, 4, 1e4, 0.05}, 0.5);
  const tensor keys = seed_key_tokens(&c, "keys"), values = seed_value_tokens(&c, "values"), state = seed_state(&c, "state");
  const tensor shapes[] = {keys, keys, values, values, keys, keys, state};
  const float *const in[] = {c.in.q, c.in.k, c.in.v, c.in.w, c.in.b, c.in.g, c.in.h0};
  double *wide[INPUT_COUNT];
  float *gradient[INPUT_COUNT];
  for (int i = 0; i < INPUT_COUNT; i++) wide[i] = seed_wide(in[i], shapes[i]), gradient[i] = seed_array(shapes[i]);
  const gdn2_seed_gradients out = {gradient[Q], gradient[K_], gradient[V_], gradient[W], gradient[B_], gradient[G], gradient[H0]};
  assert_int_equal(gdn2_seed_backward(&c.call, &c.in, NULL, c.d_o, c.dh_final, &out), GDN2_OK);
  rng r = {11};
  for (int i = 0; i < INPUT_COUNT; i++) {
    const size_t count = tensor_count(&shapes[i]);
    const double step = 1e-4;
    double *direction = test_doubles(count), *kept = wide[i], *moved = test_doubles(count), along = 0, size = 0;
    for (size_t x = 0; x < count; x++) {
      direction[x] = rng_normal(&r);
      along += direction[x] * (double)gradient[i][x];
      size += pow((double)gradient[i][x], 2);
    }
    wide[i] = moved;
    for (size_t x = 0; x < count; x++) moved[x] = kept[x] + step * direction[x];
    const double above = loss(&c, wide);
    for (size_t x = 0; x < count; x++) moved[x] = kept[x] - step * direction[x];
    const double difference = (above - loss(&c, wide)) / (2 * step);
    wide[i] = kept;
    assert_true(sqrt(size) > 0.1);
    if (!(fabs(difference - along) <= 3e-6 * sqrt(size)))
      fail_msg("input %d: along a direction %.9g, by differences %.9g, gradient's size %.3g", i, along, difference, sqrt(size));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_backward_is_the_gradient)};
  return TEST_RUN(tests);
}
