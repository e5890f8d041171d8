#include "api/problem.h"
#include "double/double.h"
#include <stdlib.h>

static gdn2_status check_gradients(const gdn2_backward_args *args, gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  const int64_t Hg = in->g_key_heads ? in->H : in->HV, Hb = in->b_key_heads ? in->H : in->HV;
  const struct {
    const gdn2_output *tensor;
    gdn2_view_out *view;
    gdn2_expect expect;
  } outputs[] = {
      {&args->dq, &call->dq, gdn2_expect_tokens(in, "dq", in->H, in->K)},
      {&args->dk, &call->dk, gdn2_expect_tokens(in, "dk", in->H, in->K)},
      {&args->dv, &call->dv, gdn2_expect_tokens(in, "dv", in->HV, in->V)},
      {&args->dg, &call->dg, gdn2_expect_gate(in, "dg", Hg, in->K)},
      {&args->db, &call->db, gdn2_expect_gate(in, "db", Hb, in->K)},
      {&args->dw, &call->dw, gdn2_expect_gate(in, "dw", in->HV, in->V)},
      {&args->dh0, &call->dh0, gdn2_expect_state(in, "dh0")},
      {&args->dA_log, &call->dA_log, gdn2_expect_parameter(in, "dA_log", 1)},
      {&args->ddt_bias, &call->ddt_bias, gdn2_expect_parameter(in, "ddt_bias", in->K)},
  };
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    const gdn2_status status = gdn2_check_output(outputs[i].tensor, &outputs[i].expect, outputs[i].view);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

/* What the forward offers beyond the plain rule has a gradient in float64 only. */
static gdn2_status check_plain(const gdn2_call *in) {
  if (in->f64) return GDN2_OK;
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

/* Finished decays have no parameters to differentiate by. */
static gdn2_status check_parameters(const gdn2_backward_args *args, const gdn2_call *in) {
  const char *name = args->dA_log.data ? "dA_log" : args->ddt_bias.data ? "ddt_bias" : NULL;
  if (!name || in->decay != GDN2_DECAY_LOG) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is given; it must be absent where decay is GDN2_DECAY_LOG (0)", name);
}

static gdn2_status check(const gdn2_backward_args *args, gdn2_backward_call *call) {
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_backward_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_backward_args");
  if (status == GDN2_OK) status = gdn2_check_problem(&args->problem, &args->exec, &call->in);
  if (status == GDN2_OK) status = check_plain(&call->in);
  if (status == GDN2_OK) status = check_parameters(args, &call->in);
  /* The gradients of the keys are sums over all value channels: a head is one task. */
  if (status == GDN2_OK && !call->in.f64 && call->in.threads > call->in.B * call->in.H && call->in.B * call->in.H > 0)
    call->in.threads = (int)(call->in.B * call->in.H);
  if (status != GDN2_OK) return status;
  const gdn2_expect d_o = gdn2_expect_tokens(&call->in, "d_o", call->in.HV, call->in.V),
                    dh = gdn2_expect_state(&call->in, "dh_final");
  status = gdn2_check_input(&args->d_o, &d_o, &call->d_o);
  if (status == GDN2_OK) status = gdn2_check_input(&args->dh_final, &dh, &call->dh_final);
  return status == GDN2_OK ? check_gradients(args, call) : status;
}

static size_t bytes_of(const gdn2_backward_call *call) {
  return call->in.f64 ? gdn2_double_backward_bytes(call) : gdn2_backward_bytes(&call->in);
}

gdn2_status gdn2_backward(const gdn2_backward_args *args) {
  gdn2_backward_call call = {.in = {.f64 = 0}};
  void *workspace, *owned;
  gdn2_status status = check(args, &call);
  if (status == GDN2_OK) status = gdn2_workspace_take(&args->exec, bytes_of(&call), &workspace, &owned);
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
  if (!bytes) return gdn2_fail(GDN2_ERR_ARGUMENT, "bytes is NULL; it must point to a size_t");
  const gdn2_status status = check(args, &call);
  if (status == GDN2_OK) *bytes = bytes_of(&call);
  return status;
}
