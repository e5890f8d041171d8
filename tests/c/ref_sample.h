/* ref_sample.h - what the tests of the oracle share: random problems, its two forms behind one call, comparisons that refuse a
 * reference too small to show anything. It uses nothing of the library. */
#ifndef GDN2_TESTS_REF_SAMPLE_H
#define GDN2_TESTS_REF_SAMPLE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ref.h"

/* ---- Cases: random problems and room for their results ---- */

enum { Q, KEY, VALUE, G, ERASE, WRITE, STATE, INPUTS };
static const char *const names[INPUTS] = {"q", "k", "v", "g", "b", "w", "h0"};

typedef struct tensors {
  double *x[INPUTS]; /* q k v g b w h0, or their gradients */
} tensors;

typedef struct sample {
  ref_problem p;
  tensors in;
  int64_t count[INPUTS], outputs; /* elements of each tensor; of o */
  double *d_o, *dh_final;
} sample;

static uint64_t random_state;

static inline double uniform(double low, double high) {
  random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
  uint64_t z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return low + (high - low) * (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline double *vector(int64_t n, double low, double high) {
  double *x = malloc(((size_t)n + 1) * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < n; i++) x[i] = uniform(low, high);
  return x;
}

static inline void point_at_inputs(sample *s) {
  s->p.q = s->in.x[Q], s->p.k = s->in.x[KEY], s->p.v = s->in.x[VALUE], s->p.g = s->in.x[G];
  s->p.b = s->in.x[ERASE], s->p.w = s->in.x[WRITE], s->p.h0 = s->in.x[STATE];
}

/* Keys of unit length; g in [-0.7, 0.1], b in [0, 2], w in [0, 1.5]. */
static inline sample sample_new(int64_t B, int64_t T, int64_t H, int64_t K, int64_t V) {
  sample s = {.p = {.B = B, .T = T, .H = H, .K = K, .V = V, .scale = 1 / sqrt((double)K)}};
  static const double low[INPUTS] = {-1, -1, -1, -0.7, 0, 0, -1}, high[INPUTS] = {1, 1, 1, 0.1, 2, 1.5, 1};
  const int64_t tokens = B * T * H;
  random_state = (uint64_t)(T * 1000 + K * 10 + V);
  for (int i = 0; i < INPUTS; i++) {
    s.count[i] = i == STATE ? B * H * K * V : tokens * (i == VALUE || i == WRITE ? V : K);
    s.in.x[i] = vector(s.count[i], low[i], high[i]);
  }
  for (int64_t t = 0; t < tokens; t++) {
    double square = 0;
    for (int64_t d = 0; d < K; d++) square += s.in.x[KEY][t * K + d] * s.in.x[KEY][t * K + d];
    for (int64_t d = 0; d < K; d++) s.in.x[KEY][t * K + d] /= sqrt(square);
  }
  s.outputs = tokens * V;
  s.d_o = vector(s.outputs, -1, 1);
  s.dh_final = vector(s.count[STATE], -1, 1);
  point_at_inputs(&s);
  return s;
}

static inline void fill(double *x, int64_t n, double value) {
  for (int64_t i = 0; i < n; i++) x[i] = value;
}

/* Every `period`-th element of x, from `first` on. */
static inline void strew(double *x, int64_t n, int64_t first, int64_t period, double value) {
  for (int64_t i = first; i < n; i += period) x[i] = value;
}

static inline void sample_free(sample *s) {
  for (int i = 0; i < INPUTS; i++) free(s->in.x[i]);
  free(s->d_o);
  free(s->dh_final);
}

/* Results, poisoned so that what is not written shows. */
static inline tensors tensors_new(const sample *s) {
  tensors r;
  for (int i = 0; i < INPUTS; i++) {
    r.x[i] = vector(s->count[i], 0, 0);
    fill(r.x[i], s->count[i], NAN);
  }
  return r;
}

static inline void tensors_free(tensors *r) {
  for (int i = 0; i < INPUTS; i++) free(r->x[i]);
}

/* ---- The two forms behind one call: C = 0 is the token form, else chunks of C ---- */

static inline void forward(const ref_problem *p, int64_t C, double *o, double *h) {
  assert_int_equal(C ? ref_chunk_forward(p, C, o, h) : ref_forward(p, o, h), 0);
}

static inline void backward(const ref_problem *p, int64_t C, const double *d_o, const double *dh, tensors *r) {
  const ref_gradients grad = {r->x[Q], r->x[KEY], r->x[VALUE], r->x[G], r->x[ERASE], r->x[WRITE], r->x[STATE]};
  assert_int_equal(C ? ref_chunk_backward(p, C, d_o, dh, &grad) : ref_backward(p, d_o, dh, &grad), 0);
}

/* ---- Comparison ---- */

static inline double norm(int64_t n, const double *x) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

/* ||x - y|| / ||y||; NaN if anything is. */
static inline double relative_error(int64_t n, const double *x, const double *y) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum) / norm(n, y);
}

static double worst; /* the largest error that passed in the running test */

static inline void assert_close(const char *what, int64_t n, const double *x, const double *y, double tolerance) {
  const double size = norm(n, y) / sqrt((double)n), error = relative_error(n, x, y);
  if (!(size > 1e-3)) fail_msg("%s: the reference is too small to show anything: %g", what, size);
  if (!(error <= tolerance)) fail_msg("%s: relative error %g, allowed %g", what, error, tolerance);
  if (error > worst) worst = error;
}

static inline void assert_equal(const char *what, int64_t n, const double *x, const double *y) {
  for (int64_t i = 0; i < n; i++)
    if (!(x[i] == y[i])) fail_msg("%s[%lld]: %.17g, must be exactly %.17g", what, (long long)i, x[i], y[i]);
}

static inline void assert_zero(const char *what, int64_t n, const double *x) {
  for (int64_t i = 0; i < n; i++)
    if (!(x[i] == 0)) fail_msg("%s[%lld]: %.17g, must be exactly 0", what, (long long)i, x[i]);
}

/* ---- Which forms a test runs: chunks shorter than, equal to and longer than T, and such that do not divide it ---- */

static const int64_t forms[] = {0, 1, 2, 3, 5, 16, 37, 50};
enum { FORMS = sizeof forms / sizeof *forms };

/* ---- A test prints the largest error it let pass ---- */

static inline int forget_worst(void **state) {
  (void)state;
  worst = 0;
  return 0;
}

static inline int print_worst(void **state) {
  (void)state;
  if (worst > 0) print_message("             largest relative error %.1e\n", worst);
  return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, forget_worst, print_worst)
#endif
