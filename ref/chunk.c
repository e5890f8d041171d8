/* chunk.c - the same mathematics by chunks of C tokens: the residual form with exact decays, and its adjoint.
 *
 * Equations (10) to (33) of docs/math.md, each quoted above the lines it gives rise to. Rows of the chunk's matrices are its n
 * tokens, leading dimension = number of columns; the last chunk may have n < C. S: [K][V]. */
#include <math.h>
#include <string.h>
#include "head.h"

/* Everything about one chunk. [nK]: n x K, [nV]: n x V, [nn]: n x n, row = the later token i, column = the earlier token j. */
typedef struct chunk {
  int64_t n, K, V;
  double scale;
  double *block;                       /* the one allocation in which the arrays lie        */
  double *q, *k, *g, *b, *v, *w;       /* [nK] [nV]  the inputs                             */
  double *alpha, *gamma;               /* [nK]  (10) (11)                                   */
  double *d;                           /* [nK]  pair decays d_ij of one j, rows i >= j      */
  double *E, *Qg, *Ktail;              /* [nK]  (12) (13) (16)                              */
  double *P, *T;                       /* [nn]  (14) (15)                                   */
  double *R, *O;                       /* [nV]  (17) (18), solved in place: R holds X first */
  double *dO, *dX;                     /* [nV]  (21), solved in place: dX holds dR first    */
  double *dP, *dT;                     /* [nn]  (22)                                        */
  double *dQg, *dE, *dKt;              /* [nK]  (23) (24)                                   */
  double *dq_pair, *de_pair, *dk_pair; /* [nK]  (25) (26)                                   */
  double *dg_pair, *through;           /* [nK] [K]  (27) (28)                               */
  double *dq, *dk, *dg, *db;           /* [nK]  (29) (30) (32)                              */
  double *dv, *dw;                     /* [nV]  (31)                                        */
  double *sum;                         /* [K]   a running sum over rows, by channel         */
} chunk;

/* Arrays for chunks of up to C tokens. */
static int chunk_new(const ref_problem *p, int64_t C, chunk *c) {
  const int64_t K = p->K, V = p->V, m = C < p->T ? C : p->T;
  *c = (chunk){.K = K, .V = V, .scale = p->scale};
  double **by_key[] = {&c->q,       &c->k,       &c->g,       &c->b,   &c->alpha, &c->gamma, &c->d,
                       &c->E,       &c->Qg,      &c->Ktail,   &c->dQg, &c->dE,    &c->dKt,   &c->dq_pair,
                       &c->de_pair, &c->dk_pair, &c->dg_pair, &c->dq,  &c->dk,    &c->dg,    &c->db};
  double **by_value[] = {&c->v, &c->w, &c->R, &c->O, &c->dO, &c->dX, &c->dv, &c->dw};
  double **by_pair[] = {&c->T, &c->P, &c->dP, &c->dT};
  const size_t keys = sizeof by_key / sizeof *by_key, values = sizeof by_value / sizeof *by_value;
  const size_t pairs = sizeof by_pair / sizeof *by_pair;
  const double columns = (double)keys * (double)K + (double)values * (double)V + (double)pairs * (double)m;
  double *next = c->block = new_doubles((double)m * columns + 2 * (double)K);
  if (!next) return -1;
  c->sum = next, next += K;
  c->through = next, next += K;
  for (size_t i = 0; i < keys; i++, next += m * K) *by_key[i] = next;
  for (size_t i = 0; i < values; i++, next += m * V) *by_value[i] = next;
  for (size_t i = 0; i < pairs; i++, next += m * m) *by_pair[i] = next;
  return 0;
}

/* ---- Products: C [m x n] += s A B, with A or B transposed where the name says so ---- */

static void add_ab(int64_t m, int64_t n, int64_t inner, double s, const double *A, const double *B, double *C) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t l = 0; l < inner; l++)
      for (int64_t j = 0; j < n; j++) C[i * n + j] += s * A[i * inner + l] * B[l * n + j];
}

