/* The recurrence on complex numbers, straight from its definition, and the comparison of float64 results. */
#include <complex.h>
#include <math.h>

#include "double.h"
#include "test.h"

typedef double complex number;
#define STEP 1e-30
#define MOST_VALUES 16 /* the largest V */

/* Inputs as they are given, one number of them moved; o and h_final. An absent input has its neutral value in full. */
typedef struct complex_problem {
  const double_problem *x;
  number *in[W_INPUTS], *o, *h_final;
} complex_problem;

static number *number_array(size_t count) { return (number *)(void *)test_doubles(2 * count); }

static complex_problem complex_new(const double_problem *x) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  complex_problem p = {.x = x, .o = number_array(tensor_count(&o)), .h_final = number_array(tensor_count(&h))};
  for (int i = 0; i < W_INPUTS; i++) {
    const size_t count = width_count(&x->c, i);
    p.in[i] = number_array(count);
    for (size_t n = 0; n < count; n++) p.in[i][n] = x->c.in[i] ? x->c.in[i][n] : i == W_W;
  }
  return p;
}

static const number *row_of(const complex_problem *p, int input, int64_t b, int64_t t, int64_t h) {
  const tensor x = width_tensor(&p->x->c, input);
  return p->in[input] + ((b * x.shape[1] + t) * x.shape[2] + h) * x.shape[3];
}

static number sigmoid(number x) { return creal(x) < 0 ? cexp(x) / (1 + cexp(x)) : 1 / (1 + cexp(-x)); }
static number softplus(number x) { return creal(x) > 0 ? x + clog(1 + cexp(-x)) : clog(1 + cexp(x)); }

/* An absent gate is finished, whatever the form says. */
static number gate(const width_case *c, int input, gdn2_gate form, number x) {
  if (!c->in[input] || form == GDN2_GATE_GIVEN) return x;
  return form == GDN2_GATE_SIGMOID ? sigmoid(x) : 2 * sigmoid(x);
}

static number decay(const complex_problem *p, int64_t head, int64_t d, number x) {
  const width_case *c = &p->x->c;
  if (c->decay == GDN2_DECAY_LOG) return x;
  const number rate = cexp(p->in[W_A][head]), z = x + row_of(p, W_DT, 0, 0, head)[c->per_head[W_DT] ? 0 : d];
  return c->decay == GDN2_DECAY_SOFTPLUS ? -rate * softplus(z) : c->lower_bound * sigmoid(rate * z);
}

static number length_of(const width_case *c, const number *x) {
  number sum = 1e-6;
  for (int64_t d = 0; d < c->K; d++) sum += x[d] * x[d];
  return c->l2norm ? csqrt(sum) : 1;
}

/* Token t of batch row b for value head j; S [K][V]. */
static void step(const complex_problem *p, int64_t b, int64_t t, int64_t j, number *S) {
  const width_case *c = &p->x->c;
  const int64_t i = width_key_head(c, j), g_head = c->g_key_heads ? i : j, b_head = c->b_key_heads ? i : j, V = c->V;
  const number *q = row_of(p, W_Q, b, t, i), *k = row_of(p, W_K, b, t, i), *v = row_of(p, W_V, b, t, j);
  const number *g = row_of(p, W_G, b, t, g_head), *erase = row_of(p, W_B, b, t, b_head), *w = row_of(p, W_W, b, t, j);
  const number q_length = length_of(c, q), k_length = length_of(c, k);
  const double scale = c->scale ? *c->scale : 1 / sqrt((double)c->K);
  number *o = p->o + ((b * c->T + t) * c->HV + j) * V, u[MOST_VALUES];
  for (int64_t e = 0; e < V; e++) u[e] = gate(c, W_W, c->write, w[c->per_head[W_W] ? 0 : e]) * v[e], o[e] = 0;
  for (int64_t d = 0; d < c->K; d++) {
    const number alpha = cexp(decay(p, g_head, d, g[c->per_head[W_G] ? 0 : d]));
    const number reads = gate(c, W_B, c->erase, erase[c->per_head[W_B] ? 0 : d]) * k[d] / k_length;
    for (int64_t e = 0; e < V; e++) S[d * V + e] *= alpha;
    for (int64_t e = 0; e < V; e++) u[e] -= reads * S[d * V + e];
  }
  for (int64_t d = 0; d < c->K; d++)
    for (int64_t e = 0; e < V; e++) {
      S[d * V + e] += k[d] / k_length * u[e];
      o[e] += scale * q[d] / q_length * S[d * V + e];
    }
}

