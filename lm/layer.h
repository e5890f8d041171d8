/* layer.h - one Gated DeltaNet-2 layer, from bytes to the six tensors of the rule.
 *
 *     x = E[byte]                                   embedding                           [T][D]
 *     n = RMSNorm(x)                                                                    [T][D]
 *     q = L2(silu(conv(n Wq^T)))                    per head; k the same with Wk        [T][H][K]
 *     v = silu(conv(n Wv^T))                                                            [T][H][K]
 *     g = -exp(A_log) softplus((n F0^T) F1^T + dt_bias)      log-decay, low rank        [T][H][K]
 *     b = sigmoid(n Wb^T)                           erase gate, per key channel         [T][H][K]
 *     w = sigmoid(n Ww^T)                           write gate, per value channel       [T][H][K]
 *
 * Keys and values have the same size K here. docs/layer.md says where each choice comes from. */
#ifndef GDN2_LM_LAYER_H
#define GDN2_LM_LAYER_H
#include <stdint.h>

#define LM_VOCABULARY 256 /* bytes */
#define LM_NORM_EPS 1e-6  /* added to the mean (RMSNorm) or the sum (L2 norm) of squares, inside the root */

typedef struct lm_config {
  int64_t d_model;    /* D */
  int64_t heads;      /* H */
  int64_t head_dim;   /* K, at most GDN2_MAX_DIM */
  int64_t conv_width; /* W */
} lm_config;

/* The parameters. The numbers are pinned: each is the random stream its parameter is drawn from. */
typedef enum lm_param_id {
  LM_EMBEDDINGS = 0, /* [256][D]  E */
  LM_ATTN_NORM = 1,  /* [D]       weight of the RMSNorm */
  LM_Q_PROJ = 2,     /* [HK][D]   Wq */
  LM_K_PROJ = 3,     /* [HK][D]   Wk */
  LM_V_PROJ = 4,     /* [HK][D]   Wv */
  LM_Q_CONV = 5,     /* [HK][1][W] */
  LM_K_CONV = 6,     /* [HK][1][W] */
  LM_V_CONV = 7,     /* [HK][1][W] */
  LM_F_PROJ_0 = 8,   /* [K][D]    F0 */
  LM_F_PROJ_1 = 9,   /* [HK][K]   F1 */
  LM_B_PROJ = 10,    /* [HK][D]   Wb */
  LM_W_PROJ = 11,    /* [HK][D]   Ww */
  LM_A_LOG = 12,     /* [H] */
  LM_DT_BIAS = 13,   /* [HK] */
  LM_PARAMS = 14
} lm_param_id;

typedef struct lm_param {
  const char *name; /* as flash-linear-attention names it */
  int rank;
  int64_t shape[3];
  float *data;
} lm_param;

typedef struct lm_layer {
  lm_config config;
  lm_param param[LM_PARAMS];
  float *memory; /* all of them, one after the other */
} lm_layer;

/* Everything the forward computes, kept for the backward. N = HK. */
typedef struct lm_acts {
  int64_t T;
  float *x, *x_norm;                   /* [T][D] */
  float *x_rstd;                       /* [T] */
  float *q_proj, *q_conv, *q_silu, *q; /* [T][N] each, in the order they are computed */
  float *k_proj, *k_conv, *k_silu, *k; /* [T][N] */
  float *v_proj, *v_conv, *v;          /* [T][N] */
  float *q_rstd, *k_rstd;              /* [T][H] */
  float *f_low;                        /* [T][K] */
  float *f, *g;                        /* [T][N] */
  float *b_proj, *b, *w_proj, *w;      /* [T][N] */
  float *memory;
} lm_acts;

/* NULL if a layer of this shape can be made for T tokens, else a sentence that names the size at fault. */
const char *lm_config_fault(const lm_config *config, int64_t T);

/* Both return 0, or -1 when memory could not be allocated. The config must have no fault. What they make is freed by the function
 * below each; freeing twice, or what was zeroed, does nothing. */
int lm_layer_create(lm_layer *layer, const lm_config *config);
void lm_layer_free(lm_layer *layer);
int lm_acts_create(lm_acts *acts, const lm_config *config, int64_t T);
void lm_acts_free(lm_acts *acts);

/* Initial values; the same seed gives the same values. */
void lm_layer_init(lm_layer *layer, uint64_t seed);

/* The equations above for acts->T bytes. */
void lm_layer_forward(const lm_layer *layer, lm_acts *acts, const uint8_t *bytes);
#endif
