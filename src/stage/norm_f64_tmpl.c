/* The norm of float64 tensors: equations (L5) to (L8) as in norm_tmpl.c, in double and without vector words. */
#include "stage/norm.h"

INLINE const double *norm_at_f64(const gdn2_rows *rows, int64_t r) {
  return rows->at ? (const double *)(const void *)rows->at + r * rows->step : NULL;
}
INLINE double *norm_out_f64(const gdn2_rows_out *rows, int64_t r) {
  return rows->at ? (double *)(void *)rows->at + r * rows->step : NULL;
}

INLINE double norm_root_f64(const gdn2_norm_rule *rule, const double *x) {
  double sum = 0;
  for (int64_t m = 0; m < rule->D; m++) sum += x[m] * x[m];
  return 1.0 / sqrt(sum / (double)rule->D + rule->eps);
}

INLINE double norm_weight_f64(const gdn2_norm_rule *rule, int64_t m) {
  const double *weight = norm_at_f64(&rule->weight, 0);
  return (weight ? weight[m] : 1.0) + rule->plus_one;
}

/* gate(z), and its slope; of no gate 1 and 0. */
INLINE double norm_gate_f64(const gdn2_norm_rule *rule, const double *z, double *slope) {
  *slope = 0;
  if (!z) return 1.0;
  const double e = exp(-fabs(*z)), a = 1.0 / (1.0 + e), s = *z >= 0 ? a : e * a, rest = *z >= 0 ? e * a : a;
  *slope = rule->gate == GDN2_NORM_SILU ? s + *z * s * rest : s * rest;
  return rule->gate == GDN2_NORM_SILU ? *z * s : s;
}

static void norm_forward_f64(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y) {
  for (int64_t r = 0; r < rows; r++) {
    const double *x = norm_at_f64(&in->x, r), *z = norm_at_f64(&in->z, r);
    double *to = norm_out_f64(&y, r), slope;
    const double root = norm_root_f64(rule, x);
    for (int64_t m = 0; m < rule->D; m++)
      to[m] = x[m] * root * norm_weight_f64(rule, m) * norm_gate_f64(rule, z ? z + m : NULL, &slope);
  }
}

INLINE void norm_back_row_f64(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r, const gdn2_norm_grad *grad) {
  const double *x = norm_at_f64(&in->x, r), *z = norm_at_f64(&in->z, r), *dy = norm_at_f64(&grad->dy, r);
  double *dx = norm_out_f64(&grad->dx, r), *dz = norm_out_f64(&grad->dz, r), *dweight = grad->dweight, *dn = grad->scratch;
  const double root = norm_root_f64(rule, x);
  double sum = 0, slope;
  for (int64_t m = 0; m < rule->D; m++) {
    const double weight = norm_weight_f64(rule, m), gate = norm_gate_f64(rule, z ? z + m : NULL, &slope);
    const double n = x[m] * root, d = dy ? dy[m] : 0.0;
    if (dz) dz[m] = d * slope * n * weight;
    if (dweight) dweight[m] += d * gate * n;
    dn[m] = d * gate * weight;
    sum += dn[m] * n;
  }
  for (int64_t m = 0; dx && m < rule->D; m++) dx[m] = root * (dn[m] - x[m] * root * (sum / (double)rule->D));
}

static void norm_backward_f64(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad) {
  for (int64_t r = 0; r < rows; r++) norm_back_row_f64(rule, in, r, grad);
}