static void add_at_b(int64_t m, int64_t n, int64_t inner, double s, const double *A, const double *B, double *C) {
  for (int64_t l = 0; l < inner; l++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) C[i * n + j] += s * A[l * m + i] * B[l * n + j];
}

/* C = s A B^T. */
static void set_a_bt(int64_t m, int64_t n, int64_t inner, double s, const double *A, const double *B, double *C) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) C[i * n + j] = s * dot(inner, A + i * inner, B + j * inner);
}

static void set_zero(int64_t count, double *x) { memset(x, 0, (size_t)count * sizeof(double)); }
static void set_copy(int64_t count, const double *from, double *to) { memcpy(to, from, (size_t)count * sizeof(double)); }

/* ---- Between the caller's arrays and the chunk's: n rows of `width`, from token t0 on ---- */

static void gather(const ref_problem *p, int64_t row, int64_t t0, int64_t n, int64_t width, const double *from, double *to) {
  for (int64_t i = 0; i < n; i++) set_copy(width, from + token_index(p, row, t0 + i) * width, to + i * width);
}

static void scatter(const ref_problem *p, int64_t row, int64_t t0, int64_t n, int64_t width, const double *from, double *to) {
  for (int64_t i = 0; to && i < n; i++) set_copy(width, from + i * width, to + token_index(p, row, t0 + i) * width);
}

static void load(const ref_problem *p, int64_t row, int64_t t0, int64_t C, chunk *c) {
  c->n = p->T - t0 < C ? p->T - t0 : C;
  gather(p, row, t0, c->n, c->K, p->q, c->q);
  gather(p, row, t0, c->n, c->K, p->k, c->k);
  gather(p, row, t0, c->n, c->K, p->g, c->g);
  gather(p, row, t0, c->n, c->K, p->b, c->b);
  gather(p, row, t0, c->n, c->V, p->v, c->v);
  gather(p, row, t0, c->n, c->V, p->w, c->w);
}

/* ---- Forward ---- */

static void decays(chunk *c) {
  const int64_t n = c->n, K = c->K;
  /* (10) alpha_t = exp(g_t)     (11) gamma_t = gamma_{t-1} alpha_t */
  for (int64_t x = 0; x < n * K; x++) {
    c->alpha[x] = exp(c->g[x]);
    c->gamma[x] = x < K ? c->alpha[x] : c->gamma[x - K] * c->alpha[x];
  }
}

/* d_ij = alpha_{j+1} ... alpha_i of one j, rows i = j to n-1. */
static void pair_decays(chunk *c, int64_t j) {
  const int64_t K = c->K;
  for (int64_t x = j * K; x < c->n * K; x++) c->d[x] = x < (j + 1) * K ? 1 : c->d[x - K] * c->alpha[x];
}

static void factors(chunk *c) {
  /* (12) E_t = gamma_t b_t k_t     (13) Qg_t = scale gamma_t q_t */
  for (int64_t x = 0; x < c->n * c->K; x++) {
    c->E[x] = c->gamma[x] * c->b[x] * c->k[x];
    c->Qg[x] = c->scale * c->gamma[x] * c->q[x];
  }
}

static void scores(chunk *c) {
  const int64_t n = c->n, K = c->K;
  /* (14) P_ij = sum_m scale q_i d_ij k_j, i >= j     (15) T_ij = sum_m b_i k_i d_ij k_j, i > j     (m: key channel) */
  set_zero(n * n, c->P);
  set_zero(n * n, c->T);
  for (int64_t j = 0; j < n; j++) {
    pair_decays(c, j);
    for (int64_t i = j; i < n; i++)
      for (int64_t m = 0; m < K; m++) {
        const double key = c->d[i * K + m] * c->k[j * K + m];
        c->P[i * n + j] += c->scale * c->q[i * K + m] * key;
        if (i > j) c->T[i * n + j] += c->b[i * K + m] * c->k[i * K + m] * key;
      }
    /* (16) Ktail_j = d_nj k_j */
    for (int64_t m = 0; m < K; m++) c->Ktail[j * K + m] = c->d[(n - 1) * K + m] * c->k[j * K + m];
  }
}

