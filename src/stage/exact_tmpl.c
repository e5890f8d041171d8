/* The exact engine's stages, in the order the data flows. */
#include "stage/rows_tmpl.c"
#include "stage/exact_activation_tmpl.c"
#include "stage/exact_state_tmpl.c"
#include "stage/exact_load_tmpl.c"
#include "stage/exact_scores_tmpl.c"
#include "stage/exact_products_tmpl.c"
#include "stage/exact_solve_tmpl.c"
#include "stage/exact_adjoint_tmpl.c"
#include "stage/exact_back_tmpl.c"
#include "stage/exact_intra_tmpl.c"
#include "stage/exact_gates_tmpl.c"
#include "stage/exact_chain_tmpl.c"

#define GDN2_EXACT_STAGES                                                                                                        \
  {                                                                                                                              \
    .state_load = state_load, .state_store = state_store, .scores = stage_scores, .project = stage_project,                      \
    .project_zeros = stage_project_zeros, .update = stage_update, .solve = stage_solve, .output = stage_output,                  \
    .rows_load = stage_rows_load, .rows_store = stage_rows_store, .clear = stage_clear, .adjoint_solve = stage_adjoint_solve,    \
    .back_project = stage_back_project, .gates = stage_gates, .values = stage_values, .chain = stage_chain,                      \
    .collect = stage_collect,                                                                                                    \
  }
