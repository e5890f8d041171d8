#include "lm/model.h"
#include "lm/linear.h"
#include "lm/parts.h"
#include <string.h>

/* ---- The MLP -------------------------------------------------------------------------------------------------------------- */

static lm_norm mlp_norm(const lm_model *m, int64_t layer) {
  return (lm_norm){m->acts[layer].x_mid, NULL, lm_value(m, layer, LM_MLP_NORM), m->B * m->T, m->params.config.d_model};
}

/* out = x_mid + Wd h, h = silu(Wg n) (Wu n), n = RMSNorm(x_mid). */
static void mlp_forward(lm_model *m, int64_t layer, real *out) {
  const lm_config *c = &m->params.config;
  const lm_block_acts *a = &m->acts[layer];
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, F = c->d_mlp;
  const lm_norm before = mlp_norm(m, layer);
  lm_norm_forward(m, s->n, &before);
  lm_linear_forward(a->u, 2 * F, s->n, D, lm_value(m, layer, LM_GATE_PROJ), M, D, 2 * F, 0);
  lm_swiglu_forward(s->h, a->u, M, F);
  memcpy(out, a->x_mid, (size_t)(M * D) * sizeof *out);
  lm_linear_forward(out, D, s->h, F, lm_value(m, layer, LM_DOWN_PROJ), M, F, D, 1);
}

/* scratch.dx is the gradient by the block's output, and then by x_mid. */
static void mlp_backward(lm_model *m, int64_t layer) {
  const lm_config *c = &m->params.config;
  const lm_block_acts *a = &m->acts[layer];
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, F = c->d_mlp;
  const lm_norm before = mlp_norm(m, layer);
  lm_swiglu_forward(s->h, a->u, M, F);
  lm_linear_weight(lm_grad(m, layer, LM_DOWN_PROJ), s->dx, D, s->h, F, M, F, D);
  lm_linear_input(s->dh, F, s->dx, D, lm_value(m, layer, LM_DOWN_PROJ), M, F, D, 0);
  lm_swiglu_backward(s->du, s->dh, a->u, M, F);
  lm_norm_forward(m, s->n, &before);
  lm_linear_weight(lm_grad(m, layer, LM_GATE_PROJ), s->du, 2 * F, s->n, D, M, D, 2 * F);
  lm_linear_input(s->dn, D, s->du, 2 * F, lm_value(m, layer, LM_GATE_PROJ), M, D, 2 * F, 0);
  lm_norm_residual(m, s->dx, lm_grad(m, layer, LM_MLP_NORM), s->dn, &before);
}

/* ---- The whole ------------------------------------------------------------------------------------------------------------ */

static lm_norm last_norm(const lm_model *m) {
  return (lm_norm){m->x_out, NULL, lm_value(m, 0, LM_NORM), m->B * m->T, m->params.config.d_model};
}

static lm_param_id head_of(const lm_model *m) { return m->params.config.tied ? LM_EMBEDDINGS : LM_HEAD; }

gdn2_status lm_forward(lm_model *m, const int32_t *tokens, int64_t B, int64_t T, lm_state *state) {
  const lm_config *c = &m->params.config;
  const int64_t M = B * T, D = c->d_model, V = c->vocabulary;
  m->B = B, m->T = T, m->status = GDN2_OK;
  const lm_norm last = last_norm(m);
  lm_embedding_forward(m->acts[0].x, tokens, lm_value(m, 0, LM_EMBEDDINGS), M, D);
  for (int64_t layer = 0; layer < c->layers; layer++) {
    lm_mixer_forward(m, layer, state);
    mlp_forward(m, layer, layer + 1 < c->layers ? m->acts[layer + 1].x : m->x_out);
  }
  lm_norm_forward(m, m->scratch.n, &last);
  lm_linear_forward(m->logits, V, m->scratch.n, D, lm_value(m, 0, head_of(m)), M, D, V, 0);
  return m->status;
}

/* From the gradient of the logits to that of x_out, in scratch.dx. */
static void head_backward(lm_model *m) {
  const lm_config *c = &m->params.config;
  const lm_scratch *s = &m->scratch;
  const int64_t M = m->B * m->T, D = c->d_model, V = c->vocabulary;
  const lm_norm last = last_norm(m);
  lm_norm_forward(m, s->n, &last);
  lm_linear_weight(lm_grad(m, 0, head_of(m)), m->logits, V, s->n, D, M, D, V);
  lm_linear_input(s->dn, D, m->logits, V, lm_value(m, 0, head_of(m)), M, D, V, 0);
  lm_norm_backward(m, s->dx, NULL, lm_grad(m, 0, LM_NORM), s->dn, &last);
}

gdn2_status lm_backward(lm_model *m, const int32_t *tokens, const int32_t *targets, real scale, double *sum, int64_t *hits) {
  const lm_config *c = &m->params.config;
  const int64_t M = m->B * m->T;
  *sum += lm_loss(m->logits, m->loss, targets, M, c->vocabulary, scale, hits);
  head_backward(m);
  for (int64_t layer = c->layers - 1; layer >= 0; layer--) {
    mlp_backward(m, layer);
    lm_mixer_backward(m, layer);
  }
  lm_embedding_backward(lm_grad(m, 0, LM_EMBEDDINGS), m->scratch.dx, tokens, M, c->d_model);
  return m->status;
}

double lm_evaluate(lm_model *m, const int32_t *targets, int64_t *hits) {
  return lm_loss(m->logits, m->loss, targets, m->B * m->T, m->params.config.vocabulary, 0, hits);
}