static void residual(chunk *c, const double *S0) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (17) (I + T) R = X,  X = Z - E S0,  Z = w v: forward substitution in place */
  for (int64_t x = 0; x < n * V; x++) c->R[x] = c->w[x] * c->v[x];
  add_ab(n, V, K, -1, c->E, S0, c->R);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      for (int64_t m = 0; m < V; m++) c->R[i * V + m] -= c->T[i * n + j] * c->R[j * V + m];
}

static void output(chunk *c, const double *S0) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (18) O = Qg S0 + P R */
  set_zero(n * V, c->O);
  add_ab(n, V, K, 1, c->Qg, S0, c->O);
  add_ab(n, V, n, 1, c->P, c->R, c->O);
}

static void next_state(const chunk *c, const double *S0, double *S1) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (19) S1 = gamma_n S0 + Ktail^T R */
  for (int64_t x = 0; x < K * V; x++) S1[x] = c->gamma[(n - 1) * K + x / V] * S0[x];
  add_at_b(K, V, n, 1, c->Ktail, c->R, S1);
}

static void chunk_forward(const ref_problem *p, int64_t row, int64_t t0, int64_t C, const double *S0, chunk *c) {
  load(p, row, t0, C, c);
  decays(c);
  factors(c);
  scores(c);
  residual(c, S0);
}

static void start_state(const ref_problem *p, const double *states, int64_t row, double *S) {
  const int64_t KV = p->K * p->V;
  if (states)
    set_copy(KV, states + row * KV, S);
  else
    set_zero(KV, S);
}

static int forward_row(const ref_problem *p, int64_t row, int64_t C, double *o, double *h_final) {
  const int64_t KV = p->K * p->V;
  chunk c;
  if (chunk_new(p, C, &c)) return -1;
  double *S = new_doubles(2 * (double)p->K * (double)p->V), *S0 = S, *S1 = S + KV;
  if (S) {
    start_state(p, p->h0, row, S0);
    for (int64_t t0 = 0; t0 < p->T; t0 += C) {
      chunk_forward(p, row, t0, C, S0, &c);
      output(&c, S0);
      next_state(&c, S0, S1);
      scatter(p, row, t0, c.n, p->V, c.O, o);
      set_copy(KV, S1, S0);
    }
    if (h_final) set_copy(KV, S0, h_final + row * KV);
  }
  free(S);
  free(c.block);
  return S ? 0 : -1;
}

int ref_chunk_forward(const ref_problem *p, int64_t C, double *o, double *h_final) {
  int failed = 0;
  ROWS_IN_PARALLEL
  for (int64_t row = 0; row < p->B * p->H; row++) failed |= forward_row(p, row, C, o, h_final);
  return failed;
}

/* ---- Backward ---- */

static void residual_gradient(chunk *c, const double *dS1) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (20) dR = P^T dO + Ktail dS1 */
  set_zero(n * V, c->dX);
  add_at_b(n, V, n, 1, c->P, c->dO, c->dX);
  add_ab(n, V, K, 1, c->Ktail, dS1, c->dX);
  /* (21) (I + T)^T dX = dR: back substitution in place */
  for (int64_t j = n - 1; j >= 0; j--)
    for (int64_t i = j + 1; i < n; i++)
      for (int64_t m = 0; m < V; m++) c->dX[j * V + m] -= c->T[i * n + j] * c->dX[i * V + m];
}

