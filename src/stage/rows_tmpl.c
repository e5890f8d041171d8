/* How stages read and write the caller's rows, and walk over vectors. */
#include "base/view.h"

/* Numbers `index` .. index+n-1 of an array, whose type the compiler may know or not, and no more than a vector of them; lanes
 * beyond hold 0. */
INLINE vf any_load(gdn2_dtype dtype, const char *at, int64_t index, int n) {
  if (dtype == GDN2_F32) return v_load_upto((const float *)(const void *)at + index, n);
  const uint16_t *half = (const uint16_t *)(const void *)at + index;
  return dtype == GDN2_BF16 ? v_load_bf16(half, n) : v_load_f16(half, n);
}

/* Rounded once. */
INLINE void any_store(gdn2_dtype dtype, char *at, int64_t index, vf x, int n) {
  uint16_t *half = (uint16_t *)(void *)at + index;
  if (dtype == GDN2_F32)
    v_store_upto((float *)(void *)at + index, x, n);
  else if (dtype == GDN2_BF16)
    v_store_bf16(half, x, n);
  else
    v_store_f16(half, x, n);
}

/* The same of two whole vectors, a and then b; stream: past the caches. */
INLINE void any_store_two(gdn2_dtype dtype, int stream, char *at, int64_t index, vf a, vf b) {
  float *single = (float *)(void *)at + index;
  uint16_t *half = (uint16_t *)(void *)at + index;
  if (stream && dtype == GDN2_F32) {
    v_stream(single, a);
    v_stream(single + VL, b);
  } else if (stream && dtype == GDN2_BF16) {
    v_stream_bf16_two(half, a, b);
  } else if (dtype == GDN2_BF16) {
    v_store_bf16_two(half, a, b);
  } else {
    any_store(dtype, at, index, a, VL);
    any_store(dtype, at, index + VL, b, VL);
  }
}

/* Whether two vectors of every row begin where they may be streamed to: rows are whole cache lines. */
INLINE int rows_streamable(const gdn2_rows_out *rows) {
  const uintptr_t step = (uintptr_t)(rows->step * gdn2_dtype_size(rows->dtype));
  return (((uintptr_t)rows->at | step) & 63) == 0;
}

/* Channels m .. m+count-1 of token t, count <= VL; lanes beyond hold 0, or the gate's value where it is one for all channels. */
INLINE vf row_load(const gdn2_rows *rows, int64_t t, int m, int count) {
  if (!rows->at) return v_set1(rows->absent);
  const int64_t row = t * rows->step;
  if (!rows->channel) return v_set1(gdn2_number_at(rows->at + row * gdn2_dtype_size(rows->dtype), rows->dtype));
  return any_load(rows->dtype, rows->at, row + m, count);
}

/* `vecs` vectors of token t from channel m on, of which `count` channels exist, widened or spread into room; beyond them as
 * row_load has it. */
STAGE void row_widen(const gdn2_rows *rows, int64_t t, int m, int vecs, int count, float *room) {
  if (!rows->at || !rows->channel) {
    const vf value = row_load(rows, t, 0, VL);
    for (int x = 0; x < vecs * VL; x += VL) v_store(room + x, value);
    return;
  }
  const int full = count < vecs * VL ? count / VL * VL : vecs * VL;
  const uint16_t *at = (const uint16_t *)(const void *)rows->at + t * rows->step + m;
  if (rows->dtype == GDN2_BF16)
    for (int x = 0; x < full; x += VL) v_store(room + x, v_load_bf16(at + x, VL));
  else
    for (int x = 0; x < full; x += VL) v_store(room + x, v_load_f16(at + x, VL));
  for (int x = full; x < vecs * VL; x += VL) v_store(room + x, row_load(rows, t, m + x, count > x ? count - x : 0));
}

/* Whether rows can be read where they lie, and where token t's lies then. */
INLINE int rows_plain(const gdn2_rows *rows) { return rows->at && rows->channel && rows->dtype == GDN2_F32; }
INLINE const float *row_plain(const gdn2_rows *rows, int64_t t) { return (const float *)(const void *)rows->at + t * rows->step; }

/* What row_widen makes, as floats: where the caller has them so, there; else in room. In the first case what lies beyond the last
 * of `channels` channels must not be read. */
INLINE const float *row_ready(const gdn2_rows *rows, int64_t t, int m, int vecs, int channels, float *room) {
  if (rows_plain(rows)) return row_plain(rows, t) + m;
  row_widen(rows, t, m, vecs, channels - m, room);
  return room;
}

/* Stores channels m .. m+count-1 of token t, rounded once. */
INLINE void row_store(const gdn2_rows_out *rows, int64_t t, int m, vf x, int count) {
  any_store(rows->dtype, rows->at, t * rows->step + m, x, count);
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
