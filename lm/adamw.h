/* adamw.h - the optimiser (Loshchilov and Hutter, arXiv:1711.05101), and the learning rate over the steps. */
#ifndef GDN2_LM_ADAMW_H
#define GDN2_LM_ADAMW_H
#include "lm/params.h"

typedef struct lm_adamw {
  real *mean, *square; /* [floats] running means of the gradient and of its square */
  double *partial;     /* sums of squares of the blocks of the gradient */
} lm_adamw;

typedef struct lm_adamw_rate {
  double learning_rate, weight_decay, beta1, beta2, eps;
  double clip;  /* largest norm of the gradient; 0: any */
  int64_t step; /* from 1 on */
} lm_adamw_rate;

int lm_adamw_create(lm_adamw *a, const lm_params *params);
void lm_adamw_free(lm_adamw *a);

/* One step on value from grad[floats]. Decay is for matrices only: not for norms, biases, taps, A_log and dt_bias. Returns the
 * norm of the gradient before it is clipped; nothing is done when that is not finite. */
double lm_adamw_step(lm_adamw *a, const lm_params *params, real *value, const real *grad, const lm_adamw_rate *rate);

/* Rises in a line over the warm-up, then falls along half a cosine from peak to floor at the last step. step: from 1 on. */
double lm_learning_rate(int64_t step, int64_t warmup, int64_t steps, double peak, double floor);

#endif
