#include "drive/norm.h"
#include "api/layer.h"
#include <inttypes.h>
#include <stdlib.h>

#define DEFAULT_EPS 1e-6

static gdn2_expect rows(const gdn2_norm_call *call, const char *name) {
  return (gdn2_expect){.name = name, .size = {call->B, call->T, call->H, call->D}, .f64 = call->f64, .lead = "x"};
}
static gdn2_expect weight(const gdn2_norm_call *call, const char *name) {
  return (gdn2_expect){.name = name, .size = {1, 1, 1, call->D}, .f64 = call->f64, .lead = "x"};
}

static gdn2_status check_options(const gdn2_norm_problem *p) {
  if (p->gate != GDN2_NORM_SILU && p->gate != GDN2_NORM_SIGMOID)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "gate is %d; it must be GDN2_NORM_SILU (0) or GDN2_NORM_SIGMOID (1)", (int)p->gate);
  if (p->eps < 0) return gdn2_fail(GDN2_ERR_ARGUMENT, "eps is %g; it must be finite and not negative", p->eps);
  const gdn2_status status = gdn2_check_finite("eps", p->eps, p->x.dtype == GDN2_F64);
  if (status != GDN2_OK) return status;
  return gdn2_check_flag("plus_one", p->plus_one, 1);
}

static gdn2_status check_sizes(const gdn2_norm_problem *p) {
  gdn2_status status = gdn2_check_not_negative("B", p->B);
  if (status == GDN2_OK) status = gdn2_check_not_negative("T", p->T);
  if (status == GDN2_OK) status = gdn2_check_not_negative("H", p->H);
  if (status == GDN2_OK) status = gdn2_check_range("D", p->D, 1, GDN2_MAX_CHANNELS);
  const int64_t sizes[] = {p->B, p->T, p->H, p->D};
  return status == GDN2_OK ? gdn2_check_total("B, T, H and D", sizes, 4) : status;
}

static gdn2_status check_problem(const gdn2_norm_problem *p, const gdn2_exec *exec, gdn2_places *places, gdn2_norm_call *call) {
  *call = (gdn2_norm_call){.B = p->B, .T = p->T, .H = p->H, .D = p->D, .gate = p->gate, .plus_one = p->plus_one};
  call->f64 = p->x.dtype == GDN2_F64;
  call->eps = p->eps == 0 ? DEFAULT_EPS : p->eps;
  gdn2_status status = check_sizes(p);
  if (status == GDN2_OK) status = check_options(p);
  if (status != GDN2_OK) return status;
  gdn2_input_check inputs[] = {{&p->x, &call->x, rows(call, "x")},
                               {&p->z, &call->z, rows(call, "z")},
                               {&p->weight, &call->weight, weight(call, "weight")}};
  inputs[0].expect.required = 1;
  status = gdn2_check_inputs(inputs, GDN2_COUNT(inputs), places);
  if (status != GDN2_OK) return status;
  return gdn2_check_layer_exec(exec, p->B * p->T * p->H * p->D, &call->threads, &call->table);
}

/* ---- Forward -------------------------------------------------------------------------------------------------------------- */

gdn2_status gdn2_norm_forward(const gdn2_norm_forward_args *args) {
  gdn2_norm_forward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 0);
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_norm_forward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_norm_forward_args");
  if (status == GDN2_OK) status = check_problem(&args->problem, &args->exec, &places, &call.in);
  if (status != GDN2_OK) return status;
  gdn2_output_check y = {&args->y, &call.y, rows(&call.in, "y")};
  y.expect.in_place[0] = "x";
  y.expect.in_place[1] = "z";
  status = gdn2_check_outputs(&y, 1, &places);
  if (status == GDN2_OK) gdn2_drive_norm_forward(&call);
  return status;
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

static gdn2_status check_gradients(const gdn2_norm_backward_args *args, gdn2_places *places, gdn2_norm_backward_call *call) {
  const gdn2_norm_call *in = &call->in;
  const gdn2_input_check dy = {&args->dy, &call->dy, rows(in, "dy")};
  gdn2_output_check outputs[] = {{&args->dx, &call->dx, rows(in, "dx")},
                                 {&args->dz, &call->dz, rows(in, "dz")},
                                 {&args->dweight, &call->dweight, weight(in, "dweight")}};
  if (args->dz.data && !in->z.data && in->B * in->T * in->H > 0)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "dz is %p, but z is absent; without a gate dz.data must be NULL", args->dz.data);
  outputs[0].expect.in_place[0] = "dy";
  outputs[1].expect.in_place[0] = "z";
  const gdn2_status status = gdn2_check_inputs(&dy, 1, places);
  return status == GDN2_OK ? gdn2_check_outputs(outputs, GDN2_COUNT(outputs), places) : status;
}

static gdn2_status check_backward(const gdn2_norm_backward_args *args, gdn2_places *places, gdn2_norm_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_norm_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_norm_backward_args");
  if (status == GDN2_OK) status = check_problem(&args->problem, &args->exec, places, &call->in);
  return status == GDN2_OK ? check_gradients(args, places, call) : status;
}

gdn2_status gdn2_norm_backward(const gdn2_norm_backward_args *args) {
  gdn2_norm_backward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 0);
  void *workspace, *owned;
  gdn2_status status = check_backward(args, &places, &call);
  if (status == GDN2_OK) status = gdn2_workspace_take(&args->exec, gdn2_norm_backward_bytes(&call), &places, &workspace, &owned);
  if (status != GDN2_OK) return status;
  gdn2_drive_norm_backward(&call, workspace);
  free(owned);
  return GDN2_OK;
}

gdn2_status gdn2_norm_backward_workspace(const gdn2_norm_backward_args *args, size_t *bytes) {
  gdn2_norm_backward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 1);
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  const gdn2_status status = check_backward(args, &places, &call);
  if (status == GDN2_OK) *bytes = gdn2_norm_backward_bytes(&call);
  return status;
}
