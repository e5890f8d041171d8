#include "api/problem.h"
#include "double/double.h"
#include <inttypes.h>
#include <stdlib.h>

static gdn2_status check(const gdn2_forward_args *args, gdn2_places *places, gdn2_forward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_forward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_forward_args");
  if (status == GDN2_OK) status = gdn2_check_problem(&args->problem, &args->exec, places, &call->in);
  call->in.profile = args->profile;
  if (status != GDN2_OK) return status;
  const gdn2_expect o = gdn2_expect_tokens(&call->in, "o", call->in.HV, call->in.V);
  gdn2_expect h_final = gdn2_expect_state(&call->in, "h_final");
  h_final.in_place[0] = "h0";
  status = gdn2_check_output(&args->o, &o, places, &call->o);
  if (status == GDN2_OK) status = gdn2_check_output(&args->h_final, &h_final, places, &call->h_final);
  call->snapshot_every = args->snapshot_every;
  if (status == GDN2_OK)
    status = gdn2_check_snapshots(&call->in, &args->snapshots, args->snapshot_every, 1, places, &call->snapshots);
  gdn2_expect residual;
  if (status == GDN2_OK) status = gdn2_expect_residual(&call->in, args->residual.data != NULL, &residual);
  return status == GDN2_OK ? gdn2_check_output(&args->residual, &residual, places, &call->residual) : status;
}

static size_t bytes_of(const gdn2_call *in) { return in->f64 ? gdn2_double_forward_bytes(in) : gdn2_forward_bytes(in); }

gdn2_status gdn2_forward(const gdn2_forward_args *args) {
  gdn2_forward_call call = {.in = {.f64 = 0}};
  gdn2_places places;
  gdn2_places_start(&places, 0);
  void *workspace, *owned;
  gdn2_status status = check(args, &places, &call);
  if (status == GDN2_OK) status = gdn2_workspace_take(&args->exec, bytes_of(&call.in), &places, &workspace, &owned);
  if (status != GDN2_OK) return status;
  if (call.in.f64)
    gdn2_double_forward(&call, workspace);
  else
    gdn2_drive_forward(&call, workspace);
  free(owned);
  return GDN2_OK;
}

gdn2_status gdn2_forward_workspace(const gdn2_forward_args *args, size_t *bytes) {
  gdn2_forward_call call = {.in = {.f64 = 0}};
  gdn2_places places;
  gdn2_places_start(&places, 1);
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  const gdn2_status status = check(args, &places, &call);
  if (status == GDN2_OK) *bytes = bytes_of(&call.in);
  return status;
}
