#include "drive/conv.h"
#include "api/indices.h"
#include "api/layer.h"
#include <stdlib.h>

static const char *const state_axes[] = {"sequence", "head", "channel", "tap"};

static gdn2_expect tokens(const gdn2_conv_call *call, const char *name) {
  return (gdn2_expect){.name = name, .size = {call->in.B, call->in.T, 1, call->D}, .f64 = call->in.f64, .lead = "x"};
}
static gdn2_expect weight(const gdn2_conv_call *call, const char *name) {
  return (gdn2_expect){
      .name = name, .size = {1, 1, call->D, call->W}, .state = 1, .axes = state_axes, .f64 = call->in.f64, .lead = "x"};
}
static gdn2_expect bias(const gdn2_conv_call *call, const char *name) {
  return (gdn2_expect){.name = name, .size = {1, 1, 1, call->D}, .f64 = call->in.f64, .lead = "x"};
}
static gdn2_expect states(const gdn2_conv_call *call, const char *name, int64_t count) {
  return (gdn2_expect){
      .name = name, .size = {count, 1, call->D, call->W - 1}, .state = 1, .axes = state_axes, .f64 = call->in.f64, .lead = "x"};
}

static gdn2_status check_sizes(const gdn2_conv_problem *p) {
  gdn2_status status = gdn2_check_not_negative("B", p->B);
  if (status == GDN2_OK) status = gdn2_check_not_negative("T", p->T);
  if (status == GDN2_OK) status = gdn2_check_range("D", p->D, 1, GDN2_MAX_CHANNELS);
  if (status == GDN2_OK) status = gdn2_check_range("W", p->W, GDN2_CONV_MIN_WIDTH, GDN2_CONV_MAX_WIDTH);
  if (status == GDN2_OK) status = gdn2_check_flag("silu", p->silu, 1);
  if (status != GDN2_OK) return status;
  const int64_t sizes[] = {p->B, p->T, p->D};
  return gdn2_check_total("B, T and D", sizes, 3);
}

/* The sequences are given as those of the rule. */
static gdn2_status check_sequences(const gdn2_conv_problem *p, gdn2_places *places, gdn2_call *in) {
  const gdn2_problem as_rule = {
      .B = p->B, .T = p->T, .cu_seqlens = p->cu_seqlens, .cu_seqlens_type = p->cu_seqlens_type, .N = p->N};
  in->B = p->B;
  in->T = p->T;
  return gdn2_check_sequences(&as_rule, places, in);
}

static gdn2_status check_slots(const gdn2_conv_problem *p, gdn2_places *places, gdn2_conv_call *call) {
  call->fresh = p->fresh;
  gdn2_status status = gdn2_places_add_bytes(places, "fresh", p->fresh, (size_t)call->in.N, 0);
  if (!p->slots || status != GDN2_OK) return status;
  status = gdn2_check_not_negative("slot_count", p->slot_count);
  if (status == GDN2_OK) status = gdn2_check_indices("slots", p->slots, p->slots_type, (size_t)call->in.N, places);
  if (status != GDN2_OK) return status;
  call->slots = p->slots;
  call->slots_type = p->slots_type;
  return gdn2_check_slots("slots", p->slots, p->slots_type, call->in.N, "slot_count", p->slot_count);
}

static int64_t state_count(const gdn2_conv_problem *p, const gdn2_conv_call *call) {
  return p->slots ? p->slot_count : call->in.N;
}

static gdn2_status check_problem(const gdn2_conv_problem *p, const gdn2_exec *exec, gdn2_places *places, gdn2_conv_call *call) {
  *call = (gdn2_conv_call){.in = {.f64 = p->x.dtype == GDN2_F64}, .D = p->D, .W = (int)p->W, .silu = p->silu};
  gdn2_status status = check_sizes(p);
  if (status == GDN2_OK) status = check_sequences(p, places, &call->in);
  if (status == GDN2_OK) status = check_slots(p, places, call);
  if (status != GDN2_OK) return status;
  gdn2_input_check inputs[] = {
      {&p->x, &call->x, tokens(call, "x")},
      {&p->weight, &call->weight, weight(call, "weight")},
      {&p->bias, &call->bias, bias(call, "bias")},
      {&p->state, &call->state, states(call, "state", state_count(p, call))},
  };
  inputs[0].expect.required = inputs[1].expect.required = 1;
  status = gdn2_check_inputs(inputs, GDN2_COUNT(inputs), places);
  if (status != GDN2_OK) return status;
  return gdn2_check_layer_exec(exec, p->B * p->T * p->D, &call->in.threads, &call->in.table);
}

