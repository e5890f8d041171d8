#include "loop.h"

#include <math.h>
#include <string.h>

#include "test.h"

typedef struct token {
  const float *q, *k, *v, *g, *b, *w;
} token;

static token token_at(const exact_case *c, int64_t b, int64_t t, int64_t h) {
  return (token){case_row(c, IN_Q, b, t, h), case_row(c, IN_K, b, t, h), case_row(c, IN_V, b, t, h),
                 case_row(c, IN_G, b, t, h), case_row(c, IN_B, b, t, h), case_row(c, IN_W, b, t, h)};
}

static double default_scale(const exact_case *c) { return c->scale ? *c->scale : 1 / sqrt((double)c->K); }

static void start_state(const exact_case *c, const float *h0, loop_fault fault, double *S) {
  for (int64_t d = 0; d < c->K; d++)
    for (int64_t e = 0; e < c->V; e++)
      S[d * c->V + e] =
          fault == LOOP_H0_IGNORED ? 0 : (double)(fault == LOOP_H0_TRANSPOSED ? h0[e * c->K + d] : h0[d * c->V + e]);
}

static void decay_state(const exact_case *c, const float *g, loop_fault fault, double *S) {
  for (int64_t d = 0; d < c->K; d++) {
    const double alpha = fault == LOOP_NO_DECAY ? 1 : fault == LOOP_BASE_TWO ? exp2(g[d]) : exp(g[d]);
    for (int64_t e = 0; e < c->V; e++) S[d * c->V + e] *= alpha;
  }
}

/* sum_d x[d] y[d] S[d][e]; y may be NULL. */
static double read_state(const exact_case *c, const double *S, const float *x, const float *y, int64_t e) {
  double sum = 0;
  for (int64_t d = 0; d < c->K; d++) sum += (double)x[d] * (y ? (double)y[d] : 1) * S[d * c->V + e];
  return sum;
}

static void step(const exact_case *c, token x, loop_fault fault, double *S, double *o) {
  double r[GDN2_MAX_DIM], old[GDN2_MAX_DIM];
  if (fault != LOOP_DECAY_AFTER_READ) decay_state(c, x.g, fault, S);
  for (int64_t e = 0; e < c->V; e++) r[e] = fault == LOOP_NO_ERASE ? 0 : read_state(c, S, x.b, x.k, e);
  if (fault == LOOP_DECAY_AFTER_READ) decay_state(c, x.g, fault, S);
  for (int64_t e = 0; e < c->V; e++) old[e] = read_state(c, S, x.q, NULL, e);
  for (int64_t d = 0; d < c->K; d++)
    for (int64_t e = 0; e < c->V; e++) {
      const double w = fault == LOOP_NO_WRITE_GATE ? 1 : (double)x.w[e];
      S[d * c->V + e] += (double)x.k[d] * (w * (double)x.v[e] - r[e]);
    }
  for (int64_t e = 0; e < c->V; e++)
    o[e] = default_scale(c) * (fault == LOOP_OLD_STATE ? old[e] : read_state(c, S, x.q, NULL, e));
}

void loop_forward(const exact_case *c, loop_fault fault, double *o, double *h_final) {
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++) {
      const int64_t state = (b * c->H + h) * c->K * c->V;
      start_state(c, c->in[IN_H0] + state, fault, h_final + state);
      for (int64_t t = 0; t < c->T; t++)
        step(c, token_at(c, b, t, h), fault, h_final + state, o + ((b * c->T + t) * c->H + h) * c->V);
    }
}

static void step_f32(const exact_case *c, token x, float scale, float *S, float *o) {
  float r[GDN2_MAX_DIM] = {0};
  for (int64_t d = 0; d < c->K; d++)
    for (int64_t e = 0; e < c->V; e++) {
      S[d * c->V + e] *= expf(x.g[d]);
      r[e] += x.b[d] * x.k[d] * S[d * c->V + e];
    }
  memset(o, 0, (size_t)c->V * sizeof *o);
  for (int64_t d = 0; d < c->K; d++)
    for (int64_t e = 0; e < c->V; e++) {
      S[d * c->V + e] += x.k[d] * (x.w[e] * x.v[e] - r[e]);
      o[e] += scale * x.q[d] * S[d * c->V + e];
    }
}

void loop_forward_f32(const exact_case *c, float *o, float *h_final) {
  memcpy(h_final, c->in[IN_H0], input_count(c, IN_H0) * sizeof(float));
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t t = 0; t < c->T; t++)
        step_f32(c, token_at(c, b, t, h), (float)default_scale(c), h_final + (b * c->H + h) * c->K * c->V,
                 o + ((b * c->T + t) * c->H + h) * c->V);
}

/* One step of a published rule: next[d][e] = a(d) S[d][e] - beta k[d] sum_j k[j] a(j) S[j][e] + beta k[d] v[e]. */
static void rule_step(const exact_case *c, token x, loop_rule rule, double *S) {
  double alpha[GDN2_MAX_DIM];
  const double beta = rule == RULE_GLA ? 1 : (double)x.b[0];
  for (int64_t d = 0; d < c->K; d++)
    alpha[d] = rule == RULE_DELTANET ? 1 : exp(rule == RULE_GDN ? (double)x.g[0] : (double)x.g[d]);
  for (int64_t e = 0; e < c->V; e++) {
    double along = 0;
    for (int64_t d = 0; d < c->K; d++) along += (double)x.k[d] * alpha[d] * S[d * c->V + e];
    for (int64_t d = 0; d < c->K; d++) {
      const double erased = rule == RULE_GLA ? 0 : beta * (double)x.k[d] * along;
      S[d * c->V + e] = alpha[d] * S[d * c->V + e] - erased + beta * (double)x.k[d] * (double)x.v[e];
    }
  }
}

/* A row of an input that the rule does not have is never read. */
static token rule_token(const exact_case *c, int64_t b, int64_t t, int64_t h) {
  return (token){.q = case_row(c, IN_Q, b, t, h),
                 .k = case_row(c, IN_K, b, t, h),
                 .v = case_row(c, IN_V, b, t, h),
                 .g = c->in[IN_G] ? case_row(c, IN_G, b, t, h) : NULL,
                 .b = c->in[IN_B] ? case_row(c, IN_B, b, t, h) : NULL};
}

void loop_rule_forward(const exact_case *c, loop_rule rule, double *o, double *h_final) {
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++) {
      double *S = h_final + (b * c->H + h) * c->K * c->V;
      start_state(c, c->in[IN_H0] + (b * c->H + h) * c->K * c->V, LOOP_RIGHT, S);
      for (int64_t t = 0; t < c->T; t++) {
        const token x = rule_token(c, b, t, h);
        rule_step(c, x, rule, S);
        for (int64_t e = 0; e < c->V; e++)
          o[((b * c->T + t) * c->H + h) * c->V + e] = default_scale(c) * read_state(c, S, x.q, NULL, e);
      }
    }
}
