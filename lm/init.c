/* Initial values of the parameters: docs/lm.md, "Initialisation". */
#include "lm/params.h"
#include "lm/random.h"
#include <string.h>

/* Standard deviation of embeddings and projections. */
#define WEIGHT_STD 0.02f
/* exp(A_log) is uniform between these. */
#define A_LOW 1.0
#define A_HIGH 16.0
/* softplus(dt_bias) is log-uniform between these, and not below the floor. */
#define DT_LOW 1e-3
#define DT_HIGH 1e-1
#define DT_FLOOR 1e-4
/* Random streams of a layer; those of the first are the numbers of the parameters alone. */
#define STREAMS_OF_LAYER 4096

/* A_log = log A. A is at least 1, so that no head starts without decay. */
static double initial_A_log(double uniform) { return log(A_LOW + (A_HIGH - A_LOW) * uniform); }

/* dt_bias = softplus^-1(dt) = log(e^dt - 1) = dt + log(1 - e^-dt); the last form keeps its digits for small dt. */
static double initial_dt_bias(double uniform) {
  double dt = fmax(exp(log(DT_LOW) + (log(DT_HIGH) - log(DT_LOW)) * uniform), DT_FLOOR);
  return dt + log(-expm1(-dt));
}

/* PyTorch's default for a convolution: uniform within +-(taps per output)^-1/2. */
static double initial_tap(double uniform, int64_t W) { return (2 * uniform - 1) / sqrt((double)W); }

/* The same numbers in float32 and float64: all are rounded to float32. */
static float initial_value(lm_param_id id, int64_t W, uint64_t seed, uint64_t stream, uint64_t index) {
  switch (id) {
  case LM_ATTN_NORM:
  case LM_MLP_NORM:
  case LM_O_NORM:
  case LM_NORM: return 1;
  case LM_G_BIAS: return 0;
  case LM_A_LOG: return (float)initial_A_log(lm_random_uniform(seed, stream, index));
  case LM_DT_BIAS: return (float)initial_dt_bias(lm_random_uniform(seed, stream, index));
  case LM_Q_CONV:
  case LM_K_CONV:
  case LM_V_CONV: return (float)initial_tap(lm_random_uniform(seed, stream, index), W);
  default: return WEIGHT_STD * lm_random_normal(seed, stream, index);
  }
}

void lm_params_init(const lm_params *params, real *value, uint64_t seed) {
  memset(value, 0, (size_t)params->floats * sizeof *value);
  for (int64_t n = 0; n < params->count; n++) {
    const lm_param *p = &params->list[n];
    uint64_t stream = (uint64_t)(p->layer * STREAMS_OF_LAYER) + p->id;
    for (int64_t i = 0; i < p->count; i++)
      value[p->offset + i] = (real)initial_value(p->id, params->config.conv_width, seed, stream, (uint64_t)i);
  }
}
