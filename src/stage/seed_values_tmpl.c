/* Elementwise arithmetic of the seed's pipeline.
 *
 *     clean(x) = min(max(x, -clip), clip), 0 where x is NaN          at every kernel boundary
 *     gc_i     = sum_{j <= i} g_j                                    inside a chunk
 *     grow = e^gc   rest = e^(gc_last - gc)   kb = b k e^gc   kg = k e^(gc_last - gc)   qg = q e^gc
 *
 * The seed sums and masks by products with triangles of ones and zeros. 0 x infinity is NaN, so there a value that is not finite
 * reaches rows beyond the triangle; the sums here add those zero products to be the same. Cost: linear in the numbers touched,
 * small beside the pairs.
 */
#include "stage/seed.h"
#include <float.h>

INLINE int seed_left(ptrdiff_t n, ptrdiff_t at) { return n - at >= VL ? VL : (int)(n - at); }

INLINE vf seed_clean(vf x, vf clip) { return v_min(clip, v_max(v_sub(v_zero(), clip), v_nan_to_zero(x))); }

STAGE int64_t seed_sanitize(ptrdiff_t n, float clip, const float *x, float *y) {
  const vf bound = v_set1(clip);
  int64_t kept = 0;
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    const vf in = v_load_upto(x + i, left);
    /* Lanes past the end hold 0, which is kept whatever the clip. */
    kept += (int64_t)v_sum(v_keep(v_le(v_abs(in), bound), v_set1(1.0f))) - (VL - left);
    v_store_upto(y + i, seed_clean(in, bound), left);
  }
  return n - kept;
}

/* The same on the first n columns of a matrix, in place. */
INLINE int64_t seed_sanitize_rows(int rows, int n, float clip, float *x, ptrdiff_t ldx) {
  int64_t replaced = 0;
  for (int i = 0; i < rows; i++) replaced += seed_sanitize(n, clip, x + i * ldx, x + i * ldx);
  return replaced;
}

/* y = a + b */
INLINE void seed_sum(ptrdiff_t n, const float *a, const float *b, float *y) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    v_store_upto(y + i, v_add(v_load_upto(a + i, left), v_load_upto(b + i, left)), left);
  }
}

STAGE void seed_inspect(ptrdiff_t n, const float *x, int64_t *nonfinite, float *max_abs) {
  vf most = v_zero();
  int64_t finite = 0;
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    const vf size = v_abs(v_load_upto(x + i, left));
    const vm is_finite = v_le(size, v_set1(FLT_MAX));
    finite += (int64_t)v_sum(v_keep(is_finite, v_set1(1.0f))) - (VL - left);
    most = v_max(most, v_keep(is_finite, size));
  }
  float lanes[VL];
  v_store(lanes, most);
  for (int lane = 0; lane < VL; lane++) *max_abs = lanes[lane] > *max_abs ? lanes[lane] : *max_abs;
  *nonfinite += n - finite;
}

INLINE int seed_all_finite(ptrdiff_t n, const float *x) {
  int64_t nonfinite = 0;
  float max_abs = 0;
  seed_inspect(n, x, &nonfinite, &max_abs);
  return nonfinite == 0;
}

INLINE void seed_copy(ptrdiff_t n, const float *x, float *y) {
  for (ptrdiff_t i = 0; i < n; i += VL) v_store_upto(y + i, v_load_upto(x + i, seed_left(n, i)), seed_left(n, i));
}

/* y = a b */
INLINE void seed_product(ptrdiff_t n, const float *a, const float *b, float *y) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    v_store_upto(y + i, v_mul(v_load_upto(a + i, left), v_load_upto(b + i, left)), left);
  }
}

/* y = factor x */
INLINE void seed_scaled(ptrdiff_t n, float factor, const float *x, float *y) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    v_store_upto(y + i, v_mul(v_set1(factor), v_load_upto(x + i, left)), left);
  }
}

/* y = e^x */
INLINE void seed_exp(ptrdiff_t n, const float *x, float *y) {
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    v_store_upto(y + i, v_exp(v_load_upto(x + i, left)), left);
  }
}

/* Column by column: first the zero products of the rows that come after in the order of summation, then the sums themselves. */
INLINE void seed_triangle_sums(int rows, int n, int backward, int as_product, const float *x, float *y) {
  const ptrdiff_t step = backward ? -n : n;
  const ptrdiff_t first = backward ? (ptrdiff_t)(rows - 1) * n : 0;
  for (int d = 0; d < n; d += VL) {
    const int left = seed_left(n, d);
    const float *from = x + first + d;
    float *to = y + first + d;
    vf zero = v_zero(), sum = v_zero();
    for (int i = rows - 1; i >= 0; i--) {
      v_store_upto(to + i * step, zero, left);
      if (as_product) zero = v_fma(v_zero(), v_load_upto(from + i * step, left), zero);
    }
    for (int i = 0; i < rows; i++) {
      sum = v_add(sum, v_load_upto(from + i * step, left));
      v_store_upto(to + i * step, v_add(sum, v_load_upto(to + i * step, left)), left);
    }
  }
}

STAGE void seed_sums(int rows, int n, const float *x, float *y) { seed_triangle_sums(rows, n, 0, 1, x, y); }
STAGE void seed_reverse_sums(int rows, int n, const float *x, float *y) { seed_triangle_sums(rows, n, 1, 1, x, y); }
/* A running sum, as the chunked reference has it: what is not finite reaches later rows only. */
STAGE void seed_running_sums(int rows, int n, const float *x, float *y) { seed_triangle_sums(rows, n, 0, 0, x, y); }

/* From s->q, k, bk and gc: s->grow, rest, kb, kg, qg. */
INLINE void seed_decays(const gdn2_seed_dims *d, const float *q, const float *k, const float *gc, gdn2_seed_scratch *s) {
  const float *last = gc + (ptrdiff_t)(d->C - 1) * d->K;
  for (int i = 0; i < d->C; i++)
    for (int c = 0; c < d->K; c += VL) {
      const int left = seed_left(d->K, c);
      const ptrdiff_t at = (ptrdiff_t)i * d->K + c;
      const vf sum = v_load_upto(gc + at, left);
      const vf grow = v_exp(sum), rest = v_exp(v_sub(v_load_upto(last + c, left), sum));
      v_store_upto(s->grow + at, grow, left);
      v_store_upto(s->rest + at, rest, left);
      v_store_upto(s->kb + at, v_mul(v_load_upto(s->bk + at, left), grow), left);
      v_store_upto(s->kg + at, v_mul(v_load_upto(k + at, left), rest), left);
      v_store_upto(s->qg + at, v_mul(v_load_upto(q + at, left), grow), left);
    }
}

/* Lower triangle of the C x C matrix X (with the diagonal, or strictly below it): clean(factor x); zeros above. */
INLINE void seed_lower(const gdn2_seed_dims *d, int with_diagonal, float factor, float *X) {
  for (int i = 0; i < d->C; i++) {
    float *row = X + (ptrdiff_t)i * d->C;
    const int count = i + with_diagonal;
    seed_scaled(count, factor, row, row);
    seed_sanitize(count, d->clip, row, row);
    for (int j = count; j < d->C; j++) row[j] = 0.0f;
  }
}
