/* ref.h - the oracle: Gated DeltaNet-2 in float64, written to be read. It shares no code with the library.
 *
 * All arrays are contiguous: q k g b dq dk dg db [B][T][H][K]; v w o d_o dv dw [B][T][H][V]; h0 h_final dh_final dh0 [B][H][K][V].
 * Two forms of the same mathematics: token by token (the recurrence, the definition) and by chunks of C tokens (the residual form
 * that the library computes), each with its backward. */
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

/* Outputs may be NULL. Each returns 0, or -1 when memory could not be allocated. Heads run in parallel under OpenMP. */
int ref_forward(const ref_problem *p, double *o, double *h_final);
/* d_o and dh_final may be NULL: zeros. Memory per head: 2 sqrt(T) states. */
int ref_backward(const ref_problem *p, const double *d_o, const double *dh_final, const ref_gradients *grad);

int ref_chunk_forward(const ref_problem *p, int64_t C, double *o, double *h_final);
int ref_chunk_backward(const ref_problem *p, int64_t C, const double *d_o, const double *dh_final, const ref_gradients *grad);
#endif
