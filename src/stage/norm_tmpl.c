/* RMS norm of a row of D numbers, with or without a gate, forward and backward, in float32.
 *
 *     r = 1 / sqrt(mean(x^2) + eps),   n = x r,   y = n weight gate(z)                                         (L5)
 *     dn = dy weight gate(z),   dz = dy n weight gate'(z)                                                      (L6)
 *     dx = r (dn - n mean(dn n))                                                                               (L7)
 *     dweight = sum over rows of dy gate(z) n                                                                  (L8)
 *
 * Stable: the sum of squares is made anew in float64 where it leaves the range of float32; slopes of gates are made from
 * sigmoid(z) and sigmoid(-z), never from 1 - sigmoid(z). Cost: two looks at a row forward and three backward, all but the first
 * from the first-level cache; an exponential for a gate. */
#include "stage/norm.h"
#include <float.h>

/* Below it, squares of numbers that matter may have been subnormal. */
#define NORM_SMALL 0x1p-60

INLINE vf norm_load(gdn2_dtype dtype, const gdn2_rows *rows, int64_t r, int64_t m, int n) {
  return any_load(dtype, rows->at, r * rows->step + m, n);
}

INLINE int norm_left(int64_t D, int64_t m) { return D - m < VL ? (int)(D - m) : VL; }

