/* A token's gates and norms, and the way back through them: equations (35) to (41) of docs/math.md.
 *
 * Where a gate is saturated its derivative is the product of a number that may be infinite with one that has vanished. Those
 * products are 0, which is their limit: a decay that has become 0 passes nothing on. */
#include "double/head.h"
#include <float.h>
#include <math.h>

/* Below it softplus(x) = e^x (1 - e^x / 2 ...) in float64. */
#define SOFTPLUS_IS_EXP (-37.0)

gdn2_double_head gdn2_double_head_of(const gdn2_call *call, gdn2_span at, int64_t j) {
  const int64_t i = gdn2_key_head(call, j), g_head = call->g_key_heads ? i : j, b_head = call->b_key_heads ? i : j;
  gdn2_double_head head = {.K = call->K, .V = call->V, .scale = call->scale, .lower_bound = call->lower_bound};
  head.decay = call->decay;
  head.erase = call->erase;
  head.write = call->write;
  head.l2norm = call->l2norm;
  head.q = gdn2_view_rows(&call->q, at.batch, at.start, i, 0.0f);
  head.k = gdn2_view_rows(&call->k, at.batch, at.start, i, 0.0f);
  head.v = gdn2_view_rows(&call->v, at.batch, at.start, j, 0.0f);
  head.g = gdn2_view_rows(&call->g, at.batch, at.start, g_head, 0.0f);
  head.b = gdn2_view_rows(&call->b, at.batch, at.start, b_head, 0.0f);
  head.w = gdn2_view_rows(&call->w, at.batch, at.start, j, 1.0f);
  if (call->decay == GDN2_DECAY_LOG) return head;
  head.dt_bias = gdn2_view_rows(&call->dt_bias, 0, 0, g_head, 0.0f);
  head.A_log = gdn2_double_at(gdn2_view_rows(&call->A_log, 0, 0, g_head, 0.0f), 0)[0];
  head.rate = exp(head.A_log);
  /* A bounded gate at x + dt_bias = 0 is half its bound, whatever the rate. */
  if (head.decay == GDN2_DECAY_BOUNDED && head.rate > DBL_MAX) head.rate = DBL_MAX;
  return head;
}

gdn2_double_token gdn2_double_lay_token(gdn2_arena *arena, int64_t K, int64_t V) {
  gdn2_double_token token = {.q_unit = 1, .k_unit = 1};
  double **const by_key[] = {&token.q, &token.k, &token.b, &token.e, &token.alpha, &token.z};
  for (int i = 0; i < 6; i++) *by_key[i] = gdn2_double_room(arena, K);
  token.v = gdn2_double_room(arena, V);
  token.w = gdn2_double_room(arena, V);
  return token;
}

/* Neither overflows. */
static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(x > 0 ? -x : x)); }

static double decay_of(const gdn2_double_head *head, double z) {
  if (head->decay == GDN2_DECAY_LOG) return z;
  if (head->decay == GDN2_DECAY_BOUNDED) return head->lower_bound * sigmoid(head->rate * z);
  return z <= SOFTPLUS_IS_EXP ? -exp(head->A_log + z) : -head->rate * softplus(z);
}

static double gate_of(gdn2_gate form, double x) {
  return form == GDN2_GATE_GIVEN ? x : form == GDN2_GATE_SIGMOID ? sigmoid(x) : 2 * sigmoid(x);
}

static void load_row(gdn2_rows rows, int64_t t, int64_t count, double *to) {
  const double *from = rows.at ? gdn2_double_at(rows, t) : NULL;
  for (int64_t c = 0; c < count; c++) to[c] = from ? from[c * rows.channel] : (double)rows.absent;
}

/* The forms of an absent gate do not matter: its neutral value is the finished one. */
static void load_gate(gdn2_rows rows, gdn2_gate form, int64_t t, int64_t count, double *to) {
  load_row(rows, t, count, to);
  for (int64_t c = 0; rows.at && c < count; c++) to[c] = gate_of(form, to[c]);
}

static double square_sum(const double *x, int64_t count, double unit) {
  double sum = 0;
  for (int64_t c = 0; c < count; c++) sum += (x[c] * unit) * (x[c] * unit);
  return sum;
}

