/* The stages of the seed's pipeline, in the order the data flows. */
#include "stage/seed_values_tmpl.c"
#include "stage/seed_scores_tmpl.c"
#include "stage/seed_solve_tmpl.c"
#include "stage/seed_forward_tmpl.c"
#include "stage/seed_backward_tmpl.c"
#include "stage/seed_intra_tmpl.c"
#include "stage/seed_assemble_tmpl.c"
#include "stage/seed_reference_tmpl.c"

#define GDN2_SEED_STAGES                                                                                                         \
  {                                                                                                                              \
    .sanitize = seed_sanitize, .inspect = seed_inspect, .sums = seed_sums, .reverse_sums = seed_reverse_sums,                    \
    .scores = seed_scores, .solve = seed_solve, .rebuild = seed_rebuild, .combine = seed_combine, .dav = seed_dav,               \
    .dhu = seed_dhu, .wy = seed_wy, .intra = seed_intra, .assemble = seed_assemble, .token = seed_token,                         \
    .chunked = seed_chunked,                                                                                                     \
  }
