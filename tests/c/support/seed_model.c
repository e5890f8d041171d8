/* The kernels of the seed's pipeline in float64, one chunk each, straight from their formulas. */
#include <math.h>
#include <stdbool.h>

#include "memory.h"
#include "seed_case.h"

#define AT(X, i, j, columns) (X)[(i) * (columns) + (j)]

seed_model seed_model_of(const seed_case *c) {
  return (seed_model){c->config.bt, (int)c->call.K, (int)c->call.V, c->scale, c->config.clip, c->config.wy_eps, true};
}

double seed_clean(double x, double clip) { return isnan(x) ? 0 : fmin(fmax(x, -clip), clip); }

static void clean(double clip, int n, double *x) {
  for (int i = 0; i < n; i++) x[i] = seed_clean(x[i], clip);
}

static double pair(double difference) { return exp(fmin(fmax(difference, -20), 20)); }

/* C (m x n) = A' B' with k terms, where ' is the transpose if asked for. */
static void product(int m, int n, int k, const double *A, bool transpose_A, const double *B, bool transpose_B, double *C) {
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      double sum = 0;
      for (int p = 0; p < k; p++)
        sum += (transpose_A ? AT(A, p, i, m) : AT(A, i, p, k)) * (transpose_B ? AT(B, j, p, k) : AT(B, p, j, n));
      AT(C, i, j, n) = sum;
    }
}

void model_sums(const seed_model *m, const double *g, double *gc) {
  for (int d = 0; d < m->K; d++) {
    double sum = 0;
    for (int i = 0; i < m->C; i++) {
      sum += AT(g, i, d, m->K);
      if (m->float_sums) sum = (double)(float)sum;
      AT(gc, i, d, m->K) = sum;
    }
  }
}

void model_scores(const seed_model *m, const double *q, const double *k, const double *b, const double *g, double *Aqk,
                  double *Akk) {
  const int C = m->C, K = m->K;
  double *gc = test_doubles((size_t)(C * K));
  model_sums(m, g, gc);
  for (int i = 0; i < C; i++)
    for (int j = 0; j < C; j++) {
      double qk = 0, kk = 0;
      for (int d = 0; d < K; d++) {
        const double e = pair(AT(gc, i, d, K) - AT(gc, j, d, K)) * AT(k, j, d, K);
        qk += AT(q, i, d, K) * e;
        kk += AT(b, i, d, K) * AT(k, i, d, K) * e;
      }
      AT(Aqk, i, j, C) = j <= i ? seed_clean(m->scale * qk, m->clip) : 0;
      AT(Akk, i, j, C) = j < i ? seed_clean(kk, m->clip) : 0;
    }
}

void model_solve(const seed_model *m, const double *Akk, double *A) {
  const int C = m->C;
  for (int i = 0; i < C; i++)
    for (int j = 0; j < C; j++) {
      double sum = i == j;
      for (int p = 0; p < i; p++) sum -= (1 - m->wy_eps) * AT(Akk, i, p, C) * AT(A, p, j, C);
      AT(A, i, j, C) = sum;
    }
  clean(m->clip, C * C, A);
}

void model_rebuild(const seed_model *m, const model_chunk *x) {
  const int C = m->C, K = m->K, V = m->V;
  double *gc = test_doubles((size_t)(C * K)), *kb = test_doubles((size_t)(C * K)), *wv = test_doubles((size_t)(C * V));
  model_sums(m, x->g, gc);
  const double *last = gc + (C - 1) * K;
  for (int i = 0; i < C * K; i++) {
    kb[i] = x->b[i] * x->k[i] * exp(gc[i]);
    x->kg[i] = x->k[i] * exp(last[i % K] - gc[i]);
    x->qg[i] = x->q[i] * exp(gc[i]);
  }
  for (int i = 0; i < C * V; i++) wv[i] = x->w[i] * x->v[i];
  product(C, K, C, x->A, false, kb, false, x->w_pseudo);
  product(C, V, C, x->A, false, wv, false, x->u);
  for (int d = 0; d < K; d++) x->gc_last[d] = seed_clean(last[d], m->clip);
  clean(m->clip, C * K, x->w_pseudo);
  clean(m->clip, C * V, x->u);
  clean(m->clip, C * K, x->kg);
  clean(m->clip, C * K, x->qg);
}

