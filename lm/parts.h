/* parts.h - the parts a layer is made of, forward. Each stands in a file of its own, where its backward belongs beside it.
 *
 * Conventions: outputs come first; every array is contiguous float32 in the order its shape is written, innermost last; an output
 * may not overlap an input unless it is said. What a backward needs again (rstd) is an output too. Sums over channels are
 * accumulated in float64: their error is then that of one rounding, whatever the width.
 *
 *     T  tokens     D  channels of the model (d_model)     H  heads     K  channels of a head     W  width of the convolution
 */
#ifndef GDN2_LM_PARTS_H
#define GDN2_LM_PARTS_H
#include <stdint.h>

/* out[T][D] = weight[byte_t][D]; weight[256][D]. */
void lm_embedding_forward(float *out, const uint8_t *bytes, const float *weight, int64_t T, int64_t D);

/* out[T][D] = x rstd weight, rstd[T] = (mean over D of x^2 + eps)^-1/2; x[T][D], weight[D]. */
void lm_rmsnorm_forward(float *out, float *rstd, const float *x, const float *weight, int64_t T, int64_t D, double eps);

/* out[T][N] = x[T][D] weight[N][D]^T, by CBLAS. T, D and N fit an int. */
void lm_linear_forward(float *out, const float *x, const float *weight, int64_t T, int64_t D, int64_t N);

/* Causal depthwise convolution: out[t][d] = sum over j < W of weight[d][j] x[t - (W-1) + j][d], with x = 0 before the first
 * token. out, x [T][D], weight[D][W]: weight[d][W-1] meets the token itself. */
void lm_conv_forward(float *out, const float *x, const float *weight, int64_t T, int64_t D, int64_t W);

/* out[n] = x sigmoid(x). out may be x. */
void lm_silu_forward(float *out, const float *x, int64_t n);

/* out[n] = 1 / (1 + exp(-x)). out may be x. */
void lm_sigmoid_forward(float *out, const float *x, int64_t n);

/* out[R][K] = x rstd, rstd[R] = (sum over K of x^2 + eps)^-1/2; x[R][K]. A zero row gives a zero row. */
void lm_l2norm_forward(float *out, float *rstd, const float *x, int64_t R, int64_t K, double eps);

/* log(1 + exp(x)), without overflow for large x. */
double lm_softplus(double x);

/* g[T][H][K] = -exp(A_log) softplus(f + dt_bias); f[T][H][K], A_log[H], dt_bias[H][K]. Natural logarithm of the decay.
 * A_log = -inf gives 0 for every finite f; no NaN arises from inf * 0. */
void lm_decay_forward(float *g, const float *f, const float *A_log, const float *dt_bias, int64_t T, int64_t H, int64_t K);
#endif
