/* mixer.c - the layer of the rule.
 *
 *     n = RMSNorm(x)
 *     q, k, v = silu(conv(n Wq^T)), ...                                    [M][N] each
 *     gates from n: erase b, write w by sigmoid; decay -exp(A_log) softplus(f + dt_bias), f = (n F0^T) F1^T
 *     o = rule(q / |q|, k / |k|, v, g, b, w)                               [M][N]
 *     y = RMSNorm(o) act(z), z = (n G0^T) G1^T + bias                      per head
 *     x_mid = x + y Wo^T */
#include "lm/mixer.h"
#include "lm/linear.h"
#include "lm/model.h"
#include "lm/parts.h"
#include <string.h>

/* z = bias in every row, before the product is added. */
static void fill_bias(real *z, const real *bias, int64_t M, int64_t N) {
  for (int64_t t = 0; t < M; t++) memcpy(z + t * N, bias, (size_t)N * sizeof *z);
}

gdn2_status lm_mixer_forward(lm_model *m, int64_t layer, lm_state *state) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  lm_block_acts *a = &m->acts[layer];
  const int64_t M = m->B * m->T, D = c->d_model, K = c->head_dim, N = c->heads * K, W = c->conv_width, P = at->total;
  real *conv = state ? state->conv + layer * m->B * (W - 1) * 3 * N : NULL;
  lm_rmsnorm_forward(m->scratch.n, a->x, lm_value(m, layer, LM_ATTN_NORM), M, D);
  lm_linear_forward(a->p, P, m->scratch.n, D, lm_value(m, layer, LM_Q_PROJ), M, D, P, 0);
  lm_conv_forward(a->c, a->p, P, lm_value(m, layer, LM_Q_CONV), conv, m->B, m->T, 3 * N, W);
  if (a->f) lm_linear_forward(a->f, N, a->p + at->f, P, lm_value(m, layer, LM_F_PROJ_1), M, K, N, 0);
  fill_bias(a->z, lm_value(m, layer, LM_G_BIAS), M, N);
  lm_linear_forward(a->z, N, a->p + at->g, P, lm_value(m, layer, LM_G_PROJ_1), M, K, N, 1);
  gdn2_status status = lm_rule_forward(m, layer, state);
  if (status) return status;
  lm_gated_norm_forward(m->scratch.y, a->o, a->z, lm_value(m, layer, LM_O_NORM), c->gate == LM_GATE_SIGMOID, M * c->heads, K);
  memcpy(a->x_mid, a->x, (size_t)(M * D) * sizeof *a->x);
  lm_linear_forward(a->x_mid, D, m->scratch.y, N, lm_value(m, layer, LM_O_PROJ), M, N, D, 1);
  return GDN2_OK;
}

static void add_rows(real *sum, const real *x, int64_t M, int64_t N) {
  for (int64_t t = 0; t < M; t++)
    for (int64_t i = 0; i < N; i++) sum[i] += x[t * N + i];
}

/* From scratch.dx, the gradient by x_mid: that of o in scratch.d_o, of z in scratch.dz, and of the weights between. */
static void output_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_block_acts *a = &m->acts[layer];
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, K = c->head_dim, N = c->heads * K;
  const real *o_norm = lm_value(m, layer, LM_O_NORM);
  const int sigmoid = c->gate == LM_GATE_SIGMOID;
  lm_gated_norm_forward(s->y, a->o, a->z, o_norm, sigmoid, M * c->heads, K);
  lm_linear_weight(lm_grad(m, layer, LM_O_PROJ), s->dx, D, s->y, N, M, N, D);
  lm_linear_input(s->df, N, s->dx, D, lm_value(m, layer, LM_O_PROJ), M, N, D, 0);
  lm_gated_norm_backward(s->d_o, s->dz, lm_grad(m, layer, LM_O_NORM), s->y, s->df, a->o, a->z, o_norm, sigmoid, M * c->heads, K);
}

/* The second factor of a low-rank projection: from dy[M][N] to the columns `at` of dp. */
static void low_rank_backward(lm_model *m, int64_t layer, lm_param_id id, const real *dy, int64_t at) {
  const lm_config *c = &m->params.config;
  const int64_t M = m->B * m->T, K = c->head_dim, N = c->heads * K, P = m->params.columns.total;
  lm_linear_weight(lm_grad(m, layer, id), dy, N, m->acts[layer].p + at, P, M, K, N);
  lm_linear_input(m->scratch.dp + at, P, dy, N, lm_value(m, layer, id), M, K, N, 0);
}

gdn2_status lm_mixer_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  const lm_block_acts *a = &m->acts[layer];
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, N = c->heads * c->head_dim, W = c->conv_width, P = at->total;
  const real *norm = lm_value(m, layer, LM_ATTN_NORM);
  output_backward(m, layer);
  gdn2_status status = lm_rule_backward(m, layer);
  if (status) return status;
  add_rows(lm_grad(m, layer, LM_G_BIAS), s->dz, M, N);
  low_rank_backward(m, layer, LM_G_PROJ_1, s->dz, at->g);
  if (a->f) low_rank_backward(m, layer, LM_F_PROJ_1, s->df, at->f);
  lm_conv_backward(s->dp, lm_grad(m, layer, LM_Q_CONV), s->dc, a->p, P, lm_value(m, layer, LM_Q_CONV), m->B, m->T, 3 * N, W);
  lm_rmsnorm_forward(s->n, a->x, norm, M, D);
  lm_linear_weight(lm_grad(m, layer, LM_Q_PROJ), s->dp, P, s->n, D, M, D, P);
  lm_linear_input(s->dn, D, s->dp, P, lm_value(m, layer, LM_Q_PROJ), M, D, P, 0);
  lm_rmsnorm_backward(s->dx, lm_grad(m, layer, LM_ATTN_NORM), s->dn, a->x, norm, M, D);
  return GDN2_OK;
}