/* ---- Forward -------------------------------------------------------------------------------------------------------------- */

gdn2_status gdn2_conv_forward(const gdn2_conv_forward_args *args) {
  gdn2_conv_forward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 0);
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_conv_forward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_conv_forward_args");
  if (status == GDN2_OK) status = check_problem(&args->problem, &args->exec, &places, &call.in);
  if (status != GDN2_OK) return status;
  gdn2_output_check outputs[] = {
      {&args->y, &call.y, tokens(&call.in, "y")},
      {&args->state_final, &call.state_final, states(&call.in, "state_final", state_count(&args->problem, &call.in))},
  };
  outputs[1].expect.in_place[0] = "state";
  status = gdn2_check_outputs(outputs, GDN2_COUNT(outputs), &places);
  if (status == GDN2_OK) gdn2_drive_conv_forward(&call);
  return status;
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

static gdn2_status check_gradients(const gdn2_conv_backward_args *args, gdn2_places *places, gdn2_conv_backward_call *call) {
  const gdn2_conv_call *in = &call->in;
  const gdn2_input_check inputs[] = {
      {&args->dy, &call->dy, tokens(in, "dy")},
      {&args->dstate_final, &call->dstate_final, states(in, "dstate_final", in->in.N)},
  };
  const gdn2_output_check outputs[] = {
      {&args->dx, &call->dx, tokens(in, "dx")},
      {&args->dweight, &call->dweight, weight(in, "dweight")},
      {&args->dbias, &call->dbias, bias(in, "dbias")},
      {&args->dstate, &call->dstate, states(in, "dstate", in->in.N)},
  };
  const gdn2_status status = gdn2_check_inputs(inputs, GDN2_COUNT(inputs), places);
  return status == GDN2_OK ? gdn2_check_outputs(outputs, GDN2_COUNT(outputs), places) : status;
}

static gdn2_status check_backward(const gdn2_conv_backward_args *args, gdn2_places *places, gdn2_conv_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_conv_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_conv_backward_args");
  if (status != GDN2_OK) return status;
  if (args->problem.slots) return gdn2_fail(GDN2_ERR_ARGUMENT, "slots is set; the backward has no pool, it must be NULL");
  if (args->problem.fresh) return gdn2_fail(GDN2_ERR_ARGUMENT, "fresh is set; the backward has no pool, it must be NULL");
  status = check_problem(&args->problem, &args->exec, places, &call->in);
  return status == GDN2_OK ? check_gradients(args, places, call) : status;
}

gdn2_status gdn2_conv_backward(const gdn2_conv_backward_args *args) {
  gdn2_conv_backward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 0);
  void *workspace = NULL, *owned = NULL;
  gdn2_status status = check_backward(args, &places, &call);
  if (status != GDN2_OK) return status;
  const size_t bytes = gdn2_conv_backward_bytes(&call);
  if (bytes > 0) status = gdn2_workspace_take(&args->exec, bytes, &places, &workspace, &owned);
  if (status != GDN2_OK) return status;
  gdn2_drive_conv_backward(&call, workspace);
  free(owned);
  return GDN2_OK;
}

gdn2_status gdn2_conv_backward_workspace(const gdn2_conv_backward_args *args, size_t *bytes) {
  gdn2_conv_backward_call call;
  gdn2_places places;
  gdn2_places_start(&places, 1);
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  const gdn2_status status = check_backward(args, &places, &call);
  if (status == GDN2_OK) *bytes = gdn2_conv_backward_bytes(&call);
  return status;
}
