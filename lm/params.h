/* params.h - the parameters of a model: names, shapes, where they lie, initial values.
 *
 * All parameters stand in one buffer, and a second one of the same layout holds their gradients, so that the optimiser and the
 * checkpoint need not know the model. Within a layer the projections of the same input follow each other without a gap: their
 * rows are one matrix, and one product computes them all.
 *
 *     in   [P][D]    q_proj k_proj v_proj b_proj w_proj a_proj f_proj.0 g_proj.0, those that the rule has
 *     conv [3N][W]   q_conv1d k_conv1d v_conv1d                                     N = HK
 *     mlp  [2F][D]   gate_proj up_proj */
#ifndef GDN2_LM_PARAMS_H
#define GDN2_LM_PARAMS_H
#include "lm/config.h"
#include "lm/real.h"

/* Kinds of parameters. The numbers are pinned: with the layer, each names the random stream of initial values. */
typedef enum lm_param_id {
  LM_EMBEDDINGS = 0, /* [vocabulary][D] */
  LM_ATTN_NORM = 1,  /* [D] */
  LM_Q_PROJ = 2,     /* [N][D] */
  LM_K_PROJ = 3,     /* [N][D] */
  LM_V_PROJ = 4,     /* [N][D] */
  LM_Q_CONV = 5,     /* [N][1][W] */
  LM_K_CONV = 6,     /* [N][1][W] */
  LM_V_CONV = 7,     /* [N][1][W] */
  LM_F_PROJ_0 = 8,   /* [K][D]   low-rank decay; gdn2, kda */
  LM_F_PROJ_1 = 9,   /* [N][K] */
  LM_B_PROJ = 10,    /* [N][D] erase gate; the other rules [H][D], erase and write */
  LM_W_PROJ = 11,    /* [N][D] write gate; gdn2 */
  LM_A_LOG = 12,     /* [H]      all but deltanet */
  LM_DT_BIAS = 13,   /* [N], gdn [H] */
  LM_A_PROJ = 14,    /* [H][D]   decay; gdn */
  LM_G_PROJ_0 = 15,  /* [K][D]   low-rank output gate */
  LM_G_PROJ_1 = 16,  /* [N][K] */
  LM_G_BIAS = 17,    /* [N] */
  LM_O_NORM = 18,    /* [K] */
  LM_O_PROJ = 19,    /* [D][N] */
  LM_MLP_NORM = 20,  /* [D] */
  LM_GATE_PROJ = 21, /* [F][D] */
  LM_UP_PROJ = 22,   /* [F][D] */
  LM_DOWN_PROJ = 23, /* [D][F] */
  LM_NORM = 24,      /* [D] */
  LM_HEAD = 25,      /* [vocabulary][D], unless tied */
  LM_PARAM_IDS = 26
} lm_param_id;

typedef struct lm_param {
  char name[64]; /* as flash-linear-attention names it */
  lm_param_id id;
  int64_t layer; /* 0 for those outside of layers */
  int rank;
  int64_t shape[3];
  int64_t count, offset; /* elements, and the first one in the buffers */
} lm_param;

/* The columns of a row of the joined projection, P in all; absent ones are empty. */
typedef struct lm_columns {
  int64_t qkv, b, w, a, f, g, total;
} lm_columns;

typedef struct lm_params {
  lm_config config;
  lm_columns columns;
  int64_t count;                   /* of the list */
  lm_param *list;                  /* in the order of the buffer */
  int64_t (*offset)[LM_PARAM_IDS]; /* [layers] by kind; -1: absent. What lies outside of layers is in the first row */
  int64_t floats;                  /* of a buffer, gaps included */
  int64_t numbers;                 /* parameters */
} lm_params;

/* Both return 0, or -1 when memory could not be allocated. The config must have no fault. Freeing what was zeroed does nothing.
 */
int lm_params_create(lm_params *params, const lm_config *config);
void lm_params_free(lm_params *params);

/* Initial values, to value[floats]; gaps are 0. The same seed gives the same values. */
void lm_params_init(const lm_params *params, real *value, uint64_t seed);

/* Where a parameter begins in a buffer; NULL if the rule has none. */
static inline real *lm_param_at(const lm_params *params, real *buffer, int64_t layer, lm_param_id id) {
  return params->offset[layer][id] < 0 ? (real *)0 : buffer + params->offset[layer][id];
}

#endif
