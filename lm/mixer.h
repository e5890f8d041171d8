/* mixer.h - the parts of the mixer beside the rule. */
#ifndef GDN2_LM_MIXER_H
#define GDN2_LM_MIXER_H
#include "lm/real.h"
#include <stdint.h>

/* c[B][T][C] = silu(causal depthwise convolution of x, rows of ldx numbers, with w[C][W]). state[B][W-1][C]: the rows before,
 * carried on; NULL: zeros. */
void lm_conv_forward(real *c, const real *x, int64_t ldx, const real *w, real *state, int64_t B, int64_t T, int64_t C, int64_t W);
/* dx has rows of ldx numbers too; dw is added to; dc is used up. */
void lm_conv_backward(real *dx, real *dw, real *dc, const real *x, int64_t ldx, const real *w, int64_t B, int64_t T, int64_t C,
                      int64_t W);

/* y[R][K] = RMSNorm(o) * w * act(z), act silu or sigmoid. */
void lm_gated_norm_forward(real *y, const real *o, const real *z, const real *w, int sigmoid, int64_t R, int64_t K);
/* d_o and dz are written, dw is added to, y is used as room. */
void lm_gated_norm_backward(real *d_o, real *dz, real *dw, real *y, const real *dy, const real *o, const real *z, const real *w,
                            int sigmoid, int64_t R, int64_t K);

#endif
