#include "api/problem.h"
#include "base/arena.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

gdn2_status gdn2_check_size(size_t given, size_t expected, const char *name) {
  if (given == expected) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "struct_size is %zu; it must be sizeof(%s), %zu", given, name, expected);
}

/* Every token tensor and state must be addressable, whatever the strides. */
static gdn2_status check_product(const gdn2_problem *p, const gdn2_call *call) {
  int64_t count, states;
  int bad =
      __builtin_mul_overflow(call->N, call->HV, &states) || __builtin_mul_overflow(states, GDN2_MAX_DIM * GDN2_MAX_DIM, &states);
  bad = bad || __builtin_mul_overflow(p->B, call->HV, &count) || __builtin_mul_overflow(count, p->T, &count);
  bad = bad || __builtin_mul_overflow(count, GDN2_MAX_DIM, &count);
  if (!bad && count <= INT64_MAX / 8 && states <= INT64_MAX / 8) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE,
                   "B, T, H and HV are %" PRId64 ", %" PRId64 ", %" PRId64 " and %" PRId64 "; together they are too large", p->B,
                   p->T, p->H, call->HV);
}

static gdn2_status check_sizes(const gdn2_problem *p) {
  gdn2_status status = gdn2_check_not_negative("B", p->B);
  if (status == GDN2_OK) status = gdn2_check_not_negative("T", p->T);
  if (status == GDN2_OK) status = gdn2_check_not_negative("H", p->H);
  if (status == GDN2_OK) status = gdn2_check_range("K", p->K, 1, GDN2_MAX_DIM);
  return status == GDN2_OK ? gdn2_check_range("V", p->V, 1, GDN2_MAX_DIM) : status;
}

gdn2_status gdn2_check_exec(const gdn2_exec *exec, int64_t useful, int *threads, const gdn2_table **table) {
  if (exec->threads < 0) return gdn2_fail(GDN2_ERR_ARGUMENT, "exec.threads is %d; it must not be negative", exec->threads);
  const int wanted = gdn2_threads(exec->threads);
  *threads = useful < 1 ? 1 : useful < wanted ? (int)useful : wanted;
  return gdn2_table_choose(exec->isa, table);
}

/* The tasks that a call can be cut into. */
static int64_t tasks_of(const gdn2_call *call) { return call->N * call->HV * ((call->V + GDN2_NARROWEST - 1) / GDN2_NARROWEST); }

gdn2_expect gdn2_expect_tokens(const gdn2_call *call, const char *name, int64_t heads, int64_t channels) {
  return (gdn2_expect){.name = name, .size = {call->B, call->T, heads, channels}, .f64 = call->f64};
}

gdn2_expect gdn2_expect_gate(const gdn2_call *call, const char *name, int64_t heads, int64_t channels) {
  return (gdn2_expect){.name = name, .size = {call->B, call->T, heads, channels}, .per_head = 1, .f64 = call->f64};
}

gdn2_expect gdn2_expect_state(const gdn2_call *call, const char *name) {
  return (gdn2_expect){.name = name, .size = {call->N, call->HV, call->K, call->V}, .state = 1, .only_f32 = 1, .f64 = call->f64};
}

gdn2_expect gdn2_expect_parameter(const gdn2_call *call, const char *name, int64_t channels) {
  return (gdn2_expect){
      .name = name, .size = {1, 1, gdn2_g_heads(call), channels}, .per_head = 1, .only_f32 = 1, .f64 = call->f64};
}

static gdn2_expect required(gdn2_expect expect, int is) {
  expect.required = is;
  return expect;
}

static gdn2_status check_inputs(const gdn2_problem *p, gdn2_places *places, gdn2_call *call) {
  const int64_t Hg = gdn2_g_heads(call), Hb = gdn2_b_heads(call);
  const int raw_g = call->decay != GDN2_DECAY_LOG, raw_b = call->erase != GDN2_GATE_GIVEN, raw_w = call->write != GDN2_GATE_GIVEN;
  const gdn2_input_check inputs[] = {
      {&p->q, &call->q, required(gdn2_expect_tokens(call, "q", p->H, p->K), 1)},
      {&p->k, &call->k, required(gdn2_expect_tokens(call, "k", p->H, p->K), 1)},
      {&p->v, &call->v, required(gdn2_expect_tokens(call, "v", call->HV, p->V), 1)},
      {&p->g, &call->g, required(gdn2_expect_gate(call, "g", Hg, p->K), raw_g)},
      {&p->b, &call->b, required(gdn2_expect_gate(call, "b", Hb, p->K), raw_b)},
      {&p->w, &call->w, required(gdn2_expect_gate(call, "w", call->HV, p->V), raw_w)},
      {&p->h0, &call->h0, gdn2_expect_state(call, "h0")},
  };
  return gdn2_check_inputs(inputs, GDN2_COUNT(inputs), places);
}

gdn2_status gdn2_check_problem(const gdn2_problem *problem, const gdn2_exec *exec, gdn2_places *places, gdn2_call *call) {
  gdn2_status status = check_sizes(problem);
  if (status != GDN2_OK) return status;
  *call = (gdn2_call){.B = problem->B, .T = problem->T, .H = problem->H, .K = problem->K, .V = problem->V};
  call->f64 = problem->q.dtype == GDN2_F64;
  call->scale = problem->scale ? *problem->scale : 1.0 / sqrt((double)problem->K);
  status = gdn2_check_finite("scale", call->scale, call->f64);
  if (status == GDN2_OK) status = gdn2_check_heads(problem, call);
  if (status == GDN2_OK) status = gdn2_check_sequences(problem, places, call);
  if (status == GDN2_OK) status = check_product(problem, call);
  if (status == GDN2_OK) status = gdn2_check_gates(problem, places, call);
  if (status == GDN2_OK) status = check_inputs(problem, places, call);
  return status == GDN2_OK ? gdn2_check_exec(exec, tasks_of(call), &call->threads, &call->table) : status;
}

gdn2_status gdn2_workspace_take(const gdn2_exec *exec, size_t bytes, gdn2_places *places, void **workspace, void **owned) {
  *owned = NULL;
  *workspace = exec->workspace;
  if (exec->workspace) {
    if ((uintptr_t)exec->workspace % GDN2_ALIGN)
      return gdn2_fail(GDN2_ERR_WORKSPACE, "exec.workspace is %p; it must be aligned to %d bytes", exec->workspace, GDN2_ALIGN);
    if (exec->workspace_bytes < bytes)
      return gdn2_fail(GDN2_ERR_WORKSPACE, "exec.workspace_bytes is %zu; this call needs %zu", exec->workspace_bytes, bytes);
    return gdn2_places_add_bytes(places, "exec.workspace", exec->workspace, bytes, 1);
  }
  *workspace = *owned = aligned_alloc(GDN2_ALIGN, bytes ? bytes : GDN2_ALIGN);
  if (!*owned) return gdn2_fail(GDN2_ERR_MEMORY, "a workspace of %zu bytes could not be allocated", bytes);
  return GDN2_OK;
}