void model_combine(const seed_model *m, const model_chunk *x, double *h, double *v_new, double *o) {
  const int C = m->C, K = m->K, V = m->V;
  double *carried = test_doubles((size_t)(C * V)), *intra = test_doubles((size_t)(C * V)), *write = test_doubles((size_t)(K * V));
  product(C, V, K, x->w_pseudo, false, h, false, v_new);
  for (int i = 0; i < C * V; i++) v_new[i] = x->u[i] - v_new[i];
  product(C, V, K, x->qg, false, h, false, carried);
  product(C, V, C, x->Aqk, false, v_new, false, intra);
  for (int i = 0; i < C * V; i++) o[i] = seed_clean(m->scale * carried[i] + intra[i], m->clip);
  product(K, V, C, x->kg, true, v_new, false, write);
  for (int i = 0; i < K * V; i++) h[i] = seed_clean(exp(x->gc_last[i / V]) * h[i] + write[i], m->clip);
}

void model_dav(const seed_model *m, const double *Aqk, const double *v_new, const double *d_o, double *dAqk, double *dv) {
  const int C = m->C, V = m->V;
  product(C, C, V, d_o, false, v_new, true, dAqk);
  for (int i = 0; i < C * C; i++) dAqk[i] = i % C <= i / C ? seed_clean(dAqk[i], m->clip) : 0;
  product(C, V, C, Aqk, true, d_o, false, dv);
  clean(m->clip, C * V, dv);
}

void model_dhu(const seed_model *m, const model_chunk *x, const double *d_o, const double *dv_partial, double *dh, double *dv) {
  const int C = m->C, K = m->K, V = m->V;
  double *out = test_doubles((size_t)(K * V)), *through_v = test_doubles((size_t)(K * V));
  product(C, V, K, x->kg, false, dh, false, dv);
  for (int i = 0; i < C * V; i++) dv[i] = seed_clean(dv_partial[i] + dv[i], m->clip);
  product(K, V, C, x->qg, true, d_o, false, out);
  product(K, V, C, x->w_pseudo, true, dv, false, through_v);
  for (int i = 0; i < K * V; i++) dh[i] = seed_clean(m->scale * out[i] + exp(x->gc_last[i / V]) * dh[i] - through_v[i], m->clip);
}

/* dAkk = -(1 - wy_eps) strict_lower(A^T dA A^T) with dA = dw_pseudo kb^T + dv (w v)^T. */
static void model_dAkk(const seed_model *m, const model_wy *x, const double *dwp, const double *kb, const double *wv) {
  const int C = m->C;
  double *dA = test_doubles((size_t)(C * C)), *more = test_doubles((size_t)(C * C));
  product(C, C, m->K, dwp, false, kb, true, dA);
  product(C, C, m->V, x->dv, false, wv, true, more);
  for (int i = 0; i < C * C; i++) dA[i] = seed_clean(dA[i] + more[i], m->clip);
  product(C, C, C, dA, false, x->A, true, more);
  clean(m->clip, C * C, more);
  product(C, C, C, x->A, true, more, false, x->dAkk);
  for (int i = 0; i < C * C; i++) x->dAkk[i] = i % C < i / C ? seed_clean(-(1 - m->wy_eps) * x->dAkk[i], m->clip) : 0;
}

