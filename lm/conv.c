#include "lm/mixer.h"
#include <string.h>

/* u_t = sum over j of w_j x_{t-(W-1)+j}, c = silu(u): tap W-1 is the token itself. Rows before the first are those of the state,
 * or zeros. */
static real tap_sum(const real *x, int64_t ldx, const real *w, const real *before, int64_t t, int64_t i, int64_t C, int64_t W) {
  real sum = 0;
  for (int64_t j = 0; j < W; j++) {
    const int64_t from = t - (W - 1) + j;
    if (from >= 0)
      sum += w[i * W + j] * x[from * ldx + i];
    else if (before)
      sum += w[i * W + j] * before[(from + W - 1) * C + i];
  }
  return sum;
}

/* The last W-1 rows, of those before and those of this pass. */
static void carry(real *state, const real *x, int64_t ldx, int64_t T, int64_t C, int64_t W) {
  for (int64_t j = 0; j < W - 1; j++) {
    const int64_t from = T - (W - 1) + j;
    memmove(state + j * C, from >= 0 ? x + from * ldx : state + (j + T) * C, (size_t)C * sizeof *state);
  }
}

void lm_conv_forward(real *c, const real *x, int64_t ldx, const real *w, real *state, int64_t B, int64_t T, int64_t C,
                     int64_t W) {
  LM_PARALLEL_FOR
  for (int64_t m = 0; m < B * T; m++) {
    const int64_t b = m / T, t = m % T;
    const real *before = state ? state + b * (W - 1) * C : NULL;
    for (int64_t i = 0; i < C; i++) {
      const real u = tap_sum(x + b * T * ldx, ldx, w, before, t, i, C, W);
      c[m * C + i] = u * lm_sigmoid(u);
    }
  }
  for (int64_t b = 0; state && b < B; b++) carry(state + b * (W - 1) * C, x + b * T * ldx, ldx, T, C, W);
}

/* du = dc silu'(u); dx_t = sum over j of w_j du_{t+(W-1)-j}; dw_j = sum over t of du_t x_{t-(W-1)+j}. */
void lm_conv_backward(real *dx, real *dw, real *dc, const real *x, int64_t ldx, const real *w, int64_t B, int64_t T, int64_t C,
                      int64_t W) {
  LM_PARALLEL_FOR
  for (int64_t m = 0; m < B * T; m++)
    for (int64_t i = 0; i < C; i++) {
      const real u = tap_sum(x + m / T * T * ldx, ldx, w, NULL, m % T, i, C, W), s = lm_sigmoid(u);
      dc[m * C + i] *= s * (1 + u * (1 - s));
    }
  LM_PARALLEL_FOR
  for (int64_t m = 0; m < B * T; m++)
    for (int64_t i = 0; i < C; i++) {
      real sum = 0;
      for (int64_t j = W - 1; j >= 0 && m % T + (W - 1) - j < T; j--) sum += w[i * W + j] * dc[(m + (W - 1) - j) * C + i];
      dx[m * ldx + i] = sum;
    }
  const int64_t block = 32, blocks = (C + block - 1) / block;
  LM_PARALLEL_FOR
  for (int64_t n = 0; n < blocks; n++)
    for (int64_t m = 0; m < B * T; m++)
      for (int64_t i = n * block; i < (n + 1) * block && i < C; i++)
        for (int64_t j = m % T < W - 1 ? W - 1 - m % T : 0; j < W; j++)
          dw[i * W + j] += dc[m * C + i] * x[(m - (W - 1) + j) * ldx + i];
}