/* The sum over a row of its squares, in four running sums. */
INLINE float norm_squares(gdn2_dtype dtype, int64_t D, const gdn2_rows *x, int64_t r) {
  vf sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
  int64_t m = 0;
  for (; m + 4 * VL <= D; m += 4 * VL) {
    UNROLL
    for (int i = 0; i < 4; i++) {
      const vf a = norm_load(dtype, x, r, m + i * VL, VL);
      sum[i] = v_fma(a, a, sum[i]);
    }
  }
  for (; m < D; m += VL) {
    const vf a = norm_load(dtype, x, r, m, norm_left(D, m));
    sum[0] = v_fma(a, a, sum[0]);
  }
  return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

STAGE double norm_squares_f64(int64_t D, const gdn2_rows *x, int64_t r) {
  double sum = 0;
  const char *at = x->at + r * x->step * gdn2_dtype_size(x->dtype);
  for (int64_t m = 0; m < D; m++) {
    const double a = (double)gdn2_number_at(at + m * gdn2_dtype_size(x->dtype), x->dtype);
    sum += a * a;
  }
  return sum;
}

/* r of (L5). */
INLINE float norm_root(gdn2_dtype dtype, const gdn2_norm_rule *rule, const gdn2_rows *x, int64_t r) {
  double sum = (double)norm_squares(dtype, rule->D, x, r);
  if (!(sum <= FLT_MAX) || sum + rule->eps * (double)rule->D < NORM_SMALL) sum = norm_squares_f64(rule->D, x, r);
  return (float)(1.0 / sqrt(sum / (double)rule->D + rule->eps));
}

INLINE vf norm_weight(const gdn2_norm_rule *rule, int64_t m, int n) {
  if (!rule->weight.at) return v_set1(rule->plus_one ? 2.0f : 1.0f);
  const vf w = any_load(rule->weight.dtype, rule->weight.at, m, n);
  return rule->plus_one ? v_add(w, v_set1(1.0f)) : w;
}

/* ---- Forward -------------------------------------------------------------------------------------------------------------- */

INLINE vf norm_gate(gdn2_norm_gate gate, vf y, vf z) {
  const vf s = gate_sigmoid(z);
  return v_mul(y, gate == GDN2_NORM_SILU ? v_mul(z, s) : s);
}

INLINE void norm_row(gdn2_dtype xt, gdn2_dtype zt, gdn2_dtype yt, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                     gdn2_rows_out y) {
  const vf root = v_set1(norm_root(xt, rule, &in->x, r));
  int64_t m = 0;
#define NORM_VECTOR(n)                                                                                                           \
  vf out = v_mul(v_mul(norm_load(xt, &in->x, r, m, n), root), norm_weight(rule, m, n));                                          \
  if (in->z.at) out = norm_gate(rule->gate, out, norm_load(zt, &in->z, r, m, n));                                                \
  any_store(yt, y.at, r *y.step + m, out, n)
  for (; m + VL <= rule->D; m += VL) {
    NORM_VECTOR(VL);
  }
  if (m < rule->D) {
    const int n = (int)(rule->D - m);
    NORM_VECTOR(n);
  }
#undef NORM_VECTOR
}

#define NORM_ROWS_OF(NAME, XT, ZT, YT)                                                                                           \
  STAGE void NAME(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y) {                           \
    for (int64_t r = 0; r < rows; r++) norm_row(XT, ZT, YT, rule, in, r, y);                                                     \
  }
NORM_ROWS_OF(norm_rows_f32, GDN2_F32, GDN2_F32, GDN2_F32)
NORM_ROWS_OF(norm_rows_bf16, GDN2_BF16, GDN2_BF16, GDN2_BF16)
NORM_ROWS_OF(norm_rows_any, in->x.dtype, in->z.dtype, y.dtype)

static void norm_forward_f64(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y);

STAGE void stage_norm_forward(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y) {
  const gdn2_dtype dtype = in->x.dtype;
  const int same = y.dtype == dtype && (!in->z.at || in->z.dtype == dtype);
  if (dtype == GDN2_F64)
    norm_forward_f64(rule, in, rows, y);
  else if (same && dtype == GDN2_F32)
    norm_rows_f32(rule, in, rows, y);
  else if (same && dtype == GDN2_BF16)
    norm_rows_bf16(rule, in, rows, y);
  else
    norm_rows_any(rule, in, rows, y);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  gdn2_dtype x, z, dy, dx, dz;
} norm_types;

/* gate(z), and its slope. */
INLINE vf norm_gate_slope(gdn2_norm_gate gate, vf z, vf *slope) {
  vf rest;
  const vf s = gate_sigmoids(z, &rest), curve = v_mul(s, rest);
  *slope = gate == GDN2_NORM_SILU ? v_fma(z, curve, s) : curve;
  return gate == GDN2_NORM_SILU ? v_mul(z, s) : s;
}

/* (L6) and (L8) for one vector; dn goes to the scratch row, and dn n is returned. */
INLINE vf norm_back_vector(norm_types type, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                           const gdn2_norm_grad *grad, vf root, int64_t m, int n) {
  const vf weight = norm_weight(rule, m, n), x = v_mul(norm_load(type.x, &in->x, r, m, n), root);
  vf d = grad->dy.at ? norm_load(type.dy, &grad->dy, r, m, n) : v_zero();
  if (in->z.at) {
    vf slope;
    const vf gate = norm_gate_slope(rule->gate, norm_load(type.z, &in->z, r, m, n), &slope);
    if (grad->dz.at) any_store(type.dz, grad->dz.at, r * grad->dz.step + m, v_mul(v_mul(d, slope), v_mul(x, weight)), n);
    d = v_mul(d, gate);
  }
  float *dweight = grad->dweight, *scratch = grad->scratch;
  if (dweight) v_store_upto(dweight + m, v_fma(d, x, v_load_upto(dweight + m, n)), n);
  const vf dn = v_mul(d, weight);
  v_store_upto(scratch + m, dn, n);
  return v_mul(dn, x);
}

/* (L7). */
INLINE void norm_back_store(norm_types type, const gdn2_norm_in *in, int64_t r, const gdn2_norm_grad *grad, vf root, vf mean,
                            int64_t m, int n) {
  const float *scratch = grad->scratch;
  const vf x = v_mul(norm_load(type.x, &in->x, r, m, n), root);
  any_store(type.dx, grad->dx.at, r * grad->dx.step + m, v_mul(root, v_fnma(x, mean, v_load_upto(scratch + m, n))), n);
}

INLINE void norm_back_row(norm_types type, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                          const gdn2_norm_grad *grad) {
  const int64_t D = rule->D;
  const vf root = v_set1(norm_root(type.x, rule, &in->x, r));
  vf sum[2] = {v_zero(), v_zero()};
  int64_t m = 0;
  for (; m + 2 * VL <= D; m += 2 * VL) {
    UNROLL
    for (int i = 0; i < 2; i++) sum[i] = v_add(sum[i], norm_back_vector(type, rule, in, r, grad, root, m + i * VL, VL));
  }
  for (; m < D; m += VL) sum[0] = v_add(sum[0], norm_back_vector(type, rule, in, r, grad, root, m, norm_left(D, m)));
  if (!grad->dx.at) return;
  const vf mean = v_set1(v_sum(v_add(sum[0], sum[1])) / (float)D);
  for (m = 0; m + VL <= D; m += VL) norm_back_store(type, in, r, grad, root, mean, m, VL);
  if (m < D) norm_back_store(type, in, r, grad, root, mean, m, (int)(D - m));
}

#define NORM_BACK_OF(NAME, XT, ZT, DYT, DXT, DZT)                                                                                \
  STAGE void NAME(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad) {                \
    const norm_types type = {XT, ZT, DYT, DXT, DZT};                                                                             \
    for (int64_t r = 0; r < rows; r++) norm_back_row(type, rule, in, r, grad);                                                   \
  }
NORM_BACK_OF(norm_back_f32, GDN2_F32, GDN2_F32, GDN2_F32, GDN2_F32, GDN2_F32)
NORM_BACK_OF(norm_back_bf16, GDN2_BF16, GDN2_BF16, GDN2_BF16, GDN2_BF16, GDN2_BF16)
NORM_BACK_OF(norm_back_any, in->x.dtype, in->z.dtype, grad->dy.dtype, grad->dx.dtype, grad->dz.dtype)

static void norm_backward_f64(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad);

STAGE void stage_norm_backward(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad) {
  const gdn2_dtype dtype = in->x.dtype;
  const int same = (!in->z.at || in->z.dtype == dtype) && (!grad->dy.at || grad->dy.dtype == dtype) &&
                   (!grad->dx.at || grad->dx.dtype == dtype) && (!grad->dz.at || grad->dz.dtype == dtype);
  if (dtype == GDN2_F64)
    norm_backward_f64(rule, in, rows, grad);
  else if (same && dtype == GDN2_F32)
    norm_back_f32(rule, in, rows, grad);
  else if (same && dtype == GDN2_BF16)
    norm_back_bf16(rule, in, rows, grad);
  else
    norm_back_any(rule, in, rows, grad);
}
