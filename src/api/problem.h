/* From public arguments to a validated call, and the workspace around it. */
#ifndef GDN2_API_PROBLEM_H
#define GDN2_API_PROBLEM_H
#include "api/check.h"
#include "drive/drive.h"

gdn2_status gdn2_check_size(size_t given, size_t expected, const char *name);
gdn2_status gdn2_check_problem(const gdn2_problem *problem, const gdn2_exec *exec, gdn2_call *call);

/* Token tensors and states of a checked problem. channels: K or V. */
gdn2_expect gdn2_expect_tokens(const gdn2_call *call, const char *name, int64_t channels, int required, int per_head);
gdn2_expect gdn2_expect_state(const gdn2_call *call, const char *name);

/* The caller's workspace if there is one and it is large enough, else memory of its own, which *owned must be given to free(). */
gdn2_status gdn2_workspace_take(const gdn2_exec *exec, size_t bytes, void **workspace, void **owned);
#endif
