/* The forward's two products with the state, which fetch the rows of the next chunk while they run.
 *
 *     X = [-E; Qg] S0
 *     S1 = diag(gamma_n) S0 + Ktail^T R                              (19)
 *
 * Cost: 3 K V multiply-adds per token, at the peak. */
#include "stage/exact.h"

STAGE void stage_project(gdn2_shape s, int rows, const float *EQ, const float *S0, float *X, gdn2_ahead *ahead) {
  product(PRODUCT_SET, ahead, rows, s.Vp, s.K, EQ, s.Kp, 1, S0, s.Vp, X, X, s.Vp, X, s.Vp);
}

STAGE void stage_update(gdn2_shape s, const gdn2_chunk *c, const float *S0, float *S1, gdn2_ahead *ahead) {
  product(PRODUCT_DECAY, ahead, s.K, s.Vp, c->n, c->scores.Ktail, 1, s.Kp, c->R, s.Vp, c->keys.gamma_n, S0, s.Vp, S1, s.Vp);
}
