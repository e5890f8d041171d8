#include "api/problem.h"
#include "double/double.h"
#include <inttypes.h>
#include <stdlib.h>

static gdn2_status check_gradients(const gdn2_backward_args *args, gdn2_places *places, gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  gdn2_expect dv = gdn2_expect_tokens(in, "dv", in->HV, in->V);
  dv.in_place[0] = "residual"; /* whose rows of a segment are read before those of dv are written */
  const gdn2_output_check outputs[] = {
      {&args->dq, &call->dq, gdn2_expect_tokens(in, "dq", in->H, in->K)},
      {&args->dk, &call->dk, gdn2_expect_tokens(in, "dk", in->H, in->K)},
      {&args->dv, &call->dv, dv},
      {&args->dg, &call->dg, gdn2_expect_gate(in, "dg", gdn2_g_heads(in), in->K)},
      {&args->db, &call->db, gdn2_expect_gate(in, "db", gdn2_b_heads(in), in->K)},
      {&args->dw, &call->dw, gdn2_expect_gate(in, "dw", in->HV, in->V)},
      {&args->dh0, &call->dh0, gdn2_expect_state(in, "dh0")},
      {&args->dA_log, &call->dA_log, gdn2_expect_parameter(in, "dA_log", 1)},
      {&args->ddt_bias, &call->ddt_bias, gdn2_expect_parameter(in, "ddt_bias", in->K)},
  };
  return gdn2_check_outputs(outputs, GDN2_COUNT(outputs), places);
}

static gdn2_status check_checkpoints(const gdn2_backward_args *args, gdn2_places *places, gdn2_backward_call *call) {
  call->checkpoint_every = args->checkpoint_every;
  call->snapshot_every = args->snapshot_every;
  if (args->checkpoint_every < 0 || (args->checkpoint_every > 0 && args->snapshots.data))
    return gdn2_fail(GDN2_ERR_ARGUMENT, "checkpoint_every is %" PRId64 "; it must %s", args->checkpoint_every,
                     args->checkpoint_every < 0 ? "not be negative" : "be 0 where snapshots are given");
  gdn2_expect residual;
  gdn2_status status = gdn2_expect_residual(&call->in, args->residual.data != NULL, &residual);
  if (status == GDN2_OK) status = gdn2_check_input(&args->residual, &residual, places, &call->residual);
  if (status != GDN2_OK) return status;
  return gdn2_check_snapshots(&call->in, &args->snapshots, args->snapshot_every, 0, places, &call->snapshots);
}

/* Finished decays have no parameters to differentiate by. */
static gdn2_status check_parameters(const gdn2_backward_args *args, const gdn2_call *in) {
  const char *name = args->dA_log.data ? "dA_log" : args->ddt_bias.data ? "ddt_bias" : NULL;
  if (!name || in->decay != GDN2_DECAY_LOG) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is given; it must be absent where decay is GDN2_DECAY_LOG (0)", name);
}

static gdn2_status check(const gdn2_backward_args *args, gdn2_places *places, gdn2_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_backward_args");
  if (status == GDN2_OK) status = gdn2_check_problem(&args->problem, &args->exec, places, &call->in);
  call->in.profile = args->profile;
  if (status == GDN2_OK) status = check_checkpoints(args, places, call);
  if (status == GDN2_OK) status = check_parameters(args, &call->in);
  if (status != GDN2_OK) return status;
  const gdn2_expect d_o = gdn2_expect_tokens(&call->in, "d_o", call->in.HV, call->in.V),
                    dh = gdn2_expect_state(&call->in, "dh_final");
  status = gdn2_check_input(&args->d_o, &d_o, places, &call->d_o);
  if (status == GDN2_OK) status = gdn2_check_input(&args->dh_final, &dh, places, &call->dh_final);
  return status == GDN2_OK ? check_gradients(args, places, call) : status;
}

static size_t bytes_of(const gdn2_backward_call *call) {
  return call->in.f64 ? gdn2_double_backward_bytes(call) : gdn2_backward_bytes(call);
}

/* A checked call, and the workspace that it needs. */
static gdn2_status prepare(const gdn2_backward_args *args, gdn2_places *places, gdn2_backward_call *call, size_t *bytes) {
  const gdn2_status status = check(args, places, call);
  if (status != GDN2_OK) return status;
  const size_t needed = bytes_of(call);
  if (needed == SIZE_MAX)
    return gdn2_fail(GDN2_ERR_MEMORY,
                     "checkpoint_every is %" PRId64 "; with T = %" PRId64 " the kept states are more than memory can hold",
                     call->checkpoint_every, call->in.T);
  *bytes = needed;
  return GDN2_OK;
}

gdn2_status gdn2_backward(const gdn2_backward_args *args) {
  gdn2_backward_call call = {.in = {.f64 = 0}};
  gdn2_places places;
  gdn2_places_start(&places, 0);
  size_t bytes = 0;
  void *workspace, *owned;
  gdn2_status status = prepare(args, &places, &call, &bytes);
  if (status == GDN2_OK) status = gdn2_workspace_take(&args->exec, bytes, &places, &workspace, &owned);
  if (status != GDN2_OK) return status;
  if (call.in.f64)
    gdn2_double_backward(&call, workspace);
  else
    gdn2_drive_backward(&call, workspace);
  free(owned);
  return GDN2_OK;
}

gdn2_status gdn2_backward_workspace(const gdn2_backward_args *args, size_t *bytes) {
  gdn2_backward_call call = {.in = {.f64 = 0}};
  gdn2_places places;
  gdn2_places_start(&places, 1);
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  return prepare(args, &places, &call, bytes);
}
