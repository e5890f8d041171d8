#include "api/problem.h"
#include <stdlib.h>

static gdn2_status check_gradients(const gdn2_backward_args *args, gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  const struct {
    const gdn2_output *tensor;
    gdn2_view_out *view;
    gdn2_expect expect;
  } outputs[] = {
      {&args->dq, &call->dq, gdn2_expect_tokens(in, "dq", in->H, in->K)},
      {&args->dk, &call->dk, gdn2_expect_tokens(in, "dk", in->H, in->K)},
      {&args->dv, &call->dv, gdn2_expect_tokens(in, "dv", in->H, in->V)},
      {&args->dg, &call->dg, gdn2_expect_gate(in, "dg", in->H, in->K)},
      {&args->db, &call->db, gdn2_expect_gate(in, "db", in->H, in->K)},
      {&args->dw, &call->dw, gdn2_expect_gate(in, "dw", in->H, in->V)},
      {&args->dh0, &call->dh0, gdn2_expect_state(in, "dh0")},
  };
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    const gdn2_status status = gdn2_check_output(outputs[i].tensor, &outputs[i].expect, outputs[i].view);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

/* What the forward offers beyond the plain rule has no gradient yet. */
static gdn2_status check_plain(const gdn2_call *in) {
  const struct {
    const char *name;
    int given;
  } options[] = {
      {"HV", in->HV != in->H},
      {"cu_seqlens", in->cu_seqlens != NULL},
      {"decay", in->decay != GDN2_DECAY_LOG},
      {"erase", in->erase != GDN2_GATE_GIVEN},
      {"write", in->write != GDN2_GATE_GIVEN},
      {"qk_l2norm", in->l2norm},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].given)
      return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is set; the backward does not take it in this version", options[i].name);
  return GDN2_OK;
}

static gdn2_status check(const gdn2_backward_args *args, gdn2_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_backward_args");
  if (status == GDN2_OK) status = gdn2_check_problem(&args->problem, &args->exec, &call->in);
  if (status == GDN2_OK) status = check_plain(&call->in);
  /* The gradients of the keys are sums over all value channels: a head is one task. */
  if (status == GDN2_OK && call->in.threads > call->in.B * call->in.H && call->in.B * call->in.H > 0)
    call->in.threads = (int)(call->in.B * call->in.H);
  if (status != GDN2_OK) return status;
  const gdn2_expect d_o = gdn2_expect_tokens(&call->in, "d_o", call->in.H, call->in.V),
                    dh = gdn2_expect_state(&call->in, "dh_final");
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
