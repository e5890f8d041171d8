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

/* `count` vectors to an output: two at a time, or one with n numbers. */
INLINE void norm_store(gdn2_dtype dtype, int stream, const gdn2_rows_out *rows, int64_t r, int64_t m, int count, const vf *x,
                       int n) {
  const int64_t at = r * rows->step + m;
  if (count == 1) any_store(dtype, rows->at, at, x[0], n);
  UNROLL
  for (int i = 0; i + 1 < count; i += 2) any_store_two(dtype, stream, rows->at, at + i * VL, x[i], x[i + 1]);
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

/* y of `count` vectors of a row from channel m on; n: numbers in the last. */
INLINE void norm_vectors(gdn2_dtype xt, gdn2_dtype zt, gdn2_dtype yt, const gdn2_norm_rule *rule, const gdn2_norm_in *in,
                         int64_t r, vf root, gdn2_rows_out y, int stream, int64_t m, int count, int n) {
  vf out[GATE_MOST], z[GATE_MOST], s[GATE_MOST];
  EACH_ABREAST(out[i] = v_mul(v_mul(norm_load(xt, &in->x, r, m + i * VL, n), root), norm_weight(rule, m + i * VL, n)));
  if (in->z.at) {
    EACH_ABREAST(z[i] = norm_load(zt, &in->z, r, m + i * VL, n));
    gate_sigmoid(yt, count, z, s);
    EACH_ABREAST(out[i] = v_mul(out[i], rule->gate == GDN2_NORM_SILU ? v_mul(z[i], s[i]) : s[i]));
  }
  norm_store(yt, stream, &y, r, m, count, out, n);
}

INLINE void norm_row(gdn2_dtype xt, gdn2_dtype zt, gdn2_dtype yt, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                     gdn2_rows_out y, int stream) {
  const vf root = v_set1(norm_root(xt, rule, &in->x, r));
  int64_t m = 0;
  for (; m + GATE_MOST * VL <= rule->D; m += GATE_MOST * VL)
    norm_vectors(xt, zt, yt, rule, in, r, root, y, stream, m, GATE_MOST, VL);
  for (; m < rule->D; m += VL) norm_vectors(xt, zt, yt, rule, in, r, root, y, stream, m, 1, norm_left(rule->D, m));
}

#define NORM_ROWS_OF(NAME, XT, ZT, YT)                                                                                           \
  STAGE void NAME(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y) {                           \
    const int stream = rule->stream && rows_streamable(&y);                                                                      \
    for (int64_t r = 0; r < rows; r++) norm_row(XT, ZT, YT, rule, in, r, y, stream);                                             \
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
  int stream_dx, stream_dz;
} norm_types;

/* (L6) and (L8) for `count` vectors; dn goes to the scratch row, and the sum of dn n is added to. */
INLINE vf norm_back_vectors(norm_types type, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                            const gdn2_norm_grad *grad, vf root, vf sum, int64_t m, int count, int n) {
  vf x[GATE_MOST], d[GATE_MOST], z[GATE_MOST], s[GATE_MOST], rest[GATE_MOST];
  float *dweight = grad->dweight, *scratch = grad->scratch;
  EACH_ABREAST(x[i] = v_mul(norm_load(type.x, &in->x, r, m + i * VL, n), root));
  EACH_ABREAST(d[i] = grad->dy.at ? norm_load(type.dy, &grad->dy, r, m + i * VL, n) : v_zero());
  if (in->z.at) {
    const int silu = rule->gate == GDN2_NORM_SILU;
    EACH_ABREAST(z[i] = norm_load(type.z, &in->z, r, m + i * VL, n));
    gate_sigmoids(type.z, count, z, s, rest);
    EACH_ABREAST(rest[i] = v_mul(s[i], rest[i]));
    EACH_ABREAST(rest[i] = silu ? v_fma(z[i], rest[i], s[i]) : rest[i]); /* the slope */
    EACH_ABREAST(rest[i] = v_mul(v_mul(d[i], rest[i]), v_mul(x[i], norm_weight(rule, m + i * VL, n))));
    if (grad->dz.at) norm_store(type.dz, type.stream_dz, &grad->dz, r, m, count, rest, n);
    EACH_ABREAST(d[i] = v_mul(d[i], silu ? v_mul(z[i], s[i]) : s[i]));
  }
  if (dweight) {
    EACH_ABREAST(v_store_upto(dweight + m + i * VL, v_fma(d[i], x[i], v_load_upto(dweight + m + i * VL, n)), n));
  }
  EACH_ABREAST(d[i] = v_mul(d[i], norm_weight(rule, m + i * VL, n)));
  EACH_ABREAST(v_store_upto(scratch + m + i * VL, d[i], n));
  EACH_ABREAST(sum = v_fma(d[i], x[i], sum));
  return sum;
}

/* (L7). */
INLINE void norm_back_store(norm_types type, const gdn2_norm_in *in, int64_t r, const gdn2_norm_grad *grad, vf root, vf mean,
                            int64_t m, int count, int n) {
  const float *scratch = grad->scratch;
  vf x[GATE_MOST];
  EACH_ABREAST(x[i] = v_mul(norm_load(type.x, &in->x, r, m + i * VL, n), root));
  EACH_ABREAST(x[i] = v_mul(root, v_fnma(x[i], mean, v_load_upto(scratch + m + i * VL, n))));
  norm_store(type.dx, type.stream_dx, &grad->dx, r, m, count, x, n);
}

INLINE void norm_back_row(norm_types type, const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t r,
                          const gdn2_norm_grad *grad) {
  const int64_t D = rule->D;
  const vf root = v_set1(norm_root(type.x, rule, &in->x, r));
  vf sum = v_zero();
  int64_t m = 0;
  for (; m + GATE_MOST * VL <= D; m += GATE_MOST * VL)
    sum = norm_back_vectors(type, rule, in, r, grad, root, sum, m, GATE_MOST, VL);
  for (; m < D; m += VL) sum = norm_back_vectors(type, rule, in, r, grad, root, sum, m, 1, norm_left(D, m));
  if (!grad->dx.at) return;
  const vf mean = v_set1(v_sum(sum) / (float)D);
  for (m = 0; m + GATE_MOST * VL <= D; m += GATE_MOST * VL) norm_back_store(type, in, r, grad, root, mean, m, GATE_MOST, VL);
  for (; m < D; m += VL) norm_back_store(type, in, r, grad, root, mean, m, 1, norm_left(D, m));
}

#define NORM_BACK_OF(NAME, XT, ZT, DYT, DXT, DZT)                                                                                \
  STAGE void NAME(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad) {                \
    const norm_types type = {                                                                                                    \
        XT, ZT, DYT, DXT, DZT, rule->stream && rows_streamable(&grad->dx), rule->stream && rows_streamable(&grad->dz)};          \
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

STAGE void stage_norm_finish(void) { v_stream_end(); }
