/* test_ref.c - are the oracle's two forms right? Against the recurrence written out below over complex numbers, against finite
 * differences, and against each other. Closed forms: test_ref_closed.c. */
#include <complex.h>
#include "ref_sample.h"

/* ---- The recurrence over complex numbers ----
 * An input moved by i * STEP moves a result f by i * STEP * f'. The imaginary part is f' with full relative accuracy however
 * small it is, for no difference is taken: that is how gradients of size e^-150 are checked. */

#define STEP 1e-100
static const double *moved; /* the element which is moved, or NULL */

static double complex at(const double *x) { return *x + (x == moved ? STEP * I : 0); }

static void step_forward(const ref_problem *p, int64_t n, double complex *S, double complex *o) {
  double complex r[16] = {0};
  assert_true(p->V <= 16);
  for (int64_t d = 0; d < p->K; d++)
    for (int64_t c = 0; c < p->V; c++) {
      S[d * p->V + c] *= cexp(at(p->g + n * p->K + d));
      r[c] += at(p->b + n * p->K + d) * at(p->k + n * p->K + d) * S[d * p->V + c];
    }
  for (int64_t c = 0; c < p->V; c++) {
    const double complex write = at(p->w + n * p->V + c) * at(p->v + n * p->V + c) - r[c];
    o[c] = 0;
    for (int64_t d = 0; d < p->K; d++) {
      S[d * p->V + c] += at(p->k + n * p->K + d) * write;
      o[c] += p->scale * at(p->q + n * p->K + d) * S[d * p->V + c];
    }
  }
}

/* Fills o and h unless NULL; returns <d_o, o> + <dh_final, h_final>. */
static double complex recurrence(const sample *s, double *o, double *h) {
  const ref_problem *p = &s->p;
  const int64_t KV = p->K * p->V;
  double complex loss = 0, S[256], out[16];
  assert_true(KV <= 256);
  for (int64_t row = 0; row < p->B * p->H; row++) {
    for (int64_t x = 0; x < KV; x++) S[x] = at(p->h0 + row * KV + x);
    for (int64_t t = 0; t < p->T; t++) {
      const int64_t n = (row / p->H * p->T + t) * p->H + row % p->H;
      step_forward(p, n, S, out);
      for (int64_t c = 0; c < p->V; c++) {
        loss += s->d_o[n * p->V + c] * out[c];
        if (o) o[n * p->V + c] = creal(out[c]);
      }
    }
    for (int64_t x = 0; x < KV; x++) {
      loss += s->dh_final[row * KV + x] * S[x];
      if (h) h[row * KV + x] = creal(S[x]);
    }
  }
  return loss;
}

static tensors complex_gradients(const sample *s) {
  tensors r = tensors_new(s);
  for (int i = 0; i < INPUTS; i++)
    for (int64_t x = 0; x < s->count[i]; x++) {
      moved = s->in.x[i] + x;
      r.x[i][x] = cimag(recurrence(s, NULL, NULL)) / STEP;
    }
  moved = NULL;
  return r;
}

/* ---- Tests ---- */

/* T = 37 with decays from 1.1 to 0, repeated keys, erase gates up to 2. */
static sample hard_sample(void) {
  sample s = sample_new(2, 37, 3, 5, 4);
  strew(s.in.x[G], s.count[G], 3, 7, -20);
  strew(s.in.x[G], s.count[G], 4, 11, -150);
  strew(s.in.x[G], s.count[G], 5, 13, -INFINITY);
  strew(s.in.x[G], s.count[G], 6, 5, 0);
  strew(s.in.x[ERASE], s.count[ERASE], 1, 6, 2);
  const int64_t token = s.p.H * s.p.K;
  for (int64_t t = 0; t < s.p.B * s.p.T; t++)
    if (t % 4) memcpy(s.in.x[KEY] + t * token, s.in.x[KEY] + (t - t % 4) * token, (size_t)token * sizeof(double));
  return s;
}

