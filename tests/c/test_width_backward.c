/* Gradients of the plain rule with 16-bit tensors: against the oracle's on the widened inputs, and rounded once. */
#include <math.h>

#include "ref.h"
#include "test.h"
#include "width.h"

enum { TYPES = 3 };
#define GRADIENT_BOUND 2e-6

/* A problem with its gradient by o, in a type too, and by the final state. */
typedef struct gradient_case {
  width_case c;
  double *d_o, *dh_final;
  gdn2_dtype d_o_type;
} gradient_case;

enum { D_Q, D_K, D_V, D_G, D_B, D_W, D_H0, GRADIENTS };
static const char *const names[GRADIENTS] = {"dq", "dk", "dv", "dg", "db", "dw", "dh0"};

static gradient_case gradient_new(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t K, int64_t V) {
  gradient_case x = {.c = width_new(seed, B, T, H, H, K, V)};
  rng r = {seed};
  x.d_o = test_doubles(width_count(&x.c, W_V));
  x.dh_final = test_doubles(width_count(&x.c, W_H0));
  for (size_t i = 0; i < width_count(&x.c, W_V); i++) x.d_o[i] = (double)(float)rng_normal(&r);
  for (size_t i = 0; i < width_count(&x.c, W_H0); i++) x.dh_final[i] = (double)(float)(0.5 * rng_normal(&r));
  return x;
}

static void set_type(gradient_case *x, gdn2_dtype type) {
  width_set_dtypes(&x->c, type);
  x->d_o_type = type;
  for (size_t i = 0; i < width_count(&x->c, W_V); i++) x->d_o[i] = width_round(type, x->d_o[i]);
}

static tensor shape_of(const gradient_case *x, int gradient) {
  tensor t = width_tensor(&x->c, gradient);
  t.name = names[gradient];
  return t;
}

/* ---- The oracle ---- */

/* The input in full: a gate per head written out, an absent one neutral. */
static const double *whole(const gradient_case *x, int input) {
  const width_case *c = &x->c;
  const size_t channels = (size_t)(input == W_W || input == W_V ? c->V : c->K), rows = (size_t)(c->B * c->T * c->H);
  if (c->in[input] && !c->per_head[input]) return c->in[input];
  double *all = test_doubles(rows * channels);
  for (size_t i = 0; i < rows * channels; i++) all[i] = c->in[input] ? c->in[input][i / channels] : input == W_W;
  return all;
}

static void oracle_gradients(const gradient_case *x, double *want[GRADIENTS]) {
  const width_case *c = &x->c;
  const size_t rows = (size_t)(c->B * c->T * c->H);
  double *full[GRADIENTS];
  for (int i = 0; i < D_H0; i++) full[i] = test_doubles(rows * (size_t)(i == D_V || i == D_W ? c->V : c->K));
  full[D_H0] = test_doubles((size_t)(c->B * c->H * c->K * c->V));
  const ref_problem p = {.B = c->B,
                         .T = c->T,
                         .H = c->H,
                         .K = c->K,
                         .V = c->V,
                         .q = whole(x, W_Q),
                         .k = whole(x, W_K),
                         .v = whole(x, W_V),
                         .g = whole(x, W_G),
                         .b = whole(x, W_B),
                         .w = whole(x, W_W),
                         .h0 = c->in[W_H0],
                         .scale = 1 / sqrt((double)c->K)};
  const ref_gradients grad = {full[D_Q], full[D_K], full[D_V], full[D_G], full[D_B], full[D_W], full[D_H0]};
  assert_int_equal(ref_backward(&p, x->d_o, x->dh_final, &grad), 0);
  for (int i = 0; i < GRADIENTS; i++) {
    const size_t channels = (size_t)(i == D_W ? c->V : c->K);
    want[i] = full[i];
    if (i == D_H0 || !c->per_head[i]) continue;
    want[i] = test_doubles(rows);
    for (size_t r = 0; r < rows; r++) {
      want[i][r] = 0;
      for (size_t d = 0; d < channels; d++) want[i][r] += full[i][r * channels + d];
    }
  }
}

/* ---- The library ---- */

typedef struct gradients {
  float *values[GRADIENTS];
  uint16_t *bits[GRADIENTS];
} gradients;

/* Gradients in the given type, that by h0 in float32. */
static gradients run(const gradient_case *x, gdn2_dtype type, const width_layout *layout) {
  const width_case *c = &x->c;
  const width_call call = width_call_new(c, GDN2_F32, layout);
  const tensor d_o = {"d_o", {c->B, c->T, c->H, c->V}}, state = {"dh_final", {c->B, c->H, c->K, c->V}};
  const width_buffer given[] = {width_buffer_new(d_o, x->d_o_type, layout, false, false),
                                width_buffer_new(state, GDN2_F32, layout, true, false)};
  width_buffer_store(&given[0], x->d_o);
  width_buffer_store(&given[1], x->dh_final);
  test_lock(given[0].base);
  test_lock(given[1].base);
  gdn2_backward_args args = {.struct_size = sizeof args,
                             .problem = call.args.problem,
                             .d_o = width_input(&given[0]),
                             .dh_final = width_input(&given[1])};
  gdn2_output *const outputs[GRADIENTS] = {&args.dq, &args.dk, &args.dv, &args.dg, &args.db, &args.dw, &args.dh0};
  width_buffer made[GRADIENTS];
  for (int i = 0; i < GRADIENTS; i++) {
    const bool per_head = i < D_H0 && c->per_head[i];
    made[i] = width_buffer_new(shape_of(x, i), i == D_H0 ? GDN2_F32 : type, layout, i == D_H0, per_head);
    *outputs[i] = width_output(&made[i]);
  }
  if (gdn2_backward(&args) != GDN2_OK) fail_msg("gdn2_backward: %s", gdn2_last_error());
  gradients got = {.values = {NULL}};
  for (int i = 0; i < GRADIENTS; i++) {
    const size_t count = tensor_count(&made[i].t);
    width_buffer_expect_gaps(&made[i]);
    got.values[i] = test_floats(count);
    if (made[i].dtype != GDN2_F32) got.bits[i] = (uint16_t *)(void *)test_floats((count + 1) / 2);
    width_buffer_load(&made[i], got.values[i], got.bits[i]);
  }
  return got;
}