static void factor_gradients(chunk *c, const double *S0, const double *dS1) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (22) dP_ij = dO_i . R_j, i >= j;  dT_ij = -dX_i . R_j, i > j */
  set_a_bt(n, n, V, 1, c->dO, c->R, c->dP);
  set_a_bt(n, n, V, -1, c->dX, c->R, c->dT);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i; j < n; j++) {
      if (j > i) c->dP[i * n + j] = 0;
      c->dT[i * n + j] = 0;
    }
  /* (23) dQg = dO S0^T,  dE = -dX S0^T     (24) dKt = R dS1^T */
  set_a_bt(n, K, V, 1, c->dO, S0, c->dQg);
  set_a_bt(n, K, V, -1, c->dX, S0, c->dE);
  set_a_bt(n, K, V, 1, c->R, dS1, c->dKt);
}

static void pair_gradients(chunk *c) {
  const int64_t n = c->n, K = c->K;
  set_zero(n * K, c->dq_pair);
  set_zero(n * K, c->de_pair);
  set_zero(n * K, c->dk_pair);
  set_zero(n * K, c->dg_pair);
  /* (25) dq_pair_i = sum_{j<=i} dP_ij d_ij k_j,  de_pair_i = sum_{j<i} dT_ij d_ij k_j
   * (26) dk_pair_j = sum_{i>=j} (scale dP_ij q_i + dT_ij b_i k_i) d_ij
   * (27) dg_pair_t = sum_{i>=t>j} (scale dP_ij q_i + dT_ij b_i k_i) d_ij k_j: for each j a running sum over i from the last row
   *      up to j + 1 */
  for (int64_t j = 0; j < n; j++) {
    pair_decays(c, j);
    set_zero(K, c->sum);
    for (int64_t i = n - 1; i >= j; i--)
      for (int64_t m = 0; m < K; m++) {
        const int64_t x = i * K + m, y = j * K + m;
        const double dP = c->dP[i * n + j] * c->d[x], dT = c->dT[i * n + j] * c->d[x];
        const double dkey = c->scale * dP * c->q[x] + dT * c->b[x] * c->k[x];
        c->dq_pair[x] += dP * c->k[y];
        c->de_pair[x] += dT * c->k[y];
        c->dk_pair[y] += dkey;
        c->sum[m] += dkey * c->k[y];
        if (i > j) c->dg_pair[x] += c->sum[m];
      }
  }
}

static void through_gradient(chunk *c, const double *S0, const double *dS1) {
  const double *gamma_n = c->gamma + (c->n - 1) * c->K;
  /* (28) through = gamma_n rowsum(dS1 S0) */
  for (int64_t m = 0; m < c->K; m++) c->through[m] = gamma_n[m] * dot(c->V, dS1 + m * c->V, S0 + m * c->V);
}

static void input_gradients(chunk *c) {
  const int64_t n = c->n, K = c->K, V = c->V;
  for (int64_t j = 0; j < n; j++) {
    pair_decays(c, j);
    for (int64_t m = 0; m < K; m++) {
      const int64_t x = j * K + m;
      /* (29) dq_t = scale (gamma_t dQg_t + dq_pair_t) */
      c->dq[x] = c->scale * (c->gamma[x] * c->dQg[x] + c->dq_pair[x]);
      /* (30) de_t = gamma_t dE_t + de_pair_t,  db_t = k_t de_t,  dk_t = b_t de_t + dk_pair_t + d_nt dKt_t */
      const double de = c->gamma[x] * c->dE[x] + c->de_pair[x];
      c->db[x] = c->k[x] * de;
      c->dk[x] = c->b[x] * de + c->dk_pair[x] + c->d[(n - 1) * K + m] * c->dKt[x];
    }
  }
  /* (31) dv = w dX,  dw = v dX */
  for (int64_t x = 0; x < n * V; x++) {
    c->dv[x] = c->w[x] * c->dX[x];
    c->dw[x] = c->v[x] * c->dX[x];
  }
}