/* Divides x by sqrt(sum of squares + 1e-6), and returns the factor. Where the squares overflow, they are those of numbers 2^600
 * times smaller, beside which 1e-6 is nothing. */
static double normalise(double *x, int64_t count) {
  const double sum = square_sum(x, count, 1);
  const double unit = sum <= DBL_MAX ? 1 / sqrt(sum + 1e-6) : 0x1p-600 / sqrt(square_sum(x, count, 0x1p-600));
  for (int64_t c = 0; c < count; c++) x[c] *= unit;
  return unit;
}

void gdn2_double_load(const gdn2_double_head *head, int64_t t, gdn2_double_token *token) {
  const int64_t K = head->K, V = head->V;
  load_row(head->q, t, K, token->q);
  load_row(head->k, t, K, token->k);
  load_row(head->v, t, V, token->v);
  load_row(head->g, t, K, token->z);
  load_gate(head->b, head->erase, t, K, token->b);
  load_gate(head->w, head->write, t, V, token->w);
  if (head->l2norm) token->q_unit = normalise(token->q, K), token->k_unit = normalise(token->k, K);
  const double *bias = head->dt_bias.at ? gdn2_double_at(head->dt_bias, 0) : NULL;
  for (int64_t d = 0; d < K; d++) {
    if (bias) token->z[d] += bias[d * head->dt_bias.channel];
    token->alpha[d] = exp(decay_of(head, token->z[d]));
    token->e[d] = token->b[d] * token->k[d];
  }
}

/* ---- The way back ---- */

/* Of y = x unit(x), given y: dx = unit (dy - y (y . dy)). */
static void norm_adjoint(const double *y, double unit, int64_t count, double *dy) {
  double along = 0;
  for (int64_t c = 0; c < count; c++) along += y[c] * dy[c];
  for (int64_t c = 0; c < count; c++) dy[c] = unit * (dy[c] - y[c] * along);
}

static double product(double gradient, double slope) { return gradient == 0 ? 0 : gradient * slope; }

/* From the gradient by g to that by x; *dA gains the part of A_log. */
static double decay_adjoint(const gdn2_double_head *head, double z, double dg, double *dA) {
  if (head->decay == GDN2_DECAY_LOG) return dg;
  if (head->decay == GDN2_DECAY_BOUNDED) {
    const double y = head->rate * z, slope = head->lower_bound * sigmoid(y) * sigmoid(-y);
    *dA += product(dg, slope == 0 ? 0 : slope * y);
    return product(dg, slope * head->rate);
  }
  const double g = decay_of(head, z);
  *dA += product(dg, g);
  return product(dg, z <= SOFTPLUS_IS_EXP ? g : -head->rate * sigmoid(z));
}

/* x: the raw input. */
static void gate_adjoint(gdn2_rows rows, gdn2_gate form, int64_t t, int64_t count, double *gradient) {
  if (form == GDN2_GATE_GIVEN || !rows.at) return;
  const double *x = gdn2_double_at(rows, t), most = form == GDN2_GATE_SIGMOID ? 1 : 2;
  for (int64_t c = 0; c < count; c++) gradient[c] *= most * sigmoid(x[c * rows.channel]) * sigmoid(-x[c * rows.channel]);
}

void gdn2_double_chain_keys(const gdn2_double_head *head, int64_t t, const gdn2_double_token *token, gdn2_double_grad *grad) {
  if (head->l2norm) norm_adjoint(token->q, token->q_unit, head->K, grad->q);
  if (head->l2norm) norm_adjoint(token->k, token->k_unit, head->K, grad->k);
  grad->A_log = 0;
  for (int64_t d = 0; d < head->K; d++) grad->g[d] = decay_adjoint(head, token->z[d], grad->g[d], &grad->A_log);
  gate_adjoint(head->b, head->erase, t, head->K, grad->b);
}

void gdn2_double_chain_values(const gdn2_double_head *head, int64_t t, gdn2_double_grad *grad) {
  gate_adjoint(head->w, head->write, t, head->V, grad->w);
}
