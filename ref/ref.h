/* ref.h - the oracle: Gated DeltaNet-2 in float64, written to be read. It shares no code with the library.
 *
 * Two forms of the same mathematics (docs/math.md), each with its backward: token by token, which is the recurrence itself and
 * thus the definition, and by chunks of C tokens, the residual form that the library computes. Nothing is clipped, infinities and
 * NaN go where the recurrence sends them, and g = -inf is an exact reset: what lies before it gets gradients of exactly 0.
 *
 * All arrays are contiguous: q k g b dq dk dg db [B][T][H][K]; v w o d_o dv dw [B][T][H][V]; h0 h_final dh_final dh0
 * [B][H][K][V]. B, T, H, K, V >= 0. Heads run in parallel under OpenMP; results do not depend on the number of threads. */
#ifndef GDN2_REF_H
#define GDN2_REF_H
#include <stdint.h>

typedef struct ref_problem {
  int64_t B, T, H, K, V;
  const double *q, *k, *v, *g, *b, *w;
  const double *h0; /* NULL: zeros */
  double scale;
} ref_problem;

/* Where the gradients go; each may be NULL. */
typedef struct ref_gradients {
  double *dq, *dk, *dv, *dg, *db, *dw, *dh0;
} ref_gradients;

/* Each function returns 0, or -1 when memory could not be allocated; the outputs are then incomplete. Outputs may be NULL. */

int ref_forward(const ref_problem *p, double *o, double *h_final);
/* d_o and dh_final may be NULL: zeros. Memory per thread: 2 sqrt(T) states. */
int ref_backward(const ref_problem *p, const double *d_o, const double *dh_final, const ref_gradients *grad);

/* The same by chunks of C >= 1 tokens; T need not be a multiple of C. Memory of the backward per thread: T / C states. */
int ref_chunk_forward(const ref_problem *p, int64_t C, double *o, double *h_final);
int ref_chunk_backward(const ref_problem *p, int64_t C, const double *d_o, const double *dh_final, const ref_gradients *grad);
#endif