static void forward_equals_the_recurrence(void **state) {
  (void)state;
  sample s = hard_sample();
  double *o = vector(s.outputs, 0, 0), *h = vector(s.count[STATE], 0, 0);
  double *o_true = vector(s.outputs, 0, 0), *h_true = vector(s.count[STATE], 0, 0);
  (void)recurrence(&s, o_true, h_true);
  for (int f = 0; f < FORMS; f++) {
    fill(o, s.outputs, NAN);
    fill(h, s.count[STATE], NAN);
    forward(&s.p, forms[f], o, h);
    assert_close("o", s.outputs, o, o_true, 1e-13);
    assert_close("h_final", s.count[STATE], h, h_true, 1e-13);
  }
  free(o), free(h), free(o_true), free(h_true);
  sample_free(&s);
}

/* 4th-order central differences of <d_o, o> + <dh, h_final> by one input. */
static void differences(const sample *s, int64_t C, const double *d_o, const double *dh, double *x, int64_t count,
                        double *result) {
  static const double weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2}, step = 1e-3;
  double *o = vector(s->outputs, 0, 0), *h = vector(s->count[STATE], 0, 0);
  for (int64_t i = 0; i < count; i++) {
    const double centre = x[i];
    double sum = 0;
    for (int n = 0; n < 4; n++) {
      x[i] = centre + place[n] * step;
      forward(&s->p, C, o, h);
      double loss = 0;
      for (int64_t c = 0; d_o && c < s->outputs; c++) loss += d_o[c] * o[c];
      for (int64_t c = 0; dh && c < s->count[STATE]; c++) loss += dh[c] * h[c];
      sum += weight[n] * loss;
    }
    x[i] = centre;
    result[i] = sum / (12 * step);
  }
  free(o), free(h);
}

static void check_differences(int64_t C) {
  sample s = sample_new(2, 7, 2, 5, 4);
  strew(s.in.x[G], s.count[G], 3, 23, -20);
  tensors r = tensors_new(&s);
  for (int loss = 1; loss <= 3; loss++) {
    const double *d_o = loss & 1 ? s.d_o : NULL, *dh = loss & 2 ? s.dh_final : NULL;
    backward(&s.p, C, d_o, dh, &r);
    for (int i = 0; i < INPUTS; i++) {
      double *fd = vector(s.count[i], 0, 0);
      differences(&s, C, d_o, dh, s.in.x[i], s.count[i], fd);
      if (i == Q && loss == 2) /* the final state does not depend on q */
        assert_zero("dq", s.count[i], r.x[i]);
      else
        assert_close(names[i], s.count[i], r.x[i], fd, 1e-8);
      free(fd);
    }
  }
  tensors_free(&r);
  sample_free(&s);
}

static void token_gradients_equal_differences(void **state) {
  (void)state;
  check_differences(0);
}

static void chunk_gradients_equal_differences(void **state) {
  (void)state;
  check_differences(3);
}

/* The entries of dg where g has the given value, compared among themselves: they are too small to count in the norm of all. */
static void check_decay_class(const sample *s, const double *dg, const double *dg_true, double g) {
  double part[2048], part_true[2048];
  int64_t n = 0;
  assert_true(s->count[G] <= 2048);
  for (int64_t i = 0; i < s->count[G]; i++)
    if (s->in.x[G][i] == g) part[n] = dg[i], part_true[n] = dg_true[i], n++;
  assert_true(n > 20 && norm(n, part_true) > 1e-3 * exp(g));
  const double error = relative_error(n, part, part_true);
  if (!(error < 1e-12)) fail_msg("dg where g = %g: relative error %g", g, error);
}

/* Against complex steps: all gradients, and dg for each size of decay by itself. */
static void gradients_equal_complex_steps(void **state) {
  (void)state;
  sample s = hard_sample();
  tensors r = tensors_new(&s), truth = complex_gradients(&s);
  for (int f = 0; f < FORMS; f++) {
    backward(&s.p, forms[f], s.d_o, s.dh_final, &r);
    for (int i = 0; i < INPUTS; i++) assert_close(names[i], s.count[i], r.x[i], truth.x[i], 1e-12);
    check_decay_class(&s, r.x[G], truth.x[G], -20);
    check_decay_class(&s, r.x[G], truth.x[G], -150);
    for (int64_t i = 0; i < s.count[G]; i++)
      if (s.in.x[G][i] == -INFINITY) assert_zero("dg at a reset", 1, r.x[G] + i);
  }
  tensors_free(&r);
  tensors_free(&truth);
  sample_free(&s);
}

