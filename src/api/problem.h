/* From public arguments to a validated call, and the workspace around it. */
#ifndef GDN2_API_PROBLEM_H
#define GDN2_API_PROBLEM_H
#include "api/check.h"
#include "drive/drive.h"

gdn2_status gdn2_check_size(size_t given, size_t expected, const char *name);
/* The workers of a call, of which no more than `useful` are, and its table. */
gdn2_status gdn2_check_exec(const gdn2_exec *exec, int64_t useful, int *threads, const gdn2_table **table);
gdn2_status gdn2_check_problem(const gdn2_problem *problem, const gdn2_exec *exec, gdn2_places *places, gdn2_call *call);

/* The optional parts of a problem, each into its place in the call. */
gdn2_status gdn2_check_heads(const gdn2_problem *problem, gdn2_call *call);
gdn2_status gdn2_check_sequences(const gdn2_problem *problem, gdn2_places *places, gdn2_call *call);
gdn2_status gdn2_check_gates(const gdn2_problem *problem, gdn2_places *places, gdn2_call *call);

/* States on the way through a checked problem; written: by the call. */
/* What the residual that the forward leaves to the backward must be; absent in float64. */
gdn2_status gdn2_expect_residual(const gdn2_call *call, int given, gdn2_expect *expect);
gdn2_status gdn2_check_snapshots(const gdn2_call *call, const gdn2_states *snapshots, int64_t every, int written,
                                 gdn2_places *places, gdn2_states_view *view);

/* What token tensors, gates (which may be one number per head) and states of a checked problem must be: sizes, and the type,
 * which is float64 where q's is. */
gdn2_expect gdn2_expect_tokens(const gdn2_call *call, const char *name, int64_t heads, int64_t channels);
gdn2_expect gdn2_expect_gate(const gdn2_call *call, const char *name, int64_t heads, int64_t channels);
gdn2_expect gdn2_expect_state(const gdn2_call *call, const char *name);
/* A_log (one channel), dt_bias and their gradients. */
gdn2_expect gdn2_expect_parameter(const gdn2_call *call, const char *name, int64_t channels);

/* The caller's workspace if there is one, it is large enough and lies in no tensor of the call, else memory of its own, which
 * *owned must be given to free(). */
gdn2_status gdn2_workspace_take(const gdn2_exec *exec, size_t bytes, gdn2_places *places, void **workspace, void **owned);
#endif