void model_wy_backward(const seed_model *m, const model_wy *x) {
  const int C = m->C, K = m->K, V = m->V;
  const size_t keys = (size_t)(C * K), values = (size_t)(C * V);
  double *kb = test_doubles(keys), *wv = test_doubles(values), *dqg = test_doubles(keys), *dwp = test_doubles(keys);
  double *dkg = test_doubles(keys), *dkb = test_doubles(keys), *dwv = test_doubles(values);
  const double *last = x->gc + (C - 1) * K;
  for (int i = 0; i < C * K; i++) kb[i] = x->b[i] * x->k[i] * exp(x->gc[i]);
  for (int i = 0; i < C * V; i++) wv[i] = x->w[i] * x->v[i];
  product(C, K, V, x->d_o, false, x->h_pre, true, dqg);
  product(C, K, V, x->dv, false, x->h_pre, true, dwp);
  product(C, K, V, x->v_new, false, x->dh_next, true, dkg);
  for (int i = 0; i < C * K; i++) dqg[i] *= m->scale, dwp[i] = -dwp[i];
  product(C, K, C, x->A, true, dwp, false, dkb);
  product(C, V, C, x->A, true, x->dv, false, dwv);
  model_dAkk(m, x, dwp, kb, wv);
  for (int i = 0; i < C * K; i++) {
    const double grow = exp(x->gc[i]), rest = exp(last[i % K] - x->gc[i]);
    x->dq[i] = seed_clean(dqg[i] * grow, m->clip);
    x->dk[i] = seed_clean(dkb[i] * grow * x->b[i] + dkg[i] * rest, m->clip);
    x->db[i] = seed_clean(dkb[i] * grow * x->k[i], m->clip);
    x->dgc[i] = dkb[i] * kb[i] + dqg[i] * x->q[i] * grow - dkg[i] * x->k[i] * rest;
  }
  for (int d = 0; d < K; d++) {
    double sum = 0, through = 0;
    for (int i = 0; i < C; i++) sum += AT(dkg, i, d, K) * AT(x->k, i, d, K) * exp(last[d] - AT(x->gc, i, d, K));
    for (int c = 0; c < V; c++) through += AT(x->dh_next, d, c, V) * AT(x->h_pre, d, c, V);
    AT(x->dgc, C - 1, d, K) += sum + exp(last[d]) * through;
  }
  clean(m->clip, C * K, x->dgc);
  for (int i = 0; i < C * V; i++) {
    x->dw[i] = seed_clean(dwv[i] * x->v[i], m->clip);
    x->dv_raw[i] = seed_clean(dwv[i] * x->w[i], m->clip);
  }
}

void model_intra_backward(const seed_model *m, const model_intra *x) {
  const int C = m->C, K = m->K;
  double *gc = test_doubles((size_t)(C * K));
  model_sums(m, x->g, gc);
  for (int i = 0; i < C * K; i++) x->dq[i] = x->dk[i] = x->db[i] = x->dgc[i] = 0;
  for (int i = 0; i < C; i++)
    for (int j = 0; j <= i; j++)
      for (int d = 0; d < K; d++) {
        const double difference = AT(gc, i, d, K) - AT(gc, j, d, K), e = pair(difference), R = AT(x->k, j, d, K);
        const double Mq = AT(x->dAqk, i, j, C) * e, Mk = j < i ? AT(x->dAkk, i, j, C) * e : 0;
        const double Lq = m->scale * AT(x->q, i, d, K), k = AT(x->k, i, d, K), b = AT(x->b, i, d, K);
        const double W = fabs(difference) <= 20 ? (Mq * Lq + Mk * b * k) * R : 0;
        AT(x->dq, i, d, K) += m->scale * Mq * R;
        AT(x->db, i, d, K) += Mk * R * k;
        AT(x->dk, i, d, K) += Mk * R * b;
        AT(x->dk, j, d, K) += Mq * Lq + Mk * b * k;
        AT(x->dgc, i, d, K) += W;
        AT(x->dgc, j, d, K) -= W;
      }
}

void model_head(const seed_model *m, int L, const double *q, const double *k, const double *v, const double *w, const double *b,
                const double *g, double *h, double *o) {
  const int C = m->C, K = m->K, V = m->V;
  const seed_model free_of_clips = {C, K, V, m->scale, INFINITY, m->wy_eps, false};
  double *Aqk = test_doubles((size_t)(C * C)), *Akk = test_doubles((size_t)(C * C)), *A = test_doubles((size_t)(C * C));
  double *keys[3], *u = test_doubles((size_t)(C * V)), *v_new = test_doubles((size_t)(C * V)), *last = test_doubles((size_t)K);
  for (int i = 0; i < 3; i++) keys[i] = test_doubles((size_t)(C * K));
  for (int t = 0; t < L; t += C) {
    const model_chunk x = {q + t * K, k + t * K, v + t * V, w + t * V, b + t * K, g + t * K, A,
                           Aqk,       keys[0],   u,         keys[1],   keys[2],   last};
    model_scores(&free_of_clips, x.q, x.k, x.b, x.g, Aqk, Akk);
    model_solve(&free_of_clips, Akk, A);
    model_rebuild(&free_of_clips, &x);
    model_combine(&free_of_clips, &x, h, v_new, o + t * V);
  }
}
