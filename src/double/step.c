/* One token of the recurrence, forwards and backwards: equations (1) to (9) of docs/math.md. Sums run in a fixed order. */
#include "double/head.h"

/* Eight sums side by side: a single one would wait for each addition. */
static double dot(int64_t n, const double *x, const double *y) {
  double part[8] = {0}, sum = 0;
  int64_t c = 0;
  for (; c + 8 <= n; c += 8)
    for (int i = 0; i < 8; i++) part[i] += x[c + i] * y[c + i];
  for (; c < n; c++) sum += x[c] * y[c];
  return sum + (((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}

/* x *= a */
static void multiply(int64_t n, double a, double *x) {
  for (int64_t c = 0; c < n; c++) x[c] *= a;
}

/* y += a x */
static void add_times(int64_t n, double a, const double *restrict x, double *restrict y) {
  for (int64_t c = 0; c < n; c++) y[c] += a * x[c];
}

void gdn2_double_step(const gdn2_double_head *head, const gdn2_double_token *token, const double *S0, double *S1, double *u,
                      double *o) {
  const int64_t K = head->K, V = head->V;
  for (int64_t c = 0; c < V; c++) u[c] = token->w[c] * token->v[c];
  for (int64_t d = 0; d < K; d++) {
    double *row = S1 + d * V;
    if (S0 != S1) memcpy(row, S0 + d * V, (size_t)V * sizeof *row);
    multiply(V, token->alpha[d], row);  /* (1) */
    add_times(V, -token->e[d], row, u); /* (2) */
  }
  for (int64_t c = 0; o && c < V; c++) o[c] = 0;
  for (int64_t d = 0; d < K; d++) {
    add_times(V, token->k[d], u, S1 + d * V);                      /* (3) */
    if (o) add_times(V, head->scale * token->q[d], S1 + d * V, o); /* (4) */
  }
}

/* What needs the states: the gradients of q and of the key as it is written, from dS, the gradient by S1. */
static void written_back(const gdn2_double_head *head, const double *S1, const double *u, const double *d_o, const double *dS,
                         gdn2_double_grad *grad) {
  const int64_t V = head->V;
  for (int64_t d = 0; d < head->K; d++) {
    grad->q[d] = d_o ? head->scale * dot(V, S1 + d * V, d_o) : 0; /* (5) */
    grad->k[d] = dot(V, dS + d * V, u);                           /* (6) */
  }
}

/* The same of the key as it reads, and of the decay; dS is by then the gradient by the decayed state. */
static void read_back(const gdn2_double_head *head, const gdn2_double_token *token, const double *S0, const double *dS,
                      const double *du, gdn2_double_grad *grad) {
  const int64_t V = head->V;
  for (int64_t d = 0; d < head->K; d++) {
    const double de = -token->alpha[d] * dot(V, S0 + d * V, du); /* (7) */
    grad->b[d] = token->k[d] * de;
    grad->k[d] += token->b[d] * de;
    grad->g[d] = token->alpha[d] * dot(V, S0 + d * V, dS + d * V); /* (8) */
  }
}

void gdn2_double_step_back(const gdn2_double_head *head, const gdn2_double_token *token, const double *S0, const double *S1,
                           const double *u, const double *d_o, double *dS, double *du, gdn2_double_grad *grad) {
  const int64_t K = head->K, V = head->V;
  for (int64_t c = 0; c < V; c++) du[c] = 0;
  for (int64_t d = 0; d < K; d++) {
    if (d_o) add_times(V, head->scale * token->q[d], d_o, dS + d * V); /* (5) */
    add_times(V, token->k[d], dS + d * V, du);                         /* (6) */
  }
  for (int64_t c = 0; c < V; c++) grad->v[c] = token->w[c] * du[c], grad->w[c] = token->v[c] * du[c];
  if (S0) written_back(head, S1, u, d_o, dS, grad);
  for (int64_t d = 0; d < K; d++) add_times(V, -token->e[d], du, dS + d * V); /* (7) */
  if (S0) read_back(head, token, S0, dS, du, grad);
  for (int64_t d = 0; d < K; d++) multiply(V, token->alpha[d], dS + d * V); /* (9) */
}

void gdn2_double_state_load(const gdn2_view *from, int64_t sequence, int64_t head, int64_t K, int64_t V, double *S) {
  const int64_t *step = from->stride;
  const double *at = from->data ? (const double *)(const void *)from->data + sequence * step[0] + head * step[1] : NULL;
  for (int64_t d = 0; d < K; d++)
    for (int64_t c = 0; c < V; c++) S[d * V + c] = at ? at[d * step[2] + c * step[3]] : 0;
}

void gdn2_double_state_put(const double *S, int64_t K, int64_t V, gdn2_state_at to) {
  double *at = (double *)(void *)to.at;
  for (int64_t d = 0; at && d < K; d++)
    for (int64_t c = 0; c < V; c++) at[d * to.key_step + c * to.value_step] = S[d * V + c];
}

void gdn2_double_state_store(const double *S, int64_t K, int64_t V, const gdn2_view_out *to, int64_t sequence, int64_t head) {
  const int64_t *step = to->stride;
  gdn2_state_at at = {to->data, to->dtype, step[2], step[3]};
  if (at.at) at.at += (sequence * step[0] + head * step[1]) * (int64_t)sizeof *S;
  gdn2_double_state_put(S, K, V, at);
}

void gdn2_double_clear(const gdn2_view_out *out, int64_t start, int64_t T, int64_t heads, int64_t channels) {
  if (!out->data) return;
  for (int64_t t = start; t < T; t++)
    for (int64_t h = 0; h < heads; h++) {
      double *row = (double *)(void *)out->data + t * out->stride[1] + h * out->stride[2];
      for (int64_t c = 0; c < channels; c++) row[c * out->stride[3]] = 0;
    }
}
