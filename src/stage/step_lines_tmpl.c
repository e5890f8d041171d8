/* How decode reads and writes a part of a state, whose elements lie side by side in lines. */
#include "stage/step.h"

/* A part of a state: lines of neighbouring elements, `step` bytes apart. */
typedef struct {
  char *at;
  ptrdiff_t step;
} step_lines;

/* Vectors of a line that are taken together. With AVX-512 it is a whole row of 128 float32, which the processor's own fetching
 * ahead can follow; the sums of two keys and as many vectors stay in registers. */
#define STEP_VECS (TILE_ROWS * TILE_VECS >= 24 ? 8 : 4)

/* bfloat16 is widened and rounded two vectors at a time: two instructions where one at a time takes four. The even values of a
 * line are then in one vector and the odd ones in the next. */
INLINE int in_pairs(gdn2_dtype dtype, int vecs) { return dtype == GDN2_BF16 && vecs % 2 == 0; }

/* Vectors of a line; n: lanes of the last. */
INLINE void load_line(gdn2_dtype dtype, int vecs, int n, const char *line, vf *x) {
  UNROLL
  for (int i = 0; i < vecs; i++) {
    if (!in_pairs(dtype, vecs))
      x[i] = any_load(dtype, line, i * VL, i == vecs - 1 ? n : VL);
    else if (i % 2 == 0)
      v_load_bf16_pair((const uint16_t *)(const void *)line + i * VL, &x[i], &x[i + 1]);
  }
}

INLINE void store_line(gdn2_dtype dtype, int vecs, int n, char *line, const vf *x) {
  UNROLL
  for (int i = 0; i < vecs; i++) {
    if (!in_pairs(dtype, vecs))
      any_store(dtype, line, i * VL, x[i], i == vecs - 1 ? n : VL);
    else if (i % 2 == 0)
      v_store_bf16_pair((uint16_t *)(void *)line + i * VL, x[i], x[i + 1]);
  }
}

/* Floats in the order of a line's vectors, and back. */
INLINE void load_floats(gdn2_dtype dtype, int vecs, const float *p, vf *x) {
  UNROLL
  for (int i = 0; i < vecs; i++) {
    if (!in_pairs(dtype, vecs))
      x[i] = v_load(p + i * VL);
    else if (i % 2 == 0)
      v_split(p + i * VL, &x[i], &x[i + 1]);
  }
}

INLINE void store_floats(gdn2_dtype dtype, int vecs, float *p, const vf *x) {
  float room[STEP_VECS * VL];
  UNROLL
  for (int i = 0; i < vecs; i++) v_store(in_pairs(dtype, vecs) ? room + i * VL : p + i * VL, x[i]);
  for (int i = 0; in_pairs(dtype, vecs) && i < vecs * VL; i++) p[i] = room[i / (2 * VL) * 2 * VL + i % 2 * VL + i % (2 * VL) / 2];
}