static void decay_gradient(chunk *c) {
  const int64_t n = c->n, K = c->K;
  /* (32) dg_t = sum_{i>=t} (Qg_i dQg_i + E_i dE_i) + sum_{j<t} Ktail_j dKt_j + through + dg_pair_t */
  set_zero(K, c->sum);
  for (int64_t x = n * K - 1; x >= 0; x--) {
    c->sum[x % K] += c->Qg[x] * c->dQg[x] + c->E[x] * c->dE[x];
    c->dg[x] = c->sum[x % K] + c->through[x % K] + c->dg_pair[x];
  }
  set_zero(K, c->sum);
  for (int64_t x = K; x < n * K; x++) {
    c->sum[x % K] += c->Ktail[x - K] * c->dKt[x - K];
    c->dg[x] += c->sum[x % K];
  }
}

static void state_gradient(const chunk *c, const double *dS1, double *dS0) {
  const int64_t n = c->n, K = c->K, V = c->V;
  /* (33) dS0 = gamma_n dS1 + Qg^T dO - E^T dX */
  for (int64_t x = 0; x < K * V; x++) dS0[x] = c->gamma[(n - 1) * K + x / V] * dS1[x];
  add_at_b(K, V, n, 1, c->Qg, c->dO, dS0);
  add_at_b(K, V, n, -1, c->E, c->dX, dS0);
}

/* Gradients of the chunk from token t0 on, whose forward is in c, into the caller's arrays; dS goes from dS1 to dS0. */
static void chunk_backward(const ref_problem *p, int64_t row, int64_t t0, const double *d_o, const double *S0, double *dS,
                           double *dS0, const ref_gradients *grad, chunk *c) {
  const int64_t n = c->n, K = c->K, V = c->V;
  set_zero(n * V, c->dO);
  if (d_o) gather(p, row, t0, n, V, d_o, c->dO);
  residual_gradient(c, dS);
  factor_gradients(c, S0, dS);
  pair_gradients(c);
  through_gradient(c, S0, dS);
  input_gradients(c);
  decay_gradient(c);
  state_gradient(c, dS, dS0);
  set_copy(K * V, dS0, dS);
  scatter(p, row, t0, n, K, c->dq, grad->dq);
  scatter(p, row, t0, n, K, c->dk, grad->dk);
  scatter(p, row, t0, n, K, c->dg, grad->dg);
  scatter(p, row, t0, n, K, c->db, grad->db);
  scatter(p, row, t0, n, V, c->dv, grad->dv);
  scatter(p, row, t0, n, V, c->dw, grad->dw);
}

static int backward_row(const ref_problem *p, int64_t row, int64_t C, const double *d_o, const double *dh_final,
                        const ref_gradients *grad) {
  const int64_t KV = p->K * p->V, chunks = p->T / C + (p->T % C != 0);
  chunk c;
  if (chunk_new(p, C, &c)) return -1;
  double *S = new_doubles((double)(chunks + 3) * (double)p->K * (double)p->V); /* S + i KV: the state before chunk i */
  if (S) {
    double *dS = S + (chunks + 1) * KV, *dS0 = dS + KV;
    start_state(p, p->h0, row, S);
    for (int64_t i = 0; i < chunks; i++) {
      chunk_forward(p, row, i * C, C, S + i * KV, &c);
      next_state(&c, S + i * KV, S + (i + 1) * KV);
    }
    start_state(p, dh_final, row, dS);
    for (int64_t i = chunks - 1; i >= 0; i--) {
      chunk_forward(p, row, i * C, C, S + i * KV, &c);
      chunk_backward(p, row, i * C, d_o, S + i * KV, dS, dS0, grad, &c);
    }
    if (grad->dh0) set_copy(KV, dS, grad->dh0 + row * KV);
  }
  free(S);
  free(c.block);
  return S ? 0 : -1;
}

int ref_chunk_backward(const ref_problem *p, int64_t C, const double *d_o, const double *dh_final, const ref_gradients *grad) {
  int failed = 0;
  ROWS_IN_PARALLEL
  for (int64_t row = 0; row < p->B * p->H; row++) failed |= backward_row(p, row, C, d_o, dh_final, grad);
  return failed;
}
