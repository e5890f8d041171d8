/* The stages of the exact engine in the table. Forward: scores -> project -> solve -> output and update. Backward: replay ->
 * adjoint solve -> back_project -> gates -> chain; the products between them are matrix stages. t0 is the first token of the
 * chunk in the caller's tensors. */
#ifndef GDN2_STAGE_EXACT_H
#define GDN2_STAGE_EXACT_H
#include "chunk/records.h"
#include "gdn2.h"

typedef struct gdn2_exact_stages {
  /* S [K][Sp] <- the caller's state (zeros if absent), and back. */
  void (*state_load)(gdn2_shape s, gdn2_state from, float *S);
  void (*state_store)(gdn2_shape s, const float *S, gdn2_state_out to);
  /* Forward */
  void (*scores)(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_keys *keys, const gdn2_scores *out);
  void (*project)(gdn2_shape s, int rows, const float *A, const float *S, float *X, gdn2_ahead *ahead);
  int (*project_zeros)(gdn2_shape s, int rows, const gdn2_keys *keys, float *X);
  void (*update)(gdn2_shape s, int rows, const float *A, const float *B, const float *gamma_n, const float *S0, float *S1,
                 gdn2_ahead *ahead);
  void (*solve)(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const gdn2_scores *scores, const float *X, float *R);
  void (*output)(gdn2_shape s, int64_t t0, int n, const gdn2_scores *scores, const float *Xq, const float *R, gdn2_rows_out o);
  /* n rows of value channels from token t0 on, and back. */
  void (*rows_load)(gdn2_shape s, gdn2_rows from, int64_t t0, int n, float *to);
  void (*rows_store)(gdn2_shape s, const float *from, int64_t t0, int n, gdn2_rows_out to);
  /* Zeros in the first n tokens of o. */
  void (*clear)(gdn2_shape s, int64_t n, gdn2_rows_out o);
  /* Backward */
  void (*adjoint_solve)(gdn2_shape s, int n, const gdn2_scores *scores, float *DY);
  void (*back_project)(gdn2_shape s, const gdn2_chunk *c, const float *S0, const float *dS, const gdn2_grad *grad,
                       gdn2_ahead *ahead);
  void (*gates)(gdn2_shape s, const gdn2_head *head, int64_t t0, const gdn2_chunk *chunk, const gdn2_grad *grad,
                const gdn2_head_grad *out);
  void (*values)(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const float *dX, const gdn2_head_grad *out);
  /* Stores the rows of out->wait, those of tokens t0 .. t0+n-1 whatever n is, and adds to the sums. */
  void (*chain)(gdn2_shape s, const gdn2_head *head, int64_t t0, int64_t n, const gdn2_head_grad *out, gdn2_decay_sums sums);
  /* Element c of `to` becomes the sum of parts[i * step + c] over i < count, for c < width; where to.channel is 0 there is one
   * element, the sum over c too. */
  void (*collect)(int64_t count, int64_t step, const double *parts, int width, gdn2_rows_out to);
} gdn2_exact_stages;
#endif
