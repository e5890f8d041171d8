/* token.c - the recurrence token by token, the definition everything else is measured against, and its adjoint.
 *
 * Equations (1) to (9) of docs/math.md. S, dS: [K][V], row = key channel. Loops over V run along memory. */
#include <math.h>
#include <string.h>
#include "head.h"

/* One token, n = its index: S goes from S_{t-1} to S_t. u [V] gets what is written, o [V] the output unless it is NULL. */
static void token_forward(const ref_problem *p, int64_t n, double *restrict S, double *restrict u, double *restrict o) {
  const int64_t K = p->K, V = p->V;
  const double *q = p->q + n * K, *k = p->k + n * K, *g = p->g + n * K, *b = p->b + n * K;
  const double *v = p->v + n * V, *w = p->w + n * V;
  for (int64_t c = 0; c < V; c++) u[c] = w[c] * v[c];
  for (int64_t d = 0; d < K; d++) {
    const double alpha = exp(g[d]), e = b[d] * k[d];
    double *restrict row = S + d * V;
    for (int64_t c = 0; c < V; c++) row[c] *= alpha;    /* (1)  S~ = alpha * S           */
    for (int64_t c = 0; c < V; c++) u[c] -= e * row[c]; /* (2)  u = w * v - S~^T (b * k) */
  }
  for (int64_t d = 0; d < K; d++)
    for (int64_t c = 0; c < V; c++) S[d * V + c] += k[d] * u[c]; /* (3)  S = S~ + k u^T */
  if (!o) return;
  memset(o, 0, (size_t)V * sizeof(double));
  for (int64_t d = 0; d < K; d++)
    for (int64_t c = 0; c < V; c++) o[c] += p->scale * q[d] * S[d * V + c]; /* (4)  o = S^T (scale q) */
}

static void copy_state(const ref_problem *p, const double *from, double *to) {
  const size_t bytes = (size_t)(p->K * p->V) * sizeof(double);
  if (from)
    memcpy(to, from, bytes);
  else
    memset(to, 0, bytes);
}

static const double *state_of(const ref_problem *p, const double *states, int64_t row) {
  return states ? states + row * p->K * p->V : NULL;
}

static int forward_row(const ref_problem *p, int64_t row, double *o, double *h_final) {
  const int64_t K = p->K, V = p->V;
  double *S = new_doubles(((double)K + 1) * (double)V);
  if (!S) return -1;
  double *u = S + K * V;
  copy_state(p, state_of(p, p->h0, row), S);
  for (int64_t t = 0; t < p->T; t++) {
    const int64_t n = token_index(p, row, t);
    token_forward(p, n, S, u, o ? o + n * V : NULL);
  }
  if (h_final) copy_state(p, S, h_final + row * K * V);
  free(S);
  return 0;
}

int ref_forward(const ref_problem *p, double *o, double *h_final) {
  int failed = 0;
  ROWS_IN_PARALLEL
  for (int64_t row = 0; row < p->B * p->H; row++) failed |= forward_row(p, row, o, h_final);
  return failed;
}

/* One token backwards. In: the states around it, u of its forward, and dS, the gradient by S_t of what comes after t. Out: dS is
 * the gradient by S_{t-1}. du, decayed [V]: scratch. */
static void token_backward(const ref_problem *p, int64_t n, const double *S_old, const double *S_new, const double *restrict u,
                           const double *d_o, double *dS, double *restrict du, double *restrict decayed,
                           const ref_gradients *grad) {
  const int64_t K = p->K, V = p->V;
  const double *q = p->q + n * K, *k = p->k + n * K, *g = p->g + n * K, *b = p->b + n * K;
  const double *v = p->v + n * V, *w = p->w + n * V;
  const double *restrict out = d_o ? d_o + n * V : NULL;
  memset(du, 0, (size_t)V * sizeof(double));
  for (int64_t d = 0; d < K; d++) {
    double *restrict dS_d = dS + d * V;
    for (int64_t c = 0; out && c < V; c++) dS_d[c] += p->scale * q[d] * out[c]; /* (5)  dS += scale q do^T */
    for (int64_t c = 0; c < V; c++) du[c] += k[d] * dS_d[c];                    /* (6)  du = dS^T k        */
    if (grad->dq) grad->dq[n * K + d] = out ? p->scale * dot(V, S_new + d * V, out) : 0;
  }
  for (int64_t c = 0; c < V; c++) {
    if (grad->dv) grad->dv[n * V + c] = w[c] * du[c];
    if (grad->dw) grad->dw[n * V + c] = v[c] * du[c];
  }
  for (int64_t d = 0; d < K; d++) {
    const double alpha = exp(g[d]), e = b[d] * k[d];
    double *restrict dS_d = dS + d * V;
    const double dk_write = dot(V, dS_d, u);                               /* (6)  dk = dS u         */
    for (int64_t c = 0; c < V; c++) dS_d[c] -= e * du[c];                  /* (7)  dS~ = dS - e du^T */
    for (int64_t c = 0; c < V; c++) decayed[c] = alpha * S_old[d * V + c]; /* S~                     */
    const double de = -dot(V, decayed, du);                                /* (7)  de = -S~ du       */
    if (grad->db) grad->db[n * K + d] = k[d] * de;
    if (grad->dk) grad->dk[n * K + d] = dk_write + b[d] * de;
    if (grad->dg) grad->dg[n * K + d] = dot(V, dS_d, decayed); /* (8)                    */
    for (int64_t c = 0; c < V; c++) dS_d[c] *= alpha;          /* (9)                    */
  }
}

