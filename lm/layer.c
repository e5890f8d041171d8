#include "layer.h"
#include "parts.h"
#include "gdn2.h"
#include <stdlib.h>
#include <string.h>

/* Sizes stay far below what an int of CBLAS or an int64_t of bytes can hold. */
#define MAX_WIDTH (INT64_C(1) << 16)
#define MAX_TOKENS (INT64_C(1) << 28)
/* Arrays start on whole cache lines. */
#define ALIGN_FLOATS 16

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *lm_config_fault(const lm_config *c, int64_t T) {
  if (T < 1 || T > MAX_TOKENS) return "the number of tokens must be from 1 to 2^28";
  if (c->head_dim < 1 || c->head_dim > GDN2_MAX_DIM) return "the head size must be from 1 to " TEXT(GDN2_MAX_DIM);
  if (c->heads < 1 || c->heads > MAX_WIDTH / c->head_dim)
    return "heads must be at least 1, and heads times head size at most 65536";
  if (c->d_model < 1 || c->d_model > MAX_WIDTH) return "the model's width must be from 1 to 65536";
  if (c->conv_width < 1 || c->conv_width > MAX_WIDTH) return "the convolution's width must be from 1 to 65536";
  return NULL;
}

/* One array of a block: where its address goes, and how many floats it has. */
typedef struct piece {
  float **address;
  int64_t floats;
} piece;

