#include "lm/parts.h"
#include <string.h>

/* loss = log sum_v e^z_v - z_target; gradient: softmax(z), less 1 at the target. The largest z is taken out first, so that no
 * exponential overflows. */
static double row_loss(real *z, int32_t target, int64_t V, real scale, int *hit) {
  int64_t best = 0;
  for (int64_t v = 1; v < V; v++)
    if (z[v] > z[best]) best = v;
  *hit = best == target;
  const real top = z[best], at_target = z[target];
  double sum = 0;
  for (int64_t v = 0; v < V; v++) {
    z[v] = lm_exp(z[v] - top);
    sum += (double)z[v];
  }
  const real factor = (real)((double)scale / sum);
  for (int64_t v = 0; v < V; v++) z[v] *= factor;
  z[target] -= scale;
  return log(sum) + (double)(top - at_target);
}

double lm_loss(real *logits, double *loss, const int32_t *targets, int64_t T, int64_t V, real scale, int64_t *hits) {
  int64_t right = 0;
  double sum = 0;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) reduction(+ : right)
#endif
  for (int64_t t = 0; t < T; t++) {
    int hit = 0;
    loss[t] = 0;
    if (targets[t] < 0)
      memset(logits + t * V, 0, (size_t)V * sizeof *logits);
    else
      loss[t] = row_loss(logits + t * V, targets[t], V, scale, &hit);
    right += hit;
  }
  for (int64_t t = 0; t < T; t++) sum += loss[t];
  if (hits) *hits += right;
  return sum;
}
