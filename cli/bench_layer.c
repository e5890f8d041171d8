/* bench_layer.c - the ops of the layer parts: a convolution of width 4 with bias and SiLU over HV V channels, a norm with a SiLU
 * gate over rows of V. Their tensors take the places of those of the rule that have the same shape: v is x, w is z. */
#include <stdlib.h>

#include "cli.h"
#include "engine.h"
#include "bench.h"

enum { WIDTH = 4 };

int bench_is_layer(bench_op op) { return op >= CONV && op <= NORM_BACKWARD; }

int bench_layer_takes(bench_op op, input_id id) {
  int norm = op == NORM || op == NORM_BACKWARD, backward = op == CONV_BACKWARD || op == NORM_BACKWARD;
  return id == IN_V || (id == IN_W && norm) || (id == IN_DO && backward);
}

int bench_layer_gives(bench_op op, output_id id) {
  if (op == CONV || op == NORM) return id == OUT_O;
  return id == OUT_DV || (id == OUT_DW && op == NORM_BACKWARD);
}

size_t bench_layer_bytes(const bench_case *c) {
  int tensors = 0;
  for (int id = 0; id < INPUTS; id++) tensors += bench_layer_takes(c->op, (input_id)id);
  for (int id = 0; id < OUTPUTS; id++) tensors += bench_layer_gives(c->op, (output_id)id);
  return (size_t)tensors * (size_t)(c->n.B * c->n.T * c->HV * c->n.V) * (c->dtype == GDN2_F32 ? 4 : 2);
}

int bench_layer_make(bench_tensors *t, const bench_case *c) {
  int64_t count = c->HV * c->n.V * WIDTH;
  t->weight = calloc((size_t)count, sizeof(float));
  t->dweight = calloc((size_t)count, sizeof(float));
  for (int64_t i = 0; t->weight && i < count; i++) t->weight[i] = 0.25f + 0.1f * (float)(i % 7);
  return t->weight && t->dweight;
}

/* ---- The calls ------------------------------------------------------------------------------------------------------------ */

static gdn2_input in(const bench_tensors *t, const bench_case *c, input_id id) {
  return (gdn2_input){.data = t->x[id], .dtype = c->dtype};
}
static gdn2_output out(const bench_tensors *t, const bench_case *c, output_id id) {
  return (gdn2_output){.data = t->y[id], .dtype = c->dtype};
}
static gdn2_input parameter(const bench_tensors *t) { return (gdn2_input){.data = t->weight, .dtype = GDN2_F32}; }

static gdn2_conv_problem conv_of(const bench_tensors *t, const bench_case *c) {
  return (gdn2_conv_problem){.B = c->n.B,
                             .T = c->n.T,
                             .D = c->HV * c->n.V,
                             .W = WIDTH,
                             .silu = 1,
                             .x = in(t, c, IN_V),
                             .weight = parameter(t),
                             .bias = parameter(t)};
}

static gdn2_norm_problem norm_of(const bench_tensors *t, const bench_case *c) {
  return (gdn2_norm_problem){
      .B = c->n.B, .T = c->n.T, .H = c->HV, .D = c->n.V, .x = in(t, c, IN_V), .z = in(t, c, IN_W), .weight = parameter(t)};
}

static int run_conv(const bench_tensors *t, const bench_case *c) {
  gdn2_conv_forward_args args = {.struct_size = sizeof args, .problem = conv_of(t, c), .exec = t->forward};
  args.y = out(t, c, OUT_O);
  return engine_code(gdn2_conv_forward(&args));
}

static int run_norm(const bench_tensors *t, const bench_case *c) {
  gdn2_norm_forward_args args = {.struct_size = sizeof args, .problem = norm_of(t, c), .exec = t->forward};
  args.y = out(t, c, OUT_O);
  return engine_code(gdn2_norm_forward(&args));
}

static int run_conv_backward(bench_tensors *t, const bench_case *c) {
  gdn2_conv_backward_args args = {.struct_size = sizeof args, .problem = conv_of(t, c), .exec = t->backward};
  size_t bytes = 0;
  args.dy = in(t, c, IN_DO);
  args.dx = out(t, c, OUT_DV);
  args.dweight = (gdn2_output){.data = t->dweight, .dtype = GDN2_F32};
  int code = t->backward.workspace ? DONE : engine_code(gdn2_conv_backward_workspace(&args, &bytes));
  if (!code) code = bench_workspace(&t->backward, bytes);
  args.exec = t->backward;
  return code ? code : engine_code(gdn2_conv_backward(&args));
}

static int run_norm_backward(bench_tensors *t, const bench_case *c) {
  gdn2_norm_backward_args args = {.struct_size = sizeof args, .problem = norm_of(t, c), .exec = t->backward};
  size_t bytes = 0;
  args.dy = in(t, c, IN_DO);
  args.dx = out(t, c, OUT_DV);
  args.dz = out(t, c, OUT_DW);
  args.dweight = (gdn2_output){.data = t->dweight, .dtype = GDN2_F32};
  int code = t->backward.workspace ? DONE : engine_code(gdn2_norm_backward_workspace(&args, &bytes));
  if (!code) code = bench_workspace(&t->backward, bytes);
  args.exec = t->backward;
  return code ? code : engine_code(gdn2_norm_backward(&args));
}

int bench_layer_run(bench_tensors *t, const bench_case *c) {
  if (c->op == CONV) return run_conv(t, c);
  if (c->op == NORM) return run_norm(t, c);
  return c->op == CONV_BACKWARD ? run_conv_backward(t, c) : run_norm_backward(t, c);
}
