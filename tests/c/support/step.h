/* Decode with all its options: a case of width.h, its states in a pool, and its call of gdn2_step. */
#ifndef TEST_STEP_H
#define TEST_STEP_H
#include "width.h"

/* Where the states lie. All zero: float32, K x V, contiguous, in place, row n in slot n of N. */
typedef struct step_how {
  gdn2_dtype dtype, to_dtype;      /* of the states; to_dtype where they go elsewhere */
  const width_layout *layout, *to; /* NULL: contiguous; to == NULL: in place */
  const int64_t *slot;             /* [N] */
  gdn2_index slot_type;
  int64_t slots;
  gdn2_exec exec;
} step_how;

extern const width_layout step_rows;   /* V x K: keys side by side */
extern const width_layout step_spread; /* gaps everywhere, axes turned round, some of them backwards: neither inner stride is 1 */

typedef struct step_call {
  width_call inputs;
  width_buffer from, to; /* one and the same in place; elements of slots that no row has hold the mark */
  void *slot;
  gdn2_step_args args;
} step_call;

/* Inputs packed and locked, states in their slots, outputs marked. */
step_call step_call_new(const width_case *c, gdn2_dtype o_dtype, const step_how *how);
/* Runs and fails on any status but GDN2_OK; h_final: the states of the rows (of skipped ones: zeros). */
width_result step_call_run(const width_case *c, step_call *call, const step_how *how);
width_result step_run(const width_case *c, gdn2_dtype o_dtype, const step_how *how);

/* An array of row indices of the type, and of the tokens [first, first + count) of every row of a case. */
void *step_indices(const int64_t *values, size_t count, gdn2_index type);
width_case step_tokens(const width_case *c, int64_t first, int64_t count);
/* The states [N, HV, K, V] become the case's h0. */
void step_take_states(width_case *c, const float *states);

/* o as width_expect_right has it; the state within that of rounding it once to its type. */
void step_expect_right(const width_case *c, const width_result *got, const width_truth *want, gdn2_dtype state, double bound);
#endif