/* The same at a length of several segments and chunks, with wide states: the two forms against each other. */
static void forms_agree(void **state) {
  (void)state;
  sample s = sample_new(1, 130, 2, 19, 24);
  strew(s.in.x[G], s.count[G], 3, 7, -20);
  strew(s.in.x[G], s.count[G], 4, 11, -150);
  strew(s.in.x[G], s.count[G], 5, 97, -INFINITY);
  tensors r = tensors_new(&s), truth = tensors_new(&s);
  double *o[2] = {vector(s.outputs, 0, 0), vector(s.outputs, 0, 0)};
  forward(&s.p, 0, o[0], NULL);
  backward(&s.p, 0, s.d_o, s.dh_final, &truth);
  for (int f = 1; f < FORMS; f++) {
    forward(&s.p, forms[f], o[1], NULL);
    assert_close("o", s.outputs, o[1], o[0], 1e-12);
    backward(&s.p, forms[f], s.d_o, s.dh_final, &r);
    for (int i = 0; i < INPUTS; i++) assert_close(names[i], s.count[i], r.x[i], truth.x[i], 1e-12);
  }
  free(o[0]), free(o[1]);
  tensors_free(&r);
  tensors_free(&truth);
  sample_free(&s);
}

/* (34) of docs/math.md: dg_t = rowsum(dS_T * S_T) + sum_{i>=t} (q_i dq_i + 2 b_i db_i - k_i dk_i), B = H = 1. */
static void decay_gradient_by_totals(const sample *s, const double *h_final, const tensors *r, double *dg) {
  const int64_t K = s->p.K, V = s->p.V;
  for (int64_t d = 0; d < K; d++) {
    double total = 0;
    for (int64_t c = 0; c < V; c++) total += s->dh_final[d * V + c] * h_final[d * V + c];
    for (int64_t x = (s->p.T - 1) * K + d; x >= 0; x -= K) {
      total += s->in.x[Q][x] * r->x[Q][x] + 2 * s->in.x[ERASE][x] * r->x[ERASE][x] - s->in.x[KEY][x] * r->x[KEY][x];
      dg[x] = total;
    }
  }
}

/* The identity ties dg to dq, dk and db. It holds to rounding for mild decays; for strong ones its own differences cancel, which
 * the direct form does not suffer from. */
static void totals_give_the_same_dg(void **state) {
  (void)state;
  sample s = sample_new(1, 37, 1, 5, 4);
  tensors r = tensors_new(&s);
  double h[20] = {0}, dg[185] = {0};
  for (int strong = 0; strong < 2; strong++) {
    if (strong) fill(s.in.x[G], s.count[G], -30);
    forward(&s.p, 0, NULL, h);
    for (int f = 0; f < FORMS; f++) {
      backward(&s.p, forms[f], s.d_o, s.dh_final, &r);
      decay_gradient_by_totals(&s, h, &r, dg);
      if (strong)
        assert_true(relative_error(s.count[G], dg, r.x[G]) > 1e-6);
      else
        assert_close("dg", s.count[G], r.x[G], dg, 1e-12);
    }
  }
  tensors_free(&r);
  sample_free(&s);
}

/* No tokens, no batch rows, results nobody asked for, memory that does not exist. */
static void edges(void **state) {
  (void)state;
  sample s = sample_new(2, 9, 2, 5, 4);
  tensors all = tensors_new(&s), one = tensors_new(&s);
  for (int64_t C = 0; C < 5; C += 2) {
    backward(&s.p, C, s.d_o, s.dh_final, &all);
    for (int i = 0; i < INPUTS; i++) { /* each gradient alone */
      tensors only = {.x = {NULL}};
      only.x[i] = one.x[i];
      backward(&s.p, C, s.d_o, s.dh_final, &only);
      assert_equal(names[i], s.count[i], one.x[i], all.x[i]);
    }
    forward(&s.p, C, NULL, NULL);
    ref_problem none = s.p;
    none.T = 0;
    forward(&none, C, NULL, one.x[STATE]);
    assert_equal("h_final of no tokens", s.count[STATE], one.x[STATE], s.in.x[STATE]);
    backward(&none, C, NULL, s.dh_final, &one);
    assert_equal("dh0 of no tokens", s.count[STATE], one.x[STATE], s.dh_final);
    none.B = 0, none.T = 9;
    forward(&none, C, NULL, NULL);
    backward(&none, C, NULL, NULL, &one);
    ref_problem huge = {.B = 1, .T = 1, .H = 1, .K = 1, .V = (int64_t)1 << 62};
    const ref_gradients nothing = {0};
    assert_int_equal(C ? ref_chunk_forward(&huge, C, NULL, NULL) : ref_forward(&huge, NULL, NULL), -1);
    assert_int_equal(C ? ref_chunk_backward(&huge, C, NULL, NULL, &nothing) : ref_backward(&huge, NULL, NULL, &nothing), -1);
  }
  tensors_free(&all);
  tensors_free(&one);
  sample_free(&s);
}

