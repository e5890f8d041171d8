/* The optional parts of a problem: grouped heads, variable length, gates from raw input. */
#include "api/indices.h"
#include <float.h>
#include <inttypes.h>

gdn2_status gdn2_check_heads(const gdn2_problem *p, gdn2_call *call) {
  gdn2_status status = gdn2_check_flag("map", (int)p->map, GDN2_HEADS_TILED);
  if (status == GDN2_OK) status = gdn2_check_flag("g_key_heads", p->g_key_heads, 1);
  if (status == GDN2_OK) status = gdn2_check_flag("b_key_heads", p->b_key_heads, 1);
  if (status != GDN2_OK) return status;
  call->HV = p->HV ? p->HV : p->H;
  call->map = p->map;
  call->g_key_heads = p->g_key_heads;
  call->b_key_heads = p->b_key_heads;
  if (call->HV < 0 || (p->H == 0 ? call->HV != 0 : call->HV % p->H != 0))
    return gdn2_fail(GDN2_ERR_SHAPE, "HV is %" PRId64 "; it must be a multiple of H, %" PRId64, p->HV, p->H);
  return GDN2_OK;
}

/* What only a raw decay has. */
static gdn2_status check_parameters_absent(const gdn2_problem *p) {
  const char *name = p->A_log.data ? "A_log" : p->dt_bias.data ? "dt_bias" : NULL;
  if (p->decay == GDN2_DECAY_LOG && name)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is given; it must be absent where decay is GDN2_DECAY_LOG (0)", name);
  if (p->decay != GDN2_DECAY_BOUNDED && p->lower_bound != 0)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "lower_bound is %g; it must be 0 where decay is not GDN2_DECAY_BOUNDED (2)",
                     p->lower_bound);
  return GDN2_OK;
}

/* cu_seqlens starts at 0, never falls and ends within the T tokens. */
static gdn2_status check_offsets(const gdn2_call *call) {
  int64_t before = 0;
  for (int64_t n = 0; n <= call->N; n++) {
    const int64_t at = gdn2_offset(call, n);
    if (n == 0 && at != 0) return gdn2_fail(GDN2_ERR_SHAPE, "cu_seqlens[0] is %" PRId64 "; it must be 0", at);
    if (at < before)
      return gdn2_fail(GDN2_ERR_SHAPE,
                       "cu_seqlens[%" PRId64 "] is %" PRId64 "; it must not be below cu_seqlens[%" PRId64 "], %" PRId64, n, at,
                       n - 1, before);
    if (at > call->T)
      return gdn2_fail(GDN2_ERR_SHAPE, "cu_seqlens[%" PRId64 "] is %" PRId64 "; it must not be above T, %" PRId64, n, at,
                       call->T);
    before = at;
  }
  return GDN2_OK;
}

gdn2_status gdn2_check_sequences(const gdn2_problem *p, gdn2_places *places, gdn2_call *call) {
  call->N = p->B;
  if (!p->cu_seqlens) {
    if (p->N == 0 || p->N == p->B) return GDN2_OK;
    return gdn2_fail(GDN2_ERR_SHAPE, "N is %" PRId64 "; without cu_seqlens it must be 0 or B, %" PRId64, p->N, p->B);
  }
  if (p->B != 1) return gdn2_fail(GDN2_ERR_SHAPE, "B is %" PRId64 "; with cu_seqlens it must be 1", p->B);
  gdn2_status status = gdn2_check_not_negative("N", p->N);
  if (status == GDN2_OK) status = gdn2_check_indices("cu_seqlens", p->cu_seqlens, p->cu_seqlens_type, (size_t)p->N + 1, places);
  if (status != GDN2_OK) return status;
  call->cu_seqlens = p->cu_seqlens;
  call->cu_type = p->cu_seqlens_type;
  call->N = p->N;
  return check_offsets(call);
}

gdn2_status gdn2_check_gates(const gdn2_problem *p, gdn2_places *places, gdn2_call *call) {
  gdn2_status status = gdn2_check_flag("decay", (int)p->decay, GDN2_DECAY_BOUNDED);
  if (status == GDN2_OK) status = gdn2_check_flag("erase", (int)p->erase, GDN2_GATE_TWO_SIGMOID);
  if (status == GDN2_OK) status = gdn2_check_flag("write", (int)p->write, GDN2_GATE_SIGMOID);
  if (status == GDN2_OK) status = gdn2_check_flag("qk_l2norm", p->qk_l2norm, 1);
  if (status == GDN2_OK) status = check_parameters_absent(p);
  if (status != GDN2_OK) return status;
  call->decay = p->decay;
  call->erase = p->erase;
  call->write = p->write;
  call->l2norm = p->qk_l2norm;
  call->lower_bound = p->lower_bound;
  if (p->decay == GDN2_DECAY_LOG) return GDN2_OK;
  const double strongest = call->f64 ? -DBL_MAX : -(double)FLT_MAX;
  if (p->decay == GDN2_DECAY_BOUNDED && !(p->lower_bound < 0 && p->lower_bound >= strongest))
    return gdn2_fail(GDN2_ERR_ARGUMENT, "lower_bound is %g; it must be below 0 and finite as a %s", p->lower_bound,
                     call->f64 ? "float64" : "float32");
  gdn2_expect A_log = gdn2_expect_parameter(call, "A_log", 1);
  const gdn2_expect dt_bias = gdn2_expect_parameter(call, "dt_bias", call->K);
  A_log.required = 1;
  status = gdn2_check_input(&p->A_log, &A_log, places, &call->A_log);
  return status == GDN2_OK ? gdn2_check_input(&p->dt_bias, &dt_bias, places, &call->dt_bias) : status;
}

gdn2_status gdn2_expect_residual(const gdn2_call *call, int given, gdn2_expect *expect) {
  if (call->f64 && given) return gdn2_fail(GDN2_ERR_ARGUMENT, "residual is given; the float64 path has none: it must be absent");
  *expect = gdn2_expect_tokens(call, "residual", call->HV, call->V);
  expect->only_f32 = 1;
  return GDN2_OK;
}

gdn2_status gdn2_check_snapshots(const gdn2_call *call, const gdn2_states *snapshots, int64_t every, int written,
                                 gdn2_places *places, gdn2_states_view *view) {
  view->data = NULL;
  if (every < 0 || every % GDN2_CHUNK != 0 || (snapshots->data && every == 0))
    return gdn2_fail(GDN2_ERR_SHAPE, "snapshot_every is %" PRId64 "; it must be a multiple of %d%s", every, GDN2_CHUNK,
                     every == 0 ? ", and not 0 where snapshots are given" : "");
  if (every == 0) return GDN2_OK;
  if (call->f64 && snapshots->data && !written)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "snapshots are given; the float64 backward does not use any: they must be absent");
  const gdn2_expect expect = {.name = "snapshots",
                              .size = {call->B, call->T / every, call->HV, call->K, call->V},
                              .state = 1,
                              .moments = 1,
                              .only_f32 = !written,
                              .f64 = call->f64};
  return gdn2_check_states(snapshots, &expect, written, places, view);
}