/* Allocates all pieces as one block, which it returns; NULL when there is no memory. */
static float *allocate(const piece *pieces, int count) {
  int64_t total = 0;
  for (int i = 0; i < count; i++) total += (pieces[i].floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  float *block = aligned_alloc(ALIGN_FLOATS * sizeof(float), (size_t)total * sizeof(float));
  if (!block) return NULL;
  float *next = block;
  for (int i = 0; i < count; i++) {
    *pieces[i].address = next;
    next += (pieces[i].floats + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
  }
  return block;
}

#define LAYER "model.layers.0."

int lm_layer_create(lm_layer *layer, const lm_config *config) {
  const int64_t D = config->d_model, H = config->heads, K = config->head_dim, W = config->conv_width, N = H * K;
  const lm_param params[LM_PARAMS] = {
      [LM_EMBEDDINGS] = {"model.embeddings.weight", 2, {LM_VOCABULARY, D}, NULL},
      [LM_ATTN_NORM] = {LAYER "attn_norm.weight", 1, {D}, NULL},
      [LM_Q_PROJ] = {LAYER "attn.q_proj.weight", 2, {N, D}, NULL},
      [LM_K_PROJ] = {LAYER "attn.k_proj.weight", 2, {N, D}, NULL},
      [LM_V_PROJ] = {LAYER "attn.v_proj.weight", 2, {N, D}, NULL},
      [LM_Q_CONV] = {LAYER "attn.q_conv1d.weight", 3, {N, 1, W}, NULL},
      [LM_K_CONV] = {LAYER "attn.k_conv1d.weight", 3, {N, 1, W}, NULL},
      [LM_V_CONV] = {LAYER "attn.v_conv1d.weight", 3, {N, 1, W}, NULL},
      [LM_F_PROJ_0] = {LAYER "attn.f_proj.0.weight", 2, {K, D}, NULL},
      [LM_F_PROJ_1] = {LAYER "attn.f_proj.1.weight", 2, {N, K}, NULL},
      [LM_B_PROJ] = {LAYER "attn.b_proj.weight", 2, {N, D}, NULL},
      [LM_W_PROJ] = {LAYER "attn.w_proj.weight", 2, {N, D}, NULL},
      [LM_A_LOG] = {LAYER "attn.A_log", 1, {H}, NULL},
      [LM_DT_BIAS] = {LAYER "attn.dt_bias", 1, {N}, NULL},
  };
  layer->config = *config;
  memcpy(layer->param, params, sizeof params);
  piece pieces[LM_PARAMS];
  for (int id = 0; id < LM_PARAMS; id++) {
    pieces[id] = (piece){&layer->param[id].data, 1};
    for (int axis = 0; axis < params[id].rank; axis++) pieces[id].floats *= params[id].shape[axis];
  }
  layer->memory = allocate(pieces, LM_PARAMS);
  return layer->memory ? 0 : -1;
}

void lm_layer_free(lm_layer *layer) {
  free(layer->memory);
  *layer = (lm_layer){.memory = NULL};
}

int lm_acts_create(lm_acts *a, const lm_config *config, int64_t T) {
  const int64_t TD = T * config->d_model, TK = T * config->head_dim, TH = T * config->heads, TN = TH * config->head_dim;
  const piece pieces[] = {
      {&a->x, TD},      {&a->x_norm, TD}, {&a->x_rstd, T},                                 //
      {&a->q_proj, TN}, {&a->q_conv, TN}, {&a->q_silu, TN}, {&a->q, TN}, {&a->q_rstd, TH}, //
      {&a->k_proj, TN}, {&a->k_conv, TN}, {&a->k_silu, TN}, {&a->k, TN}, {&a->k_rstd, TH}, //
      {&a->v_proj, TN}, {&a->v_conv, TN}, {&a->v, TN},                                     //
      {&a->f_low, TK},  {&a->f, TN},      {&a->g, TN},                                     //
      {&a->b_proj, TN}, {&a->b, TN},      {&a->w_proj, TN}, {&a->w, TN},
  };
  a->T = T;
  a->memory = allocate(pieces, sizeof pieces / sizeof *pieces);
  return a->memory ? 0 : -1;
}

void lm_acts_free(lm_acts *acts) {
  free(acts->memory);
  *acts = (lm_acts){.memory = NULL};
}

/* silu(conv(n W^T)): what q, k and v have in common. Every array [T][N]. */
static void branch_forward(const lm_layer *layer, const lm_acts *a, lm_param_id proj_id, lm_param_id conv_id, float *proj,
                           float *conv, float *silu) {
  const lm_config *c = &layer->config;
  const int64_t N = c->heads * c->head_dim;
  lm_linear_forward(proj, a->x_norm, layer->param[proj_id].data, a->T, c->d_model, N);
  lm_conv_forward(conv, proj, layer->param[conv_id].data, a->T, N, c->conv_width);
  lm_silu_forward(silu, conv, a->T * N);
}

/* sigmoid(n W^T). Both arrays [T][N]. */
static void gate_forward(const lm_layer *layer, const lm_acts *a, lm_param_id proj_id, float *proj, float *gate) {
  const lm_config *c = &layer->config;
  const int64_t N = c->heads * c->head_dim;
  lm_linear_forward(proj, a->x_norm, layer->param[proj_id].data, a->T, c->d_model, N);
  lm_sigmoid_forward(gate, proj, a->T * N);
}

void lm_layer_forward(const lm_layer *layer, lm_acts *a, const uint8_t *bytes) {
  const int64_t T = a->T, D = layer->config.d_model, H = layer->config.heads, K = layer->config.head_dim;
  const lm_param *p = layer->param;
  /* x = E[byte], n = RMSNorm(x) */
  lm_embedding_forward(a->x, bytes, p[LM_EMBEDDINGS].data, T, D);
  lm_rmsnorm_forward(a->x_norm, a->x_rstd, a->x, p[LM_ATTN_NORM].data, T, D, LM_NORM_EPS);
  /* q = L2(silu(conv(n Wq^T))), k the same, v without the norm */
  branch_forward(layer, a, LM_Q_PROJ, LM_Q_CONV, a->q_proj, a->q_conv, a->q_silu);
  branch_forward(layer, a, LM_K_PROJ, LM_K_CONV, a->k_proj, a->k_conv, a->k_silu);
  branch_forward(layer, a, LM_V_PROJ, LM_V_CONV, a->v_proj, a->v_conv, a->v);
  lm_l2norm_forward(a->q, a->q_rstd, a->q_silu, T * H, K, LM_NORM_EPS);
  lm_l2norm_forward(a->k, a->k_rstd, a->k_silu, T * H, K, LM_NORM_EPS);
  /* g = -exp(A_log) softplus((n F0^T) F1^T + dt_bias) */
  lm_linear_forward(a->f_low, a->x_norm, p[LM_F_PROJ_0].data, T, D, K);
  lm_linear_forward(a->f, a->f_low, p[LM_F_PROJ_1].data, T, K, H * K);
  lm_decay_forward(a->g, a->f, p[LM_A_LOG].data, p[LM_DT_BIAS].data, T, H, K);
  /* b = sigmoid(n Wb^T), w = sigmoid(n Ww^T) */
  gate_forward(layer, a, LM_B_PROJ, a->b_proj, a->b);
  gate_forward(layer, a, LM_W_PROJ, a->w_proj, a->w);
}
