/* rule.c - the layer's tensors handed to the library. */
#include "lm/model.h"
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* [B, T, H, channels] within rows of ld numbers; one number per head where channels is 1 and H columns follow each other. */
static gdn2_input rows(const lm_model *m, const real *data, int64_t ld, int64_t channels) {
  gdn2_input x = {data, LM_DTYPE, {m->T * ld, ld, channels, channels > 1 || m->params.config.head_dim == 1}};
  return x;
}

static gdn2_problem problem_of(const lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  const lm_block_acts *a = &m->acts[layer];
  const int64_t K = c->head_dim, N = c->heads * K, P = at->total;
  gdn2_problem p = {.B = m->B, .T = m->T, .H = c->heads, .K = K, .V = K, .qk_l2norm = 1};
  p.q = rows(m, a->c, 3 * N, K);
  p.k = rows(m, a->c + N, 3 * N, K);
  p.v = rows(m, a->c + 2 * N, 3 * N, K);
  p.b = rows(m, a->p + at->b, P, c->rule == LM_GDN2 ? K : 1);
  p.w = c->rule == LM_GDN2 ? rows(m, a->p + at->w, P, K) : p.b;
  p.erase = p.write = GDN2_GATE_SIGMOID;
  if (c->rule == LM_DELTANET) return p;
  p.g = c->rule == LM_GDN ? rows(m, a->p + at->a, P, 1) : rows(m, a->f, N, K);
  p.decay = GDN2_DECAY_SOFTPLUS;
  p.A_log = (gdn2_input){lm_value(m, layer, LM_A_LOG), LM_DTYPE, {0, 0, 1, 0}};
  p.dt_bias = (gdn2_input){lm_value(m, layer, LM_DT_BIAS), LM_DTYPE, {0, 0, c->rule == LM_GDN ? 1 : K, c->rule != LM_GDN}};
  return p;
}

/* One token for every sequence, on the states in place. */
static void step(lm_model *m, const gdn2_problem *problem, gdn2_output o, real *S) {
  gdn2_step_args args = {.struct_size = sizeof args, .problem = *problem, .o = o};
  args.from = (gdn2_input){S, LM_DTYPE, {0}};
  args.to = (gdn2_output){S, LM_DTYPE, {0}};
  lm_note(m, gdn2_step(&args));
}

/* The states that a layer's forward keeps for its backward; none where there is no room for them, or no moment. */
static gdn2_states kept(const lm_model *m, int64_t layer, int64_t *every) {
  real *S = m->T < LM_KEEP_EVERY ? NULL : m->acts[layer].S;
  *every = S ? LM_KEEP_EVERY : 0;
  return (gdn2_states){S, LM_DTYPE, {0}};
}

/* S: NULL, or the states before, which become those after; then there is no backward. */
static void pass(lm_model *m, int64_t layer, const gdn2_problem *problem, gdn2_output o, real *S) {
  gdn2_forward_args args = {.struct_size = sizeof args, .problem = *problem, .o = o};
  size_t bytes = 0;
  args.problem.h0 = (gdn2_input){S, LM_DTYPE, {0}};
  args.h_final = (gdn2_output){S, LM_DTYPE, {0}};
  if (!S) args.snapshots = kept(m, layer, &args.snapshot_every);
  lm_note(m, gdn2_forward_workspace(&args, &bytes));
  lm_reserve(m, bytes, &args.exec);
  lm_note(m, gdn2_forward(&args));
}

void lm_rule_forward(lm_model *m, int64_t layer, lm_state *state) {
  const lm_config *c = &m->params.config;
  const int64_t K = c->head_dim, N = c->heads * K;
  const gdn2_problem problem = problem_of(m, layer);
  const gdn2_output o = {m->acts[layer].o, LM_DTYPE, {m->T * N, N, K, 1}};
  real *S = state ? state->S + layer * m->B * N * K : NULL;
  double start = now();
  if (S && m->T == 1)
    step(m, &problem, o, S);
  else
    pass(m, layer, &problem, o, S);
  m->rule_seconds += now() - start;
}

/* [B, T, H, channels] of rows of ld numbers; see rows. */
static gdn2_output rows_out(const lm_model *m, real *data, int64_t ld, int64_t channels) {
  gdn2_input x = rows(m, data, ld, channels);
  return (gdn2_output){data, LM_DTYPE, {x.stride[0], x.stride[1], x.stride[2], x.stride[3]}};
}

/* Where the gradients of gates go. dw of a gate that is also b goes beside, and is added afterwards. */
static void set_gate_outputs(const lm_model *m, gdn2_backward_args *args) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  const lm_scratch *s = &m->scratch;
  const gdn2_problem *p = &args->problem;
  const int64_t K = c->head_dim, H = c->heads, N = H * K, P = at->total, each = c->rule == LM_GDN2 ? K : 1;
  args->db = rows_out(m, s->dp + at->b, P, each);
  args->dw = c->rule == LM_GDN2 ? rows_out(m, s->dp + at->w, P, K) : rows_out(m, s->dw, H, 1);
  if (c->rule == LM_DELTANET) return;
  args->dg = c->rule == LM_GDN ? rows_out(m, s->dp + at->a, P, 1) : rows_out(m, s->df, N, K);
  args->dA_log = (gdn2_output){s->dA_log, LM_DTYPE, {0, 0, 1, 0}};
  args->ddt_bias = (gdn2_output){s->ddt_bias, LM_DTYPE, {0, 0, p->dt_bias.stride[2], p->dt_bias.stride[3]}};
}

/* What the library wrote beside is added to where it belongs. */
static void add_beside(const lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_columns *at = &m->params.columns;
  const lm_scratch *s = &m->scratch;
  const int64_t H = c->heads, M = m->B * m->T, P = at->total;
  if (c->rule != LM_GDN2)
    for (int64_t t = 0; t < M; t++)
      for (int64_t h = 0; h < H; h++) s->dp[t * P + at->b + h] += s->dw[t * H + h];
  if (c->rule == LM_DELTANET) return;
  real *dA_log = lm_grad(m, layer, LM_A_LOG), *ddt_bias = lm_grad(m, layer, LM_DT_BIAS);
  for (int64_t h = 0; h < H; h++) dA_log[h] += s->dA_log[h];
  for (int64_t i = 0; i < (c->rule == LM_GDN ? H : H * c->head_dim); i++) ddt_bias[i] += s->ddt_bias[i];
}

void lm_rule_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_scratch *s = &m->scratch;
  const int64_t K = c->head_dim, N = c->heads * K;
  gdn2_backward_args args = {.struct_size = sizeof args, .problem = problem_of(m, layer)};
  args.d_o = rows(m, s->d_o, N, K);
  args.dq = rows_out(m, s->dc, 3 * N, K);
  args.dk = rows_out(m, s->dc + N, 3 * N, K);
  args.dv = rows_out(m, s->dc + 2 * N, 3 * N, K);
  set_gate_outputs(m, &args);
  args.snapshots = kept(m, layer, &args.snapshot_every);
  double start = now();
  size_t bytes = 0;
  lm_note(m, gdn2_backward_workspace(&args, &bytes));
  lm_reserve(m, bytes, &args.exec);
  lm_note(m, gdn2_backward(&args));
  m->rule_seconds += now() - start;
  add_beside(m, layer);
}
