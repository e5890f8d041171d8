/* mixer.c - the layer of the rule.
 *
 *     n = RMSNorm(x)
 *     q, k, v = silu(conv(n Wq^T)), ...                                    [M][N] each
 *     gates from n: erase b, write w by sigmoid; decay -exp(A_log) softplus(f + dt_bias), f = (n F0^T) F1^T
 *     o = rule(q / |q|, k / |k|, v, g, b, w)                               [M][N]
 *     y = RMSNorm(o) act(z), z = (n G0^T) G1^T + bias                      per head
 *     x_mid = x + y Wo^T */
#include "lm/linear.h"
#include "lm/model.h"
#include <string.h>

/* z = bias in every row, before the product is added. */
static void fill_bias(real *z, const real *bias, int64_t M, int64_t N) {
  for (int64_t t = 0; t < M; t++) memcpy(z + t * N, bias, (size_t)N * sizeof *z);
}

/* c = silu(conv(p)) of the columns of q, k and v, with the taps of all three. */
static gdn2_conv_problem conv_problem(const lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const int64_t C = 3 * c->heads * c->head_dim, P = m->params.columns.total;
  gdn2_conv_problem p = {.B = m->B, .T = m->T, .D = C, .W = c->conv_width, .silu = 1};
  p.x = (gdn2_input){m->acts[layer].p, LM_DTYPE, {m->T * P, P, 0, 1}};
  p.weight = (gdn2_input){lm_value(m, layer, LM_Q_CONV), LM_DTYPE, {0}};
  return p;
}

static void conv_forward(lm_model *m, int64_t layer, lm_state *state) {
  gdn2_conv_forward_args args = {.struct_size = sizeof args, .problem = conv_problem(m, layer)};
  args.y = (gdn2_output){m->acts[layer].c, LM_DTYPE, {0}};
  if (state) {
    real *before = state->conv + layer * m->B * args.problem.D * (args.problem.W - 1);
    args.problem.state = (gdn2_input){before, LM_DTYPE, {0}};
    args.state_final = (gdn2_output){before, LM_DTYPE, {0}};
  }
  lm_reserve(m, 0, &args.exec);
  lm_note(m, gdn2_conv_forward(&args));
}

/* From scratch.dc to the same columns of scratch.dp. */
static void conv_backward(lm_model *m, int64_t layer) {
  gdn2_conv_backward_args args = {.struct_size = sizeof args, .problem = conv_problem(m, layer)};
  const gdn2_conv_problem *p = &args.problem;
  const int64_t P = m->params.columns.total, taps = p->D * p->W;
  real *dw = lm_grad(m, layer, LM_Q_CONV);
  size_t bytes = 0;
  args.dy = (gdn2_input){m->scratch.dc, LM_DTYPE, {0}};
  args.dx = (gdn2_output){m->scratch.dp, LM_DTYPE, {m->T * P, P, 0, 1}};
  args.dweight = (gdn2_output){m->scratch.sums, LM_DTYPE, {0}};
  lm_note(m, gdn2_conv_backward_workspace(&args, &bytes));
  lm_reserve(m, bytes, &args.exec);
  lm_note(m, gdn2_conv_backward(&args));
  for (int64_t i = 0; i < taps; i++) dw[i] += m->scratch.sums[i];
}

static lm_norm input_norm(const lm_model *m, int64_t layer) {
  return (lm_norm){m->acts[layer].x, NULL, lm_value(m, layer, LM_ATTN_NORM), m->B * m->T, m->params.config.d_model};
}

static lm_norm output_norm(const lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_block_acts *a = &m->acts[layer];
  return (lm_norm){a->o, a->z, lm_value(m, layer, LM_O_NORM), m->B * m->T * c->heads, c->head_dim};
}

void lm_mixer_forward(lm_model *m, int64_t layer, lm_state *state) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  lm_block_acts *a = &m->acts[layer];
  const int64_t M = m->B * m->T, D = c->d_model, K = c->head_dim, N = c->heads * K, P = at->total;
  const lm_norm before = input_norm(m, layer), after = output_norm(m, layer);
  lm_norm_forward(m, m->scratch.n, &before);
  lm_linear_forward(a->p, P, m->scratch.n, D, lm_value(m, layer, LM_Q_PROJ), M, D, P, 0);
  conv_forward(m, layer, state);
  if (a->f) lm_linear_forward(a->f, N, a->p + at->f, P, lm_value(m, layer, LM_F_PROJ_1), M, K, N, 0);
  fill_bias(a->z, lm_value(m, layer, LM_G_BIAS), M, N);
  lm_linear_forward(a->z, N, a->p + at->g, P, lm_value(m, layer, LM_G_PROJ_1), M, K, N, 1);
  lm_rule_forward(m, layer, state);
  lm_norm_forward(m, m->scratch.y, &after);
  memcpy(a->x_mid, a->x, (size_t)(M * D) * sizeof *a->x);
  lm_linear_forward(a->x_mid, D, m->scratch.y, N, lm_value(m, layer, LM_O_PROJ), M, N, D, 1);
}

static void add_rows(real *sum, const real *x, int64_t M, int64_t N) {
  for (int64_t t = 0; t < M; t++)
    for (int64_t i = 0; i < N; i++) sum[i] += x[t * N + i];
}

/* From scratch.dx, the gradient by x_mid: that of o in scratch.d_o, of z in scratch.dz, and of the weights between. */
static void output_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, N = c->heads * c->head_dim;
  const lm_norm after = output_norm(m, layer);
  lm_norm_forward(m, s->y, &after);
  lm_linear_weight(lm_grad(m, layer, LM_O_PROJ), s->dx, D, s->y, N, M, N, D);
  lm_linear_input(s->d_o, N, s->dx, D, lm_value(m, layer, LM_O_PROJ), M, N, D, 0);
  lm_norm_backward(m, s->d_o, s->dz, lm_grad(m, layer, LM_O_NORM), s->d_o, &after);
}

/* The second factor of a low-rank projection: from dy[M][N] to the columns `at` of dp. */
static void low_rank_backward(lm_model *m, int64_t layer, lm_param_id id, const real *dy, int64_t at) {
  const lm_config *c = &m->params.config;
  const int64_t M = m->B * m->T, K = c->head_dim, N = c->heads * K, P = m->params.columns.total;
  lm_linear_weight(lm_grad(m, layer, id), dy, N, m->acts[layer].p + at, P, M, K, N);
  lm_linear_input(m->scratch.dp + at, P, dy, N, lm_value(m, layer, id), M, K, N, 0);
}

void lm_mixer_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, N = c->heads * c->head_dim, P = at->total;
  const lm_norm before = input_norm(m, layer);
  output_backward(m, layer);
  lm_rule_backward(m, layer);
  add_rows(lm_grad(m, layer, LM_G_BIAS), s->dz, M, N);
  low_rank_backward(m, layer, LM_G_PROJ_1, s->dz, at->g);
  if (m->acts[layer].f) low_rank_backward(m, layer, LM_F_PROJ_1, s->df, at->f);
  conv_backward(m, layer);
  lm_norm_forward(m, s->n, &before);
  lm_linear_weight(lm_grad(m, layer, LM_Q_PROJ), s->dp, P, s->n, D, M, D, P);
  lm_linear_input(s->dn, D, s->dp, P, lm_value(m, layer, LM_Q_PROJ), M, D, P, 0);
  lm_norm_residual(m, s->dx, lm_grad(m, layer, LM_ATTN_NORM), s->dn, &before);
}
