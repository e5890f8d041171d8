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

/* B T H K, B T H V and B H K V elements must be addressable, whatever the strides. */
static gdn2_status check_product(const gdn2_problem *p) {
  int64_t count, wide = p->K > p->V ? p->K : p->V;
  int bad = __builtin_mul_overflow(p->B, p->H, &count) || __builtin_mul_overflow(count, wide * wide, &wide);
  bad = bad || __builtin_mul_overflow(count, p->T, &count) || __builtin_mul_overflow(count, GDN2_MAX_DIM, &count);
  if (!bad && count <= INT64_MAX / 8) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "B T H = %" PRId64 " x %" PRId64 " x %" PRId64 " is too large", p->B, p->T, p->H);
}

static gdn2_status check_sizes(const gdn2_problem *p) {
  gdn2_status status = check_count("B", p->B);
  if (status == GDN2_OK) status = check_count("T", p->T);
  if (status == GDN2_OK) status = check_count("H", p->H);
  if (status == GDN2_OK) status = check_dim("K", p->K);
  if (status == GDN2_OK) status = check_dim("V", p->V);
  return status == GDN2_OK ? check_product(p) : status;
}

/* Workers: no more than there are tasks. */
static gdn2_status check_exec(const gdn2_exec *exec, gdn2_call *call) {
  if (exec->threads < 0) return gdn2_fail(GDN2_ERR_ARGUMENT, "exec.threads is %d; it must not be negative", exec->threads);
  const int64_t tasks = call->B * call->H;
  const int threads = gdn2_threads(exec->threads);
  call->threads = tasks < 1 ? 1 : tasks < threads ? (int)tasks : threads;
  return gdn2_table_choose(exec->isa, &call->table);
}

gdn2_expect gdn2_expect_tokens(const gdn2_call *call, const char *name, int64_t channels, int required, int per_head) {
  return (gdn2_expect){name, {call->B, call->T, call->H, channels}, required, 0, per_head};
}

gdn2_expect gdn2_expect_state(const gdn2_call *call, const char *name) {
  return (gdn2_expect){name, {call->B, call->H, call->K, call->V}, 0, 1, 0};
}

static gdn2_status check_inputs(const gdn2_problem *p, gdn2_call *call) {
  const struct {
    const gdn2_input *tensor;
    gdn2_view *view;
    gdn2_expect expect;
  } inputs[] = {
      {&p->q, &call->q, gdn2_expect_tokens(call, "q", p->K, 1, 0)}, {&p->k, &call->k, gdn2_expect_tokens(call, "k", p->K, 1, 0)},
      {&p->v, &call->v, gdn2_expect_tokens(call, "v", p->V, 1, 0)}, {&p->g, &call->g, gdn2_expect_tokens(call, "g", p->K, 0, 1)},
      {&p->b, &call->b, gdn2_expect_tokens(call, "b", p->K, 0, 1)}, {&p->w, &call->w, gdn2_expect_tokens(call, "w", p->V, 0, 1)},
      {&p->h0, &call->h0, gdn2_expect_state(call, "h0")},
  };
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    const gdn2_status status = gdn2_check_input(inputs[i].tensor, &inputs[i].expect, inputs[i].view);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

gdn2_status gdn2_check_problem(const gdn2_problem *problem, const gdn2_exec *exec, gdn2_call *call) {
  gdn2_status status = check_sizes(problem);
  if (status != GDN2_OK) return status;
  *call = (gdn2_call){.B = problem->B, .T = problem->T, .H = problem->H, .K = problem->K, .V = problem->V};
  call->scale = (float)(problem->scale ? *problem->scale : 1.0 / sqrt((double)problem->K));
  status = check_inputs(problem, call);
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
