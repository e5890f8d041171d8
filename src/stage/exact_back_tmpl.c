/* The backward's products with S0^T and dS1^T.
 *
 *     dX S0^T, dO S0^T                                               (23)
 *     dKt = R dS1^T                                                  (24)
 *     through = gamma_n rowsum(dS1 S0)                               (28)
 *
 * The state has its values along the vector; the results want their keys there. So the other factor and the result are
 * transposed, which are a quarter of a state each, and a product reads the state number by number, as it reads any left factor.
 * Some keys at a time: the result is transposed while it is in the first-level cache. Cost: 3 K V multiply-adds per token, at the
 * peak, and K V a chunk for (28). */
#include "stage/exact.h"

/* through [rows]: eight rows at a time; what is left over, one by one. */
INLINE void through_rows(gdn2_shape s, int rows, const float *S, const float *dS, const float *gamma_n, float *out) {
  memset(out, 0, (size_t)rows * sizeof *out);
  int k = 0;
  for (; k + 8 <= rows; k += 8) {
    vf sum[8];
    UNROLL
    for (int r = 0; r < 8; r++) sum[r] = v_zero();
    for (int m = 0; m < s.Vp; m += VL) {
      UNROLL
      for (int r = 0; r < 8; r++) {
        const ptrdiff_t at = (ptrdiff_t)(k + r) * s.Sp + m;
        sum[r] = v_fma(v_load(S + at), v_load(dS + at), sum[r]);
      }
    }
    v_add_sums(sum, out + k, out + k + 4);
  }
  for (; k < rows; k++) {
    vf sum = v_zero();
    for (int m = 0; m < s.Vp; m += VL) {
      const ptrdiff_t at = (ptrdiff_t)k * s.Sp + m;
      sum = v_fma(v_load(S + at), v_load(dS + at), sum);
    }
    out[k] = v_sum(sum);
  }
  for (k = 0; k < rows; k += VL)
    v_store_upto(out + k, v_mul(v_load_upto(gamma_n + k, rows - k), v_load_upto(out + k, rows - k)), rows - k);
}

/* to [columns][Kp], from key k on: (S B)^T of `width` rows of S and B [V][columns], whose rows are ldb apart. */
INLINE void product_back(gdn2_shape s, gdn2_ahead *ahead, int width, int columns, const float *S, const float *B, ptrdiff_t ldb,
                         float *room, float *to) {
  product(PRODUCT_SET, ahead, width, columns, s.V, S, s.Sp, 1, B, ldb, room, room, ldb, room, ldb);
  transpose(width, columns, room, ldb, to, s.Kp);
}

/* n is a constant for a full chunk. */
INLINE void back_panels(gdn2_shape s, int n, const float *gamma_n, const float *S0, const float *dS, gdn2_grad grad,
                        gdn2_ahead *ahead) {
  for (int k = 0; k < s.K; k += GDN2_PANEL) {
    const int width = s.K - k < GDN2_PANEL ? s.K - k : GDN2_PANEL;
    const ptrdiff_t at = (ptrdiff_t)k * s.Sp;
    product_back(s, ahead, width, 2 * n, S0 + at, grad.DYt, 2 * GDN2_CHUNK, grad.room, grad.DYS + k);
    product_back(s, ahead, width, n, dS + at, grad.Rt, GDN2_CHUNK, grad.room, grad.dKt + k);
    through_rows(s, width, S0 + at, dS + at, gamma_n + k, grad.through + k);
  }
}

STAGE void stage_back_project(gdn2_shape s, const gdn2_chunk *c, const float *S0, const float *dS, const gdn2_grad *grad,
                              gdn2_ahead *ahead) {
  transpose(2 * c->n, s.V, grad->DY, s.Vp, grad->DYt, 2 * GDN2_CHUNK);
  if (c->n == GDN2_CHUNK)
    back_panels(s, GDN2_CHUNK, c->keys.gamma_n, S0, dS, *grad, ahead);
  else
    back_panels(s, c->n, c->keys.gamma_n, S0, dS, *grad, ahead);
}
