/* bench_run.c - the calls of the library that are measured. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "engine.h"
#include "bench.h"
#include "pages.h"

/* ---- The exact rule ------------------------------------------------------------------------------------------------------- */

static gdn2_input input_of(const bench_tensors *t, const bench_case *c, input_id id) {
  gdn2_dtype dtype = bench_input_dtype(c, id);
  const inputs plain = inputs_plain(c->rule);
  int per_head = t->x[id] && !inputs_axes(&plain, id)[3];
  return per_head ? gdn2_per_head(t->x[id], dtype, c->n.T, c->HV) : (gdn2_input){.data = t->x[id], .dtype = dtype};
}

static gdn2_output output_of(const bench_tensors *t, const bench_case *c, output_id id) {
  gdn2_dtype dtype = bench_output_dtype(c, id);
  const inputs plain = inputs_plain(c->rule);
  int per_head = t->y[id] && !outputs_axes(&plain, id)[3];
  return per_head ? gdn2_per_head_out(t->y[id], dtype, c->n.T, c->HV) : (gdn2_output){.data = t->y[id], .dtype = dtype};
}

static gdn2_problem problem_of(const bench_tensors *t, const bench_case *c) {
  int beta = t->x[IN_BETA] != NULL;
  return (gdn2_problem){.B = c->n.B,
                        .T = c->n.T,
                        .H = c->n.H,
                        .HV = c->HV,
                        .K = c->n.K,
                        .V = c->n.V,
                        .q = input_of(t, c, IN_Q),
                        .k = input_of(t, c, IN_K),
                        .v = input_of(t, c, IN_V),
                        .g = input_of(t, c, IN_G),
                        .b = input_of(t, c, beta ? IN_BETA : IN_B),
                        .w = input_of(t, c, beta ? IN_BETA : IN_W)};
}

/* The workspace is the caller's and made once: in a loop of calls nobody allocates. */
int bench_workspace(gdn2_exec *exec, size_t bytes) {
  if (exec->workspace) return DONE;
  exec->workspace_bytes = bytes;
  exec->workspace = pages_allocate(bytes);
  return exec->workspace ? DONE : cli_failed("not enough memory for the workspace");
}

/* Of a training step; in float64 there is none. */
static float *residual_of(const bench_tensors *t, const bench_case *c) {
  return c->op == TRAIN && c->dtype == GDN2_F32 ? t->y[OUT_DV] : t->residual;
}

static int run_forward(bench_tensors *t, const bench_case *c) {
  gdn2_forward_args args = {.struct_size = sizeof args, .problem = problem_of(t, c), .exec = t->forward, .profile = t->profile};
  args.o = output_of(t, c, OUT_O);
  args.h_final = output_of(t, c, OUT_H_FINAL);
  args.snapshots.data = t->snapshots;
  args.snapshot_every = t->snapshots ? BENCH_SNAPSHOT_EVERY : 0;
  args.residual.data = residual_of(t, c);
  size_t bytes = 0;
  int code = t->forward.workspace ? DONE : engine_code(gdn2_forward_workspace(&args, &bytes));
  if (!code) code = bench_workspace(&t->forward, bytes);
  args.exec = t->forward;
  return code ? code : engine_code(gdn2_forward(&args));
}

static int run_backward(bench_tensors *t, const bench_case *c) {
  gdn2_backward_args args = {.struct_size = sizeof args, .problem = problem_of(t, c), .exec = t->backward, .profile = t->profile};
  args.d_o = input_of(t, c, IN_DO);
  args.dq = output_of(t, c, OUT_DQ);
  args.dk = output_of(t, c, OUT_DK);
  args.dv = output_of(t, c, OUT_DV);
  args.dg = output_of(t, c, OUT_DG);
  args.db = output_of(t, c, OUT_DB);
  args.dw = output_of(t, c, OUT_DW);
  args.snapshots.data = t->snapshots;
  args.snapshot_every = t->snapshots ? BENCH_SNAPSHOT_EVERY : 0;
  args.residual.data = residual_of(t, c);
  size_t bytes = 0;
  int code = t->backward.workspace ? DONE : engine_code(gdn2_backward_workspace(&args, &bytes));
  if (!code) code = bench_workspace(&t->backward, bytes);
  args.exec = t->backward;
  return code ? code : engine_code(gdn2_backward(&args));
}

/* The states stay where they are, row n in slot n. */
static int run_decode(bench_tensors *t, const bench_case *c) {
  const int64_t K = c->n.K, V = c->n.V, by_rows[4] = {c->HV * K * V, K * V, 1, K};
  gdn2_step_args args = {.struct_size = sizeof args, .problem = problem_of(t, c), .exec = t->forward};
  args.o = output_of(t, c, OUT_O);
  args.from.dtype = args.to.dtype = c->dtype;
  if (c->layout) memcpy(args.from.stride, by_rows, sizeof by_rows), memcpy(args.to.stride, by_rows, sizeof by_rows);
  const size_t bytes = bench_state_bytes(c) / (size_t)c->layers;
  int code = DONE;
  for (int layer = 0; layer < c->layers && !code; layer++) {
    args.from.data = args.to.data = (char *)t->state + bytes * (size_t)layer;
    code = engine_code(gdn2_step(&args));
  }
  return code;
}

/* ---- The seed's pipeline -------------------------------------------------------------------------------------------------- */

static gdn2_seed_call call_of(const bench_tensors *t, const bench_case *c) {
  const sizes *n = &c->n;
  return (gdn2_seed_call){.struct_size = sizeof(gdn2_seed_call),
                          .B = n->B,
                          .L = n->T,
                          .H = n->H,
                          .K = n->K,
                          .V = n->V,
                          .exec = t->forward,
                          .profile = t->profile};
}

static gdn2_seed_inputs seed_inputs(const bench_tensors *t) {
  void *const *x = t->x;
  return (gdn2_seed_inputs){.q = x[IN_Q], .k = x[IN_K], .v = x[IN_V], .w = x[IN_W], .b = x[IN_B], .g = x[IN_G]};
}

static int run_seed_forward(bench_tensors *t, const bench_case *c) {
  gdn2_seed_call call = call_of(t, c);
  gdn2_seed_inputs in = seed_inputs(t);
  return engine_code(gdn2_seed_forward(&call, &in, t->y[OUT_O], t->y[OUT_H_FINAL], &t->residuals));
}

static int run_seed_backward(bench_tensors *t, const bench_case *c) {
  gdn2_seed_call call = call_of(t, c);
  gdn2_seed_inputs in = seed_inputs(t);
  void *const *y = t->y;
  gdn2_seed_gradients out = {
      .dq = y[OUT_DQ], .dk = y[OUT_DK], .dv = y[OUT_DV], .dw = y[OUT_DW], .db = y[OUT_DB], .dg = y[OUT_DG], .dh0 = y[OUT_DH0]};
  return engine_code(gdn2_seed_backward(&call, &in, &t->residuals, t->x[IN_DO], NULL, &out));
}

int bench_run(bench_tensors *t, const bench_case *c) {
  int code = bench_is_layer(c->op) ? bench_layer_run(t, c) : c->op == DECODE ? run_decode(t, c) : DONE;
  if (c->op == FORWARD || c->op == TRAIN) code = run_forward(t, c);
  if (c->op == SEED_FORWARD || c->op == SEED_TRAIN) code = run_seed_forward(t, c);
  if (!code && (c->op == BACKWARD || c->op == TRAIN)) code = run_backward(t, c);
  if (!code && (c->op == SEED_BACKWARD || c->op == SEED_TRAIN)) code = run_seed_backward(t, c);
  return code;
}
