/* parts.h - the parts of the model beside the rule and the products, each forward and backward in a file of its own.
 *
 * Outputs come first. Arrays are contiguous in the order their shape is written unless a leading dimension is named. A backward
 * writes the gradient of its input and adds to those of its weights. Sums over tokens are made channel by channel and in the
 * order of the tokens, so that no bit depends on the number of threads.
 *
 *     T  tokens, of all sequences     D  channels */
#ifndef GDN2_LM_PARTS_H
#define GDN2_LM_PARTS_H
#include "lm/real.h"
#include <stdint.h>

/* x[T][D] = E[token_t][D]. */
void lm_embedding_forward(real *x, const int32_t *tokens, const real *E, int64_t T, int64_t D);
/* dE[token_t] += dx_t. */
void lm_embedding_backward(real *dE, const real *dx, const int32_t *tokens, int64_t T, int64_t D);

/* h[T][F] = silu(u[:][0..F)) u[:][F..2F). */
void lm_swiglu_forward(real *h, const real *u, int64_t T, int64_t F);
/* du[T][2F]. */
void lm_swiglu_backward(real *du, const real *dh, const real *u, int64_t T, int64_t F);

/* Cross-entropy of logits[T][V] against targets[T], where a negative target counts for nothing. The logits are replaced by the
 * gradient of scale times the sum; the sum itself is returned. loss[T]: that of each token, 0 where there is no target. hits: how
 * many targets have the largest logit; NULL: not counted. */
double lm_loss(real *logits, double *loss, const int32_t *targets, int64_t T, int64_t V, real scale, int64_t *hits);

#endif
