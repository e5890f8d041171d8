/* model.h - the model: embedding, blocks, norm, head; one pass forward, one pass backward.
 *
 *     x_0 = E[token]
 *     y = x + Mixer(RMSNorm(x)),  x' = y + Wd (silu(Wg n) * (Wu n)), n = RMSNorm(y)       per block
 *     logits = RMSNorm(x_L) Wh^T
 *
 * Mixer is the layer of the rule: lm/mixer.c. M below is the number of tokens of a pass, B sequences of T each, one behind the
 * other; N = HK; P and the columns of the joined projection are those of params.h. */
#ifndef GDN2_LM_MODEL_H
#define GDN2_LM_MODEL_H
#include "lm/params.h"
#include "gdn2.h"
#include <stddef.h>

/* Tokens between the states that the rule's forward keeps for its backward. */
#define LM_KEEP_EVERY 128

/* What a block's forward leaves for its backward. Without training, all blocks share one. */
typedef struct lm_block_acts {
  real *x;     /* [M][D] input of the block */
  real *p;     /* [M][P] joined projection */
  real *c;     /* [M][3N] q, k, v: convolved, through silu */
  real *f;     /* [M][N] raw decay; gdn2, kda */
  real *z;     /* [M][N] raw output gate */
  real *o;     /* [M][N] output of the rule */
  real *S;     /* [B][T / LM_KEEP_EVERY][H][K][K] states on the way, for training in float32 */
  real *x_mid; /* [M][D] between mixer and MLP */
  real *u;     /* [M][2F] gate and up */
} lm_block_acts;

/* What any block may overwrite. The second part is there for training only. */
typedef struct lm_scratch {
  real *n; /* [M][D] normalised */
  real *y; /* [M][N] normalised, gated output of the rule */
  real *h; /* [M][F] */
  real *dx, *dn, *dp, *dc, *df, *dz, *d_o, *du, *dh;
  real *dw;                /* [M][H] */
  real *dA_log, *ddt_bias; /* [H], [N] of one layer */
  real *sums;              /* gradients of a weight of one call: taps [3N][W], or a norm's */
} lm_scratch;

/* What a sequence carries from one pass to the next: for each layer, the last W-1 inputs of the convolution and the state of the
 * rule. */
typedef struct lm_state {
  real *conv; /* [layers][B][3N][W-1] */
  real *S;    /* [layers][B][H][K][K] */
} lm_state;

typedef struct lm_model {
  lm_params params;
  real *value;    /* [floats] */
  real *grad;     /* [floats], for training */
  int64_t tokens; /* most of a pass */
  lm_block_acts *acts;
  real *x_out;  /* [M][D] */
  real *logits; /* [M][vocabulary] */
  double *loss; /* [M] */
  lm_scratch scratch;
  void *workspace; /* of the library */
  size_t workspace_bytes;
  double rule_seconds; /* spent in the rule so far */
  int64_t B, T;        /* of the last pass */
  gdn2_status status;  /* the first failure of the library in this pass */
} lm_model;

/* Room for passes of at most `tokens` tokens. Values are not set. Both return 0, or -1 when there is no memory; freeing what was
 * zeroed does nothing. */
int lm_model_create(lm_model *model, const lm_config *config, int64_t tokens, int training);
void lm_model_free(lm_model *model);

/* A state of zeros for B sequences. */
int lm_state_create(lm_state *state, const lm_config *config, int64_t B);
void lm_state_free(lm_state *state);

/* The logits of tokens[B][T], B T at most model->tokens. state: read and carried on; NULL: every sequence begins and is
 * forgotten. A failure is that of the library: gdn2_last_error says which. */
gdn2_status lm_forward(lm_model *model, const int32_t *tokens, int64_t B, int64_t T, lm_state *state);

/* After lm_forward without a state: adds the gradient of scale times the sum of cross-entropies to model->grad, and that sum to
 * *sum. Targets below 0 count for nothing. hits: see lm_loss. */
gdn2_status lm_backward(lm_model *model, const int32_t *tokens, const int32_t *targets, real scale, double *sum, int64_t *hits);

/* The sum alone. The logits are used up. */
double lm_evaluate(lm_model *model, const int32_t *targets, int64_t *hits);

/* Where parameters and gradients of a layer lie; NULL if absent. */
static inline real *lm_value(const lm_model *m, int64_t layer, lm_param_id id) {
  return lm_param_at(&m->params, m->value, layer, id);
}
static inline real *lm_grad(const lm_model *m, int64_t layer, lm_param_id id) {
  return lm_param_at(&m->params, m->grad, layer, id);
}

/* ---- Between the files of the model --------------------------------------------------------------------------------------- */

/* Added to the mean of the squares, inside the root. */
#define LM_NORM_EPS 1e-6

/* What a call of the library returned. After a failure the pass is carried through, and what it computes is worth nothing. */
static inline void lm_note(lm_model *m, gdn2_status status) {
  if (!m->status) m->status = status;
}

/* Threads for a call of the library, and room, kept for the next. */
void lm_reserve(lm_model *m, size_t bytes, gdn2_exec *exec);

/* y = x / sqrt(mean(x^2) + eps) w, times act(z) where z is given: rows of D numbers. */
typedef struct lm_norm {
  const real *x, *z, *w;
  int64_t rows, D;
} lm_norm;

void lm_norm_forward(lm_model *m, real *y, const lm_norm *n);
/* dx and dz are written, dx may be dy; dw is added to. */
void lm_norm_backward(lm_model *m, real *dx, real *dz, real *dw, const real *dy, const lm_norm *n);
/* The same before a residual path: dx is added to; dy is used up. */
void lm_norm_residual(lm_model *m, real *dx, real *dw, real *dy, const lm_norm *n);

/* x_mid = x + Mixer(RMSNorm(x)) of a layer. */
void lm_mixer_forward(lm_model *m, int64_t layer, lm_state *state);
/* scratch.dx is the gradient by x_mid, and then by x. */
void lm_mixer_backward(lm_model *m, int64_t layer);

/* o from c, p and f. */
void lm_rule_forward(lm_model *m, int64_t layer, lm_state *state);
/* From scratch.d_o: scratch.dc, scratch.df, the gate columns of scratch.dp, and the gradients of A_log and dt_bias. */
void lm_rule_backward(lm_model *m, int64_t layer);

#endif
