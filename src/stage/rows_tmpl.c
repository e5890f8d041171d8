/* How stages read and write the caller's rows, and walk over vectors. */
#include "base/view.h"

/* Channels m .. m+count-1 of token t, count <= VL; lanes beyond hold 0, or the gate's value where it is one for all channels. */
INLINE vf row_load(const gdn2_rows *rows, int64_t t, int m, int count) {
  if (!rows->at) return v_set1(rows->absent);
  const float *at = rows->at + t * rows->step;
  return rows->channel ? v_load_upto(at + m, count) : v_set1(*at);
}

/* x with 0 in the lanes from count on. */
INLINE vf v_head(vf x, int count) {
  float lanes[VL];
  if (count >= VL) return x;
  v_store(lanes, x);
  return v_load_n(lanes, count);
}

/* Calls CALL(vectors, first vector) over groups of MOST (8 or 4) vectors, then 4, 2 and 1, so that each call has a constant size
 * and enough independent sums to hide the latency of an addition. */
#define GROUP (TILE_ROWS * TILE_VECS >= 24 ? 8 : 4)
#define BY_GROUPS(VECTORS, MOST, CALL)                                                                                           \
  do {                                                                                                                           \
    int at = 0;                                                                                                                  \
    for (; at + (MOST) <= (VECTORS); at += (MOST)) CALL(MOST, at);                                                               \
    if ((MOST) > 4 && at + 4 <= (VECTORS)) {                                                                                     \
      CALL(4, at);                                                                                                               \
      at += 4;                                                                                                                   \
    }                                                                                                                            \
    if (at + 2 <= (VECTORS)) {                                                                                                   \
      CALL(2, at);                                                                                                               \
      at += 2;                                                                                                                   \
    }                                                                                                                            \
    if (at < (VECTORS)) CALL(1, at);                                                                                             \
  } while (0)
