#include "lm/adamw.h"
#include <stdlib.h>

enum { BLOCK = 8192 };

static int64_t blocks_of(int64_t floats) { return (floats + BLOCK - 1) / BLOCK; }

int lm_adamw_create(lm_adamw *a, const lm_params *params) {
  const size_t floats = (size_t)params->floats;
  a->mean = calloc(floats, sizeof *a->mean);
  a->square = calloc(floats, sizeof *a->square);
  a->partial = calloc((size_t)blocks_of(params->floats), sizeof *a->partial);
  if (a->mean && a->square && a->partial) return 0;
  lm_adamw_free(a);
  return -1;
}

void lm_adamw_free(lm_adamw *a) {
  free(a->mean);
  free(a->square);
  free(a->partial);
  *a = (lm_adamw){.mean = NULL};
}

/* Blocks are summed by whichever thread, and their sums in order: the same bits for any number of threads. */
static double norm_of(double *partial, const real *grad, int64_t floats) {
  const int64_t blocks = blocks_of(floats);
  LM_PARALLEL_FOR(floats)
  for (int64_t n = 0; n < blocks; n++) {
    double sum = 0;
    for (int64_t i = n * BLOCK; i < (n + 1) * BLOCK && i < floats; i++) sum += (double)grad[i] * (double)grad[i];
    partial[n] = sum;
  }
  double sum = 0;
  for (int64_t n = 0; n < blocks; n++) sum += partial[n];
  return sqrt(sum);
}

/* m <- b1 m + (1 - b1) d,  s <- b2 s + (1 - b2) d^2,  x <- x - rate (m' / (sqrt(s') + eps) + decay x), with m' and s' corrected
 * for their start at zero: the corrections are in rate and in root. */
static void update(lm_adamw *a, real *value, const real *grad, int64_t first, int64_t last, const lm_adamw_rate *r, double scale,
                   double decay) {
  const double correct1 = 1 - pow(r->beta1, (double)r->step), correct2 = 1 - pow(r->beta2, (double)r->step);
  const real rate = (real)(r->learning_rate / correct1), root = (real)(1 / sqrt(correct2)), eps = (real)r->eps;
  const real b1 = (real)r->beta1, b2 = (real)r->beta2, factor = (real)scale, keep = (real)(1 - r->learning_rate * decay);
  LM_PARALLEL_FOR(16 * (last - first))
  for (int64_t n = first / BLOCK; n <= (last - 1) / BLOCK; n++) {
    const int64_t from = n * BLOCK > first ? n * BLOCK : first, to = (n + 1) * BLOCK < last ? (n + 1) * BLOCK : last;
    for (int64_t i = from; i < to; i++) {
      const real d = grad[i] * factor;
      a->mean[i] = b1 * a->mean[i] + (1 - b1) * d;
      a->square[i] = b2 * a->square[i] + (1 - b2) * d * d;
      value[i] = keep * value[i] - rate * a->mean[i] / (lm_sqrt(a->square[i]) * root + eps);
    }
  }
}

double lm_adamw_step(lm_adamw *a, const lm_params *params, real *value, const real *grad, const lm_adamw_rate *rate) {
  const double norm = norm_of(a->partial, grad, params->floats);
  if (!isfinite(norm)) return norm;
  const double scale = rate->clip > 0 && norm > rate->clip ? rate->clip / norm : 1;
  for (int64_t n = 0; n < params->count; n++) {
    const lm_param *p = &params->list[n];
    update(a, value, grad, p->offset, p->offset + p->count, rate, scale, p->rank == 2 ? rate->weight_decay : 0);
  }
  return norm;
}

double lm_learning_rate(int64_t step, int64_t warmup, int64_t steps, double peak, double floor) {
  if (step < warmup) return peak * (double)step / (double)warmup;
  if (step >= steps) return steps > warmup ? floor : peak;
  const double part = (double)(step - warmup) / (double)(steps - warmup), pi = 3.14159265358979323846;
  return floor + 0.5 * (peak - floor) * (1 + cos(pi * part));
}
