/* norm.c - RMS norms by the library: over the width of the model, and gated over a head. */
#include "lm/model.h"

/* Rows of D numbers, contiguous. */
static gdn2_norm_problem problem_of(const lm_model *m, const lm_norm *n) {
  const gdn2_norm_gate gate = m->params.config.gate == LM_GATE_SIGMOID ? GDN2_NORM_SIGMOID : GDN2_NORM_SILU;
  gdn2_norm_problem p = {.B = 1, .T = n->rows, .H = 1, .D = n->D, .gate = gate, .eps = LM_NORM_EPS};
  p.x = (gdn2_input){n->x, LM_DTYPE, {0}};
  p.weight = (gdn2_input){n->w, LM_DTYPE, {0}};
  if (n->z) p.z = (gdn2_input){n->z, LM_DTYPE, {0}};
  return p;
}

void lm_norm_forward(lm_model *m, real *y, const lm_norm *n) {
  gdn2_norm_forward_args args = {.struct_size = sizeof args, .problem = problem_of(m, n), .y = {.data = y, .dtype = LM_DTYPE}};
  lm_reserve(m, 0, &args.exec);
  lm_note(m, gdn2_norm_forward(&args));
}

void lm_norm_backward(lm_model *m, real *dx, real *dz, real *dw, const real *dy, const lm_norm *n) {
  gdn2_norm_backward_args args = {.struct_size = sizeof args,
                                  .problem = problem_of(m, n),
                                  .dy = {.data = dy, .dtype = LM_DTYPE},
                                  .dx = {.data = dx, .dtype = LM_DTYPE},
                                  .dz = {.data = dz, .dtype = LM_DTYPE},
                                  .dweight = {.data = m->scratch.sums, .dtype = LM_DTYPE}};
  size_t bytes = 0;
  lm_note(m, gdn2_norm_backward_workspace(&args, &bytes));
  lm_reserve(m, bytes, &args.exec);
  lm_note(m, gdn2_norm_backward(&args));
  for (int64_t d = 0; d < n->D; d++) dw[d] += m->scratch.sums[d];
}

void lm_norm_residual(lm_model *m, real *dx, real *dw, real *dy, const lm_norm *n) {
  const int64_t count = n->rows * n->D;
  lm_norm_backward(m, dy, NULL, dw, dy, n);
  LM_PARALLEL_FOR(count)
  for (int64_t i = 0; i < count; i++) dx[i] += dy[i];
}
