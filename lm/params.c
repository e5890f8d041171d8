#include "lm/params.h"
#include "gdn2.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const lm_rule_names[] = {"gdn2", "kda", "gdn", "deltanet", NULL};
const char *const lm_gate_names[] = {"silu", "sigmoid", NULL};

/* Sizes stay far below what an int of CBLAS can hold. */
#define MAX_WIDTH (INT64_C(1) << 16)
#define MAX_LAYERS 256
/* A group of parameters that one product reads starts on a whole cache line. */
#define ALIGN 16

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static int within(int64_t x, int64_t high) { return x >= 1 && x <= high; }

const char *lm_config_fault(const lm_config *c) {
  if (!within(c->vocabulary, MAX_WIDTH)) return "the vocabulary must be from 1 to 65536 tokens";
  if (!within(c->layers, MAX_LAYERS)) return "the layers must be from 1 to " TEXT(MAX_LAYERS);
  if (!within(c->head_dim, GDN2_MAX_DIM)) return "the head size must be from 1 to " TEXT(GDN2_MAX_DIM);
  if (!within(c->heads, MAX_WIDTH / c->head_dim)) return "heads must be at least 1, and heads times head size at most 65536";
  if (!within(c->d_model, MAX_WIDTH)) return "the model's width must be from 1 to 65536";
  if (!within(c->d_mlp, MAX_WIDTH)) return "the MLP's width must be from 1 to 65536";
  if (c->conv_width < GDN2_CONV_MIN_WIDTH || c->conv_width > GDN2_CONV_MAX_WIDTH)
    return "the convolution's width must be from " TEXT(GDN2_CONV_MIN_WIDTH) " to " TEXT(GDN2_CONV_MAX_WIDTH);
  if (c->rule < 0 || c->rule >= LM_RULES) return "the rule must be gdn2, kda, gdn or deltanet";
  if (c->gate < 0 || c->gate >= LM_GATES) return "the output gate must be silu or sigmoid";
  return NULL;
}

/* ---- The list ------------------------------------------------------------------------------------------------------------- */

/* What a kind of parameter is. Sizes are letters: D d_model, N heads times head size, K head size, H heads, F MLP, W taps,
 * B N for gdn2, else H; T N, or H for gdn; V vocabulary; 1. */
typedef struct kind {
  const char *name, *shape;
  lm_param_id id;
  int joined; /* follows the one before without a gap */
} kind;

static const kind of_layer[] = {
    {"attn_norm.weight", "D", LM_ATTN_NORM, 0},
    {"attn.q_proj.weight", "ND", LM_Q_PROJ, 0},
    {"attn.k_proj.weight", "ND", LM_K_PROJ, 1},
    {"attn.v_proj.weight", "ND", LM_V_PROJ, 1},
    {"attn.b_proj.weight", "BD", LM_B_PROJ, 1},
    {"attn.w_proj.weight", "ND", LM_W_PROJ, 1},
    {"attn.a_proj.weight", "HD", LM_A_PROJ, 1},
    {"attn.f_proj.0.weight", "KD", LM_F_PROJ_0, 1},
    {"attn.g_proj.0.weight", "KD", LM_G_PROJ_0, 1},
    {"attn.q_conv1d.weight", "N1W", LM_Q_CONV, 0},
    {"attn.k_conv1d.weight", "N1W", LM_K_CONV, 1},
    {"attn.v_conv1d.weight", "N1W", LM_V_CONV, 1},
    {"attn.f_proj.1.weight", "NK", LM_F_PROJ_1, 0},
    {"attn.A_log", "H", LM_A_LOG, 0},
    {"attn.dt_bias", "T", LM_DT_BIAS, 0},
    {"attn.g_proj.1.weight", "NK", LM_G_PROJ_1, 0},
    {"attn.g_proj.1.bias", "N", LM_G_BIAS, 0},
    {"attn.o_norm.weight", "K", LM_O_NORM, 0},
    {"attn.o_proj.weight", "DN", LM_O_PROJ, 0},
    {"mlp_norm.weight", "D", LM_MLP_NORM, 0},
    {"mlp.gate_proj.weight", "FD", LM_GATE_PROJ, 0},
    {"mlp.up_proj.weight", "FD", LM_UP_PROJ, 1},
    {"mlp.down_proj.weight", "DF", LM_DOWN_PROJ, 0},
};
enum { OF_LAYER = sizeof of_layer / sizeof *of_layer };

