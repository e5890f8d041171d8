#include "api/problem.h"
#include "base/arena.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

gdn2_status gdn2_check_size(size_t given, size_t expected, const char *name) {
  if (given == expected) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "struct_size is %zu; it must be sizeof(%s), %zu", given, name, expected);
}

static gdn2_status check_count(const char *name, int64_t value) {
  if (value >= 0) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must not be negative", name, value);
}

static gdn2_status check_dim(const char *name, int64_t value) {
  if (value >= 1 && value <= GDN2_MAX_DIM) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must be from 1 to %d", name, value, GDN2_MAX_DIM);
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
  gdn2_status status = check_count("B", p->B);
  if (status == GDN2_OK) status = check_count("T", p->T);
  if (status == GDN2_OK) status = check_count("H", p->H);
  if (status == GDN2_OK) status = check_dim("K", p->K);
  return status == GDN2_OK ? check_dim("V", p->V) : status;
}

/* Workers: no more than there are tasks. */
static gdn2_status check_exec(const gdn2_exec *exec, gdn2_call *call) {
  if (exec->threads < 0) return gdn2_fail(GDN2_ERR_ARGUMENT, "exec.threads is %d; it must not be negative", exec->threads);
  const int64_t tasks = call->N * call->HV * ((call->V + GDN2_NARROWEST - 1) / GDN2_NARROWEST);
  const int threads = gdn2_threads(exec->threads);
  call->threads = tasks < 1 ? 1 : tasks < threads ? (int)tasks : threads;
  return gdn2_table_choose(exec->isa, &call->table);
}

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
  const int64_t heads = call->g_key_heads ? call->H : call->HV;
  return (gdn2_expect){.name = name, .size = {1, 1, heads, channels}, .per_head = 1, .only_f32 = 1, .f64 = call->f64};
}

static gdn2_status check_inputs(const gdn2_problem *p, gdn2_call *call) {
  const int64_t Hg = call->g_key_heads ? call->H : call->HV, Hb = call->b_key_heads ? call->H : call->HV;
  const struct {
    const gdn2_input *tensor;
    gdn2_view *view;
    gdn2_expect expect;
    int required;
  } inputs[] = {
      {&p->q, &call->q, gdn2_expect_tokens(call, "q", p->H, p->K), 1},
      {&p->k, &call->k, gdn2_expect_tokens(call, "k", p->H, p->K), 1},
      {&p->v, &call->v, gdn2_expect_tokens(call, "v", call->HV, p->V), 1},
      {&p->g, &call->g, gdn2_expect_gate(call, "g", Hg, p->K), call->decay != GDN2_DECAY_LOG},
      {&p->b, &call->b, gdn2_expect_gate(call, "b", Hb, p->K), call->erase != GDN2_GATE_GIVEN},
      {&p->w, &call->w, gdn2_expect_gate(call, "w", call->HV, p->V), call->write != GDN2_GATE_GIVEN},
      {&p->h0, &call->h0, gdn2_expect_state(call, "h0"), 0},
  };
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    gdn2_expect expect = inputs[i].expect;
    expect.required = inputs[i].required;
    const gdn2_status status = gdn2_check_input(inputs[i].tensor, &expect, inputs[i].view);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

gdn2_status gdn2_check_problem(const gdn2_problem *problem, const gdn2_exec *exec, gdn2_call *call) {
  gdn2_status status = check_sizes(problem);
  if (status != GDN2_OK) return status;
  *call = (gdn2_call){.B = problem->B, .T = problem->T, .H = problem->H, .K = problem->K, .V = problem->V};
  call->f64 = problem->q.dtype == GDN2_F64;
  call->scale = problem->scale ? *problem->scale : 1.0 / sqrt((double)problem->K);
  status = gdn2_check_heads(problem, call);
  if (status == GDN2_OK) status = gdn2_check_sequences(problem, call);
  if (status == GDN2_OK) status = check_product(problem, call);
  if (status == GDN2_OK) status = gdn2_check_gates(problem, call);
  if (status == GDN2_OK) status = check_inputs(problem, call);
  return status == GDN2_OK ? check_exec(exec, call) : status;
}

gdn2_status gdn2_workspace_take(const gdn2_exec *exec, size_t bytes, void **workspace, void **owned) {
  *owned = NULL;
  *workspace = exec->workspace;
  if (exec->workspace) {
    if ((uintptr_t)exec->workspace % GDN2_ALIGN)
      return gdn2_fail(GDN2_ERR_WORKSPACE, "exec.workspace is %p; it must be aligned to %d bytes", exec->workspace, GDN2_ALIGN);
    if (exec->workspace_bytes < bytes)
      return gdn2_fail(GDN2_ERR_WORKSPACE, "exec.workspace_bytes is %zu; this call needs %zu", exec->workspace_bytes, bytes);
    return GDN2_OK;
  }
  *workspace = *owned = aligned_alloc(GDN2_ALIGN, bytes ? bytes : GDN2_ALIGN);
  if (!*owned) return gdn2_fail(GDN2_ERR_MEMORY, "a workspace of %zu bytes could not be allocated", bytes);
  return GDN2_OK;
}