/* Each output type: right within the rounding, and exactly the float32 gradient rounded once. */
static void expect_gradients(const gradient_case *x) {
  double *want[GRADIENTS];
  oracle_gradients(x, want);
  const gradients single = run(x, GDN2_F32, &width_contiguous);
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = shape_of(x, i);
    expect_close(&t, single.values[i], want[i], GRADIENT_BOUND);
  }
  for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
    const gradients half = run(x, (gdn2_dtype)type, &width_contiguous);
    for (int i = 0; i < D_H0; i++) {
      const tensor t = shape_of(x, i);
      const double rounding = width_rounding_error((gdn2_dtype)type, want[i], tensor_count(&t));
      expect_close(&t, half.values[i], want[i], rounding + GRADIENT_BOUND);
      for (size_t n = 0; n < tensor_count(&t); n++)
        if (half.bits[i][n] != width_encode((gdn2_dtype)type, (double)single.values[i][n]))
          fail_msg("%s: element %zu is %#06x, which is not %.9g rounded", t.name, n, half.bits[i][n],
                   (double)single.values[i][n]);
    }
    const tensor t = shape_of(x, D_H0);
    expect_same_bits(&t, half.values[D_H0], single.values[D_H0]);
  }
}

/* ---- Tests ---- */

static void test_all_alike(void **state) {
  (void)state;
  const int64_t shapes[][5] = {
      {2, 37, 3, 5, 7}, {1, 70, 2, 64, 64}, {1, 50, 1, 128, 100}, {1, 35, 2, 33, 17}, {1, 19, 1, 200, 31}};
  for (int n = 0; n < 5; n++)
    for (int type = 0; type < TYPES; type++) {
      gradient_case x = gradient_new(500 + (uint64_t)n, shapes[n][0], shapes[n][1], shapes[n][2], shapes[n][3], shapes[n][4]);
      set_type(&x, (gdn2_dtype)type);
      expect_gradients(&x);
    }
}

/* 16-bit q, k, v and d_o with float32 gates; one tensor alone in 16 bits. */
static void test_mixed(void **state) {
  (void)state;
  for (int i = -1; i <= W_W; i++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      gradient_case x = gradient_new(510, 1, 37, 2, 21, 19);
      if (i >= 0) width_set_dtype(&x.c, i, (gdn2_dtype)type);
      if (i < 0) {
        set_type(&x, (gdn2_dtype)type);
        const width_case single = width_new(510, 1, 37, 2, 2, 21, 19);
        for (int gate = W_G; gate <= W_W; gate++) x.c.in[gate] = single.in[gate], x.c.dtype[gate] = GDN2_F32;
      }
      expect_gradients(&x);
    }
}

static void test_gates_per_head(void **state) {
  (void)state;
  for (int which = 1; which < 8; which++)
    for (int type = 0; type < TYPES; type++) {
      gradient_case x = gradient_new(520, 1, 37, 2, 21, 19);
      set_type(&x, (gdn2_dtype)type);
      for (int gate = 0; gate < 3; gate++)
        if (which >> gate & 1) width_make_per_head(&x.c, W_G + gate);
      expect_gradients(&x);
    }
}

static void test_absent_gates(void **state) {
  (void)state;
  for (int gate = W_G; gate <= W_W; gate++) {
    gradient_case x = gradient_new(530, 1, 37, 2, 21, 19);
    set_type(&x, GDN2_BF16);
    x.c.in[gate] = NULL;
    expect_gradients(&x);
  }
}

/* Strided 16-bit views that end, or begin, at a page that may not be touched. */
static void test_layouts(void **state) {
  (void)state;
  static const width_layout layouts[] = {
      {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_START},
      {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END},
      {{1, 0, 2, 3}, {0, 1, 2, 3}, {1, 0, 9, 2}, {1, -1, 1, 1}, TEST_AT_START},
  };
  const int64_t odd[] = {1, 3, 7, 17, 31, 33, 100, 128, 200};
  for (int n = 0; n < 9; n++)
    for (int type = GDN2_BF16; type <= GDN2_F16; type++) {
      const void *mark = test_mark();
      gradient_case x = gradient_new(540, 1, 18, 2, odd[n], odd[(n + 2) % 9]);
      set_type(&x, (gdn2_dtype)type);
      const gradients want = run(&x, (gdn2_dtype)type, &width_contiguous);
      for (int which = 0; which < 3; which++) {
        const gradients got = run(&x, (gdn2_dtype)type, &layouts[which]);
        for (int i = 0; i < GRADIENTS; i++) {
          const tensor t = shape_of(&x, i);
          expect_same_bits(&t, got.values[i], want.values[i]);
        }
      }
      test_release_to(mark);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_all_alike), TEST(test_mixed), TEST(test_gates_per_head), TEST(test_absent_gates), TEST(test_layouts),
  };
  return TEST_RUN(tests);
}
