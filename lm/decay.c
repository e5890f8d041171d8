#include "parts.h"
#include <math.h>

/* Above 37, log(1 + e^x) is x to the last bit of a double; below -37 it is e^x. */
#define FAR 37

double lm_softplus(double x) { return x > FAR ? x : log1p(exp(x)); }

/* g = -exp(A_log) softplus(a), a = f + dt_bias.
 *
 * In float64, because the factors leave the range of float32 long before their product does: exp(100) softplus(-200) is 4e-44.
 * Where softplus is e^a the exponents are added instead, so that inf * 0 cannot arise at any A_log. */
static float decay(double A_log, double A, double a) { return (float)(a < -FAR ? -exp(A_log + a) : -A * lm_softplus(a)); }

void lm_decay_forward(float *g, const float *f, const float *A_log, const float *dt_bias, int64_t T, int64_t H, int64_t K) {
  for (int64_t h = 0; h < H; h++) {
    double A = exp((double)A_log[h]);
    for (int64_t t = 0; t < T; t++) {
      int64_t row = (t * H + h) * K;
      for (int64_t i = 0; i < K; i++) g[row + i] = decay(A_log[h], A, (double)f[row + i] + dt_bias[h * K + i]);
    }
  }
}