static const kind embeddings = {"model.embeddings.weight", "VD", LM_EMBEDDINGS, 0};
static const kind norm = {"model.norm.weight", "D", LM_NORM, 0};
static const kind head = {"lm_head.weight", "VD", LM_HEAD, 0};

static int64_t size_of(const lm_config *c, char letter) {
  const int64_t N = c->heads * c->head_dim;
  switch (letter) {
  case 'D': return c->d_model;
  case 'N': return N;
  case 'K': return c->head_dim;
  case 'H': return c->heads;
  case 'F': return c->d_mlp;
  case 'W': return c->conv_width;
  case 'V': return c->vocabulary;
  case 'B': return c->rule == LM_GDN2 ? N : c->heads;
  case 'T': return c->rule == LM_GDN ? c->heads : N;
  default: return 1;
  }
}

static int has(const lm_config *c, lm_param_id id) {
  switch (id) {
  case LM_W_PROJ: return c->rule == LM_GDN2;
  case LM_F_PROJ_0:
  case LM_F_PROJ_1: return c->rule == LM_GDN2 || c->rule == LM_KDA;
  case LM_A_PROJ: return c->rule == LM_GDN;
  case LM_A_LOG:
  case LM_DT_BIAS: return c->rule != LM_DELTANET;
  default: return 1;
  }
}

static void add(lm_params *p, const kind *k, int64_t layer, const char *prefix) {
  lm_param *one = &p->list[p->count++];
  *one = (lm_param){.id = k->id, .layer = layer, .rank = (int)strlen(k->shape), .count = 1};
  snprintf(one->name, sizeof one->name, "%s%s", prefix, k->name);
  for (int axis = 0; axis < one->rank; axis++) one->count *= one->shape[axis] = size_of(&p->config, k->shape[axis]);
  if (!k->joined) p->floats = (p->floats + ALIGN - 1) / ALIGN * ALIGN;
  one->offset = p->offset[layer][k->id] = p->floats;
  p->floats += one->count;
  p->numbers += one->count;
}

static void add_all(lm_params *p) {
  add(p, &embeddings, 0, "");
  for (int64_t layer = 0; layer < p->config.layers; layer++) {
    char prefix[40];
    snprintf(prefix, sizeof prefix, "model.layers.%d.", (int)layer);
    for (int i = 0; i < OF_LAYER; i++)
      if (has(&p->config, of_layer[i].id)) add(p, &of_layer[i], layer, prefix);
  }
  add(p, &norm, 0, "");
  if (!p->config.tied) add(p, &head, 0, "");
}

static lm_columns columns_of(const lm_config *c) {
  lm_columns at = {.qkv = 0, .b = 3 * size_of(c, 'N')};
  at.w = at.b + size_of(c, 'B');
  at.a = at.w + (has(c, LM_W_PROJ) ? size_of(c, 'N') : 0);
  at.f = at.a + (has(c, LM_A_PROJ) ? c->heads : 0);
  at.g = at.f + (has(c, LM_F_PROJ_0) ? c->head_dim : 0);
  at.total = at.g + c->head_dim;
  return at;
}

int lm_params_create(lm_params *p, const lm_config *config) {
  const size_t layers = (size_t)config->layers;
  *p = (lm_params){.config = *config, .columns = columns_of(config)};
  p->list = calloc(layers * OF_LAYER + 3, sizeof *p->list);
  p->offset = malloc(layers * sizeof *p->offset);
  if (!p->list || !p->offset) {
    lm_params_free(p);
    return -1;
  }
  for (size_t layer = 0; layer < layers; layer++)
    for (int id = 0; id < LM_PARAM_IDS; id++) p->offset[layer][id] = -1;
  add_all(p);
  return 0;
}

void lm_params_free(lm_params *p) {
  free(p->list);
  free(p->offset);
  *p = (lm_params){.list = NULL};
}
