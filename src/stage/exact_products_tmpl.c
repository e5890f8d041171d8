/* The forward's two products with the state, which fetch the rows of the next chunk while they run.
 *
 *     X = [-E; Qg] S0
 *     S1 = diag(gamma_n) S0 + Ktail^T R                              (19)
 *
 * Cost: 3 K V multiply-adds per token, at the peak. */
#include "stage/exact.h"
#include <string.h>

STAGE void stage_project(gdn2_shape s, int rows, const float *EQ, const float *S0, float *X, gdn2_ahead *ahead) {
  product(PRODUCT_SET, ahead, rows, s.Vp, s.K, EQ, s.Kp, 1, S0, s.Vp, X, X, s.Vp, X, s.Vp);
}

/* X for S0 = 0, and 1; or 0 and nothing if a number that 0 is multiplied by is not finite, for then X or S1 has a NaN. */
STAGE int stage_project_zeros(gdn2_shape s, int rows, const gdn2_keys *keys, float *X) {
  vf products = v_zero();
  for (int x = 0; x < rows * s.Kp; x += VL) products = v_fma(v_load(keys->EQ + x), v_zero(), products);
  for (int x = 0; x < s.Kp; x += VL) products = v_fma(v_load(keys->gamma_n + x), v_zero(), products);
  const int finite = v_sum(products) == 0.0f;
  if (finite) memset(X, 0, sizeof(float) * (size_t)rows * (size_t)s.Vp);
  return finite;
}

/* S0 == NULL: zeros, as stage_project_zeros found them to be enough. */
STAGE void stage_update(gdn2_shape s, const gdn2_chunk *c, const float *S0, float *S1, gdn2_ahead *ahead) {
  const float *Ktail = c->scores.Ktail, *gamma_n = c->keys.gamma_n;
  if (S0)
    product(PRODUCT_DECAY, ahead, s.K, s.Vp, c->n, Ktail, 1, s.Kp, c->R, s.Vp, gamma_n, S0, s.Vp, S1, s.Vp);
  else
    product(PRODUCT_SET, ahead, s.K, s.Vp, c->n, Ktail, 1, s.Kp, c->R, s.Vp, gamma_n, S1, s.Vp, S1, s.Vp);
}

/* The backward's products with S0^T and dS1^T.
 *
 *     dX S0^T, dO S0^T                                               (23)
 *     dKt = R dS1^T                                                  (24)
 *     through = gamma_n rowsum(dS1 S0)                               (28)
 *
 * The state has its values along the vector; these want its keys there. GDN2_PANEL keys at a time are transposed and used while
 * they are in the first-level cache: a transposed copy of the whole state would be written and read through the second. Cost: 3 K
 * V multiply-adds per token, K V a chunk for (28). */
INLINE void through_panel(gdn2_shape s, const float *St, const float *dSt, const float *gamma_n, float *out) {
  vf sum[GDN2_PANEL / VL];
  UNROLL
  for (int x = 0; x < GDN2_PANEL / VL; x++) sum[x] = v_zero();
  for (int c = 0; c < s.V; c++) {
    UNROLL
    for (int x = 0; x < GDN2_PANEL / VL; x++) {
      const ptrdiff_t at = (ptrdiff_t)c * GDN2_PANEL + x * VL;
      sum[x] = v_fma(v_load(St + at), v_load(dSt + at), sum[x]);
    }
  }
  UNROLL
  for (int x = 0; x < GDN2_PANEL / VL; x++) v_store(out + x * VL, v_mul(v_load(gamma_n + x * VL), sum[x]));
}

STAGE void stage_back_project(gdn2_shape s, const gdn2_chunk *c, const float *S0, const float *dS, gdn2_grad *grad) {
  for (int k = 0; k < s.Kp; k += GDN2_PANEL) {
    const int width = s.K - k < GDN2_PANEL ? s.K - k : GDN2_PANEL;
    transpose(width, s.V, S0 + (ptrdiff_t)k * s.Vp, s.Vp, grad->panel[0], GDN2_PANEL);
    transpose(width, s.V, dS + (ptrdiff_t)k * s.Vp, s.Vp, grad->panel[1], GDN2_PANEL);
    mul_set(2 * c->n, width, s.V, grad->DY, s.Vp, 1, grad->panel[0], GDN2_PANEL, grad->DYS + k, s.Kp);
    mul_set(c->n, width, s.V, c->R, s.Vp, 1, grad->panel[1], GDN2_PANEL, grad->dKt + k, s.Kp);
    through_panel(s, grad->panel[0], grad->panel[1], c->keys.gamma_n + k, grad->through + k);
  }
}
