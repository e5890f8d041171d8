/* head.h - what token.c and chunk.c share: where a head's tokens lie, one allocation, a dot product, the loop over heads. */
#ifndef GDN2_REF_HEAD_H
#define GDN2_REF_HEAD_H
#include <stdint.h>
#include <stdlib.h>
#include "ref.h"

/* A row is one head of one batch row: batch * H + head. The index of its token t among all tokens [B][T][H]. */
static inline int64_t token_index(const ref_problem *p, int64_t row, int64_t t) {
  return (row / p->H * p->T + t) * p->H + row % p->H;
}

/* count doubles, or NULL. The limit keeps the product below PTRDIFF_MAX; a count of more than that arrives as such a number or
 * as infinity, which is why it is a double. */
static inline double *new_doubles(double count) {
  return count < (double)(PTRDIFF_MAX / 16) ? malloc(((size_t)count + 1) * sizeof(double)) : NULL;
}

/* Eight sums side by side, so that the compiler may use vectors without reordering a sum by itself. */
static inline double dot(int64_t n, const double *x, const double *y) {
  double lane[8] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int l = 0; l < 8; l++) lane[l] += x[i + l] * y[i + l];
  for (; i < n; i++) sum += x[i] * y[i];
  for (int l = 0; l < 8; l++) sum += lane[l];
  return sum;
}

/* Above a loop over rows that sets `failed`. Small problems are not worth the threads. */
#ifdef _OPENMP
#define ROWS_IN_PARALLEL _Pragma("omp parallel for schedule(dynamic) reduction(| : failed) if (p->T * p->K * p->V > 100000)")
#else
#define ROWS_IN_PARALLEL
#endif
#endif
