/* One token on a part of a state, read twice and written once.
 *
 *     r  = S^T (alpha b k)                         first touch
 *     S' = alpha S + k (z - r)^T,  o = S'^T q      second touch, while the part is in the first-level cache or near it
 *
 * Stable: the recurrence itself, (1) to (4). A state of 16 bits is widened in registers and rounded as it is stored. Sums over
 * the keys are made in one order for columns and one for rows, whatever the tile. Cost: 4 K V multiply-adds. */
#include "stage/step.h"
#include "stage/step_lines_tmpl.c"
#include "stage/step_columns_tmpl.c"
#include "stage/step_rows_tmpl.c"

/* by_rows: the keys lie side by side. width: values of the part, whose z and o are given. The tiles are functions of their own:
 * what one of them keeps in registers, another need not set up. */
#define STEP_UPDATE(TYPE, DTYPE)                                                                                                 \
  STAGE void wide_##TYPE(int count, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,               \
                         const char *next) {                                                                                     \
    (void)count;                                                                                                                 \
    column_tile(DTYPE, 0, STEP_VECS, VL, K, from, to, t, z, o, next);                                                            \
  }                                                                                                                              \
  STAGE void half_##TYPE(int count, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,               \
                         const char *next) {                                                                                     \
    (void)count;                                                                                                                 \
    column_tile(DTYPE, 0, STEP_HALF, VL, K, from, to, t, z, o, next);                                                            \
  }                                                                                                                              \
  STAGE void narrow_##TYPE(int count, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,             \
                           const char *next) {                                                                                   \
    if (count == VL)                                                                                                             \
      column_tile(DTYPE, 0, 1, VL, K, from, to, t, z, o, next);                                                                  \
    else                                                                                                                         \
      column_rest(DTYPE, count, K, from, to, t, z, o, next);                                                                     \
  }                                                                                                                              \
  STAGE void eight_##TYPE(int K, step_lines from, step_lines to, step_token t, const float *z, float *o, step_wanted wanted) {   \
    row_tile(DTYPE, STEP_ROWS, K, from, to, t, z, o, wanted);                                                                    \
  }                                                                                                                              \
  STAGE void one_##TYPE(int K, step_lines from, step_lines to, step_token t, const float *z, float *o, step_wanted wanted) {     \
    row_tile(DTYPE, 1, K, from, to, t, z, o, wanted);                                                                            \
  }                                                                                                                              \
  INLINE void update_##TYPE(int by_rows, int width, int K, step_lines from, step_lines to, step_token t, const float *z,         \
                            float *o, const char *next) {                                                                        \
    if (by_rows)                                                                                                                 \
      rows_of_values(eight_##TYPE, one_##TYPE, width, K, from, to, t, z, o, next);                                               \
    else                                                                                                                         \
      columns(DTYPE, wide_##TYPE, half_##TYPE, narrow_##TYPE, width, K, from, to, t, z, o, next);                                \
  }
STEP_UPDATE(f32, GDN2_F32)
STEP_UPDATE(bf16, GDN2_BF16)
STEP_UPDATE(f16, GDN2_F16)