/* The loss. */
static number solve(const complex_problem *p) {
  const width_case *c = &p->x->c;
  const int64_t state = c->K * c->V, tokens = c->B * c->T * c->HV * c->V;
  number loss = 0;
  for (int64_t n = 0; n < tokens; n++) p->o[n] = 0;
  memcpy(p->h_final, p->in[W_H0], (size_t)(c->N * c->HV * state) * sizeof(number));
  for (int64_t n = 0; n < c->N; n++)
    for (int64_t j = 0; j < c->HV; j++)
      for (int64_t t = c->cu ? c->cu[n] : 0; t < (c->cu ? c->cu[n + 1] : c->T); t++)
        step(p, c->cu ? 0 : n, t, j, p->h_final + (n * c->HV + j) * state);
  for (int64_t n = 0; p->x->d_o && n < tokens; n++) loss += p->o[n] * p->x->d_o[n];
  for (int64_t n = 0; p->x->dh_final && n < c->N * c->HV * state; n++) loss += p->h_final[n] * p->x->dh_final[n];
  return loss;
}

static double *real_parts(const number *x, tensor t) {
  double *y = test_doubles(tensor_count(&t));
  for (size_t i = 0; i < tensor_count(&t); i++) y[i] = creal(x[i]);
  return y;
}

/* The derivative by each element, those of a row added where the gradient is wanted per head. */
static double *derivatives(const complex_problem *p, int input) {
  const tensor whole = width_tensor(&p->x->c, input), wanted = double_tensor(p->x, input);
  const size_t row = (size_t)(whole.shape[3] / (wanted.shape[3] ? wanted.shape[3] : 1));
  double *x = test_doubles(tensor_count(&wanted));
  for (size_t i = 0; i < tensor_count(&wanted); i++) x[i] = 0;
  for (size_t i = 0; i < tensor_count(&whole); i++) {
    const number kept = p->in[input][i];
    p->in[input][i] += STEP * I;
    x[i / row] += cimag(solve(p)) / STEP;
    p->in[input][i] = kept;
  }
  return x;
}

double_result double_oracle(const double_problem *x) {
  assert_true(x->c.V <= MOST_VALUES);
  const complex_problem p = complex_new(x);
  double_result r = {.o = NULL};
  for (int i = 0; i < W_INPUTS; i++)
    if (double_gradients(x) >> i & 1) r.grad[i] = derivatives(&p, i);
  (void)solve(&p);
  r.o = real_parts(p.o, width_o_tensor(&x->c));
  r.h_final = real_parts(p.h_final, width_h_tensor(&x->c));
  return r;
}

double double_loss(const double_problem *x, const double_result *r) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  double loss = 0;
  for (size_t i = 0; x->d_o && i < tensor_count(&o); i++) loss += r->o[i] * x->d_o[i];
  for (size_t i = 0; x->dh_final && i < tensor_count(&h); i++) loss += r->h_final[i] * x->dh_final[i];
  return loss;
}

/* ---- Comparisons ---- */

void double_expect_near(const tensor *t, const double *got, const double *want, double bound, double unit) {
  const size_t count = tensor_count(t);
  const double size = fmax(root_mean_square(want, count), unit);
  double sum = 0, worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    const double error = fabs(got[i] - want[i]);
    if (!isfinite(want[i])) fail_msg("%s: the reference is not finite at element %zu", t->name, i);
    if (!(error <= worst)) worst = error, at = i;
    sum += error * error;
  }
  if (count && !(sqrt(sum / (double)count) <= bound * size))
    fail_msg("%s: error %.3e above %.1e (reference %.3e); element %zu is %.17g, must be %.17g", t->name,
             sqrt(sum / (double)count) / size, bound, size, at, got[at], want[at]);
  if (getenv("GDN2_TEST_VERBOSE") && count) print_message("    %-8s %9.2e\n", t->name, sqrt(sum / (double)count) / size);
}

void double_expect_close(const tensor *t, const double *got, const double *want, double bound) {
  const double size = root_mean_square(want, tensor_count(t));
  if (size < 1e-4) fail_msg("%s: the reference is small (%.3e), the comparison would show nothing", t->name, size);
  double_expect_near(t, got, want, bound, 0);
}

static void expect_bits(const tensor *t, const double *got, const double *want) {
  for (size_t i = 0; got && want && i < tensor_count(t); i++)
    if (memcmp(got + i, want + i, sizeof *got) != 0)
      fail_msg("%s: element %zu is %.17g, must have the bits of %.17g", t->name, i, got[i], want[i]);
}

void double_expect_equal(const double_problem *x, const double_result *got, const double_result *want) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  expect_bits(&o, got->o, want->o);
  expect_bits(&h, got->h_final, want->h_final);
  for (int i = 0; i < W_INPUTS; i++) {
    const tensor t = double_tensor(x, i);
    expect_bits(&t, got->grad[i], want->grad[i]);
  }
}
