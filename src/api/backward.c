#include "api/problem.h"
#include <stdlib.h>

static gdn2_status check_gradients(const gdn2_backward_args *args, gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  const struct {
    const gdn2_output *tensor;
    gdn2_view_out *view;
    gdn2_expect expect;
  } outputs[] = {
      {&args->dq, &call->dq, gdn2_expect_tokens(in, "dq", in->K, 0, 0)},
      {&args->dk, &call->dk, gdn2_expect_tokens(in, "dk", in->K, 0, 0)},
      {&args->dv, &call->dv, gdn2_expect_tokens(in, "dv", in->V, 0, 0)},
      {&args->dg, &call->dg, gdn2_expect_tokens(in, "dg", in->K, 0, 1)},
      {&args->db, &call->db, gdn2_expect_tokens(in, "db", in->K, 0, 1)},
      {&args->dw, &call->dw, gdn2_expect_tokens(in, "dw", in->V, 0, 1)},
      {&args->dh0, &call->dh0, gdn2_expect_state(in, "dh0")},
  };
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    const gdn2_status status = gdn2_check_output(outputs[i].tensor, &outputs[i].expect, outputs[i].view);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

static gdn2_status check(const gdn2_backward_args *args, gdn2_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_backward_args");
  if (status == GDN2_OK) status = gdn2_check_problem(&args->problem, &args->exec, &call->in);
  if (status != GDN2_OK) return status;
  const gdn2_expect d_o = gdn2_expect_tokens(&call->in, "d_o", call->in.V, 0, 0), dh = gdn2_expect_state(&call->in, "dh_final");
  status = gdn2_check_input(&args->d_o, &d_o, &call->d_o);
  if (status == GDN2_OK) status = gdn2_check_input(&args->dh_final, &dh, &call->dh_final);
  return status == GDN2_OK ? check_gradients(args, call) : status;
}

gdn2_status gdn2_backward(const gdn2_backward_args *args) {
  gdn2_backward_call call;
  void *workspace, *owned;
  gdn2_status status = check(args, &call);
  if (status == GDN2_OK) status = gdn2_workspace_take(&args->exec, gdn2_backward_bytes(&call.in), &workspace, &owned);
  if (status != GDN2_OK) return status;
  gdn2_drive_backward(&call, workspace);
  free(owned);
  return GDN2_OK;
}

gdn2_status gdn2_backward_workspace(const gdn2_backward_args *args, size_t *bytes) {
  gdn2_backward_call call;
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  const gdn2_status status = check(args, &call);
  if (status == GDN2_OK) *bytes = gdn2_backward_bytes(&call.in);
  return status;
}