/* The comparison above must reject faults of the usual kinds. Each is planted by a change to the inputs or to a result. */
static void planted_errors_are_seen(void **state) {
  (void)state;
  sample s = sample_new(1, 20, 2, 4, 4);
  double *o = vector(s.outputs, 0, 0), *h = vector(s.count[STATE], 0, 0);
  double *bad_o = vector(s.outputs, 0, 0), *bad_h = vector(s.count[STATE], 0, 0);
  const double tolerance = 1e-3;
  forward(&s.p, 0, o, h);
  for (int which = 0; which < 3; which++) { /* no decay, no erase, no state before */
    ref_problem bad = s.p;
    double *zero = vector(s.count[G], 0, 0);
    if (which == 0) bad.g = zero;
    if (which == 1) bad.b = zero;
    if (which == 2) bad.h0 = NULL;
    forward(&bad, 0, bad_o, bad_h);
    assert_true(relative_error(s.outputs, bad_o, o) > tolerance);
    assert_true(which == 2 || relative_error(s.count[STATE], bad_h, h) > tolerance);
    free(zero);
  }
  for (int64_t x = 0; x < s.count[STATE]; x++) bad_h[x] = h[x / 16 * 16 + x % 4 * 4 + x / 4 % 4]; /* transposed */
  assert_true(relative_error(s.count[STATE], bad_h, h) > tolerance);
  memcpy(bad_o, o, (size_t)s.outputs * sizeof(double));
  bad_o[s.outputs / 2] = NAN; /* one element not written */
  assert_false(relative_error(s.outputs, bad_o, o) <= tolerance);
  tensors r = tensors_new(&s), no_decay = tensors_new(&s);
  backward(&s.p, 0, s.d_o, s.dh_final, &r);
  ref_problem bad = s.p;
  bad.h0 = NULL; /* the gradient forgets what was there before */
  backward(&bad, 0, s.d_o, s.dh_final, &no_decay);
  assert_true(relative_error(s.count[G], no_decay.x[G], r.x[G]) > tolerance);
  assert_true(relative_error(s.count[G] - s.p.K, r.x[G] + s.p.K, r.x[G]) > tolerance); /* dg one token late */
  free(o), free(h), free(bad_o), free(bad_h);
  tensors_free(&r);
  tensors_free(&no_decay);
  sample_free(&s);
}

/* A batch row does not know of the others. */
static void rows_are_independent(void **state) {
  (void)state;
  sample s = sample_new(3, 9, 2, 5, 4);
  tensors all = tensors_new(&s), one = tensors_new(&s);
  for (int64_t C = 0; C < 5; C += 4) {
    backward(&s.p, C, s.d_o, s.dh_final, &all);
    for (int64_t row = 0; row < 3; row++) {
      ref_problem p = s.p;
      const int64_t K = 9 * 2 * 5 * row, V = 9 * 2 * 4 * row, S = 2 * 5 * 4 * row;
      p.B = 1, p.q += K, p.k += K, p.g += K, p.b += K, p.v += V, p.w += V, p.h0 += S;
      backward(&p, C, s.d_o + V, s.dh_final + S, &one);
      for (int i = 0; i < INPUTS; i++) assert_equal(names[i], s.count[i] / 3, one.x[i], all.x[i] + s.count[i] / 3 * row);
    }
  }
  tensors_free(&all);
  tensors_free(&one);
  sample_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(forward_equals_the_recurrence),
      TEST(token_gradients_equal_differences),
      TEST(chunk_gradients_equal_differences),
      TEST(gradients_equal_complex_steps),
      TEST(forms_agree),
      TEST(totals_give_the_same_dg),
      TEST(edges),
      TEST(rows_are_independent),
      TEST(planted_errors_are_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
