/* Initial values of the parameters: docs/layer.md, "Initialisation". */
#include "layer.h"
#include "random.h"
#include <math.h>

/* Standard deviation of embeddings and projections. */
#define WEIGHT_STD 0.02f
/* exp(A_log) is uniform between these. */
#define A_LOW 1.0
#define A_HIGH 16.0
/* softplus(dt_bias) is log-uniform between these, and not below the floor. */
#define DT_LOW 1e-3
#define DT_HIGH 1e-1
#define DT_FLOOR 1e-4

/* A_log = log A. A is at least 1, so that no head starts without decay. */
static float initial_A_log(double uniform) { return (float)log(A_LOW + (A_HIGH - A_LOW) * uniform); }

/* dt_bias = softplus^-1(dt) = log(e^dt - 1) = dt + log(1 - e^-dt); the last form keeps its digits for small dt. */
static float initial_dt_bias(double uniform) {
  double dt = fmax(exp(log(DT_LOW) + (log(DT_HIGH) - log(DT_LOW)) * uniform), DT_FLOOR);
  return (float)(dt + log(-expm1(-dt)));
}

/* PyTorch's default for a convolution: uniform within +-(taps per output)^-1/2. */
static float initial_tap(double uniform, int64_t W) { return (float)((2 * uniform - 1) / sqrt((double)W)); }

static float initial_value(lm_param_id id, int64_t W, uint64_t seed, uint64_t index) {
  switch (id) {
  case LM_ATTN_NORM: return 1;
  case LM_A_LOG: return initial_A_log(lm_random_uniform(seed, id, index));
  case LM_DT_BIAS: return initial_dt_bias(lm_random_uniform(seed, id, index));
  case LM_Q_CONV:
  case LM_K_CONV:
  case LM_V_CONV: return initial_tap(lm_random_uniform(seed, id, index), W);
  default: return WEIGHT_STD * lm_random_normal(seed, id, index);
  }
}

void lm_layer_init(lm_layer *layer, uint64_t seed) {
  for (int id = 0; id < LM_PARAMS; id++) {
    const lm_param *p = &layer->param[id];
    int64_t count = 1;
    for (int axis = 0; axis < p->rank; axis++) count *= p->shape[axis];
    for (int64_t i = 0; i < count; i++) {
      p->data[i] = initial_value((lm_param_id)id, layer->config.conv_width, seed, (uint64_t)i);
    }
  }
}