/* What the backward of one row works in. A segment is `length` tokens, about sqrt(T). */
typedef struct segment_space {
  int64_t length, count;
  double *checkpoint; /* [count][K][V]      the state before each segment         */
  double *state;      /* [length+1][K][V]   the states of the segment in work     */
  double *u;          /* [length][V]        what its tokens wrote                 */
  double *dS;         /* [K][V] */
  double *du, *row;   /* [V] */
} segment_space;

/* All of it is one block, which begins at checkpoint. */
static int segment_space_new(const ref_problem *p, segment_space *s) {
  const int64_t KV = p->K * p->V;
  s->length = (int64_t)ceil(sqrt((double)p->T));
  s->count = s->length ? (p->T + s->length - 1) / s->length : 0;
  const double states = (double)(s->count + s->length + 2), rows = (double)(s->length + 2);
  s->checkpoint = new_doubles((states * (double)p->K + rows) * (double)p->V);
  if (!s->checkpoint) return -1;
  s->state = s->checkpoint + s->count * KV;
  s->dS = s->state + (s->length + 1) * KV;
  s->u = s->dS + KV;
  s->du = s->u + s->length * p->V;
  s->row = s->du + p->V;
  return 0;
}

/* The states before each segment. */
static void lay_checkpoints(const ref_problem *p, int64_t row, segment_space *s) {
  const int64_t KV = p->K * p->V;
  copy_state(p, state_of(p, p->h0, row), s->state);
  for (int64_t t = 0; t < p->T; t++) {
    if (t % s->length == 0) copy_state(p, s->state, s->checkpoint + t / s->length * KV);
    token_forward(p, token_index(p, row, t), s->state, s->u, NULL);
  }
}

static void segment_backward(const ref_problem *p, int64_t row, int64_t segment, segment_space *s, const double *d_o,
                             const ref_gradients *grad) {
  const int64_t KV = p->K * p->V, t0 = segment * s->length;
  const int64_t tokens = p->T - t0 < s->length ? p->T - t0 : s->length;
  copy_state(p, s->checkpoint + segment * KV, s->state);
  for (int64_t i = 0; i < tokens; i++) {
    copy_state(p, s->state + i * KV, s->state + (i + 1) * KV);
    token_forward(p, token_index(p, row, t0 + i), s->state + (i + 1) * KV, s->u + i * p->V, NULL);
  }
  for (int64_t i = tokens - 1; i >= 0; i--)
    token_backward(p, token_index(p, row, t0 + i), s->state + i * KV, s->state + (i + 1) * KV, s->u + i * p->V, d_o, s->dS, s->du,
                   s->row, grad);
}

static int backward_row(const ref_problem *p, int64_t row, const double *d_o, const double *dh_final, const ref_gradients *grad) {
  segment_space s;
  if (segment_space_new(p, &s)) return -1;
  lay_checkpoints(p, row, &s);
  copy_state(p, state_of(p, dh_final, row), s.dS);
  for (int64_t segment = s.count - 1; segment >= 0; segment--) segment_backward(p, row, segment, &s, d_o, grad);
  if (grad->dh0) copy_state(p, s.dS, grad->dh0 + row * p->K * p->V);
  free(s.checkpoint);
  return 0;
}

int ref_backward(const ref_problem *p, const double *d_o, const double *dh_final, const ref_gradients *grad) {
  int failed = 0;
  ROWS_IN_PARALLEL
  for (int64_t row = 0; row < p->B * p->H; row++) failed |= backward_row(p, row, d_o, dh_final, grad);
  return failed;
}
