/* One token on a part of a state whose values lie side by side, K x V: a tile of some vectors of values, all keys.
 * step_update_tmpl.c has the equations. */
#include "stage/step.h"

/* The widest tile has STEP_VECS vectors of values; the next narrower one: enough sums to hide the latency of an addition. */
#define STEP_HALF 4
/* Sums that take turns over the keys. */
#define STEP_SETS 2

/* The lines `from`, from + every, ... of so many bytes into the second-level cache: the first holds the part that is at work. */
INLINE void fetch(const char *at, int bytes, int from, int every) {
  UNROLL
  for (int x = 64 * from; x < bytes; x += 64 * every) __builtin_prefetch(at + x, 0, 2);
}

/* `at`; if its line is the second of two that share 128 aligned bytes, the same place in the first. */
INLINE const char *first_of_two(const char *at) { return at ? at - (uintptr_t)at % 128 / 64 * 64 : at; }

INLINE void column_read(gdn2_dtype dtype, int vecs, int n, const char *line, float e, vf *sum) {
  vf S[STEP_VECS];
  load_line(dtype, vecs, n, line, S);
  UNROLL
  for (int x = 0; x < vecs; x++) sum[x] = v_fma(S[x], v_set1(e), sum[x]);
}

/* n: lanes of the last vector that are stored; all are loaded where `from` is a line of the engine's own. */
INLINE void column_write(gdn2_dtype dtype, int own, int vecs, int n, const char *from, char *to, float alpha, float k, float q,
                         const vf *u, vf *sum) {
  vf S[STEP_VECS];
  if (own)
    load_line(GDN2_F32, vecs, VL, from, S);
  else
    load_line(dtype, vecs, n, from, S);
  UNROLL
  for (int x = 0; x < vecs; x++) {
    S[x] = v_fma(v_set1(k), u[x], v_mul(v_set1(alpha), S[x]));
    sum[x] = v_fma(S[x], v_set1(q), sum[x]);
  }
  store_line(dtype, vecs, n, to, S);
}

/* A tile: `count` of its columns are the caller's. */
typedef void column_function(int count, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,
                             const char *next);

/* z, o: of the tile's first value. next: the tile that follows, in lines as far apart as those of `from`. It is fetched in both
 * touches, no faster than memory gives lines (a cache line for every two vectors of the second touch), as more would wait or be
 * dropped. Where the tile is whole rows of float32, its first touch goes through memory in order: the processor fetches ahead
 * itself, and half the lines are left to it: of every two that share 128 aligned bytes the second, which comes with the first. */
INLINE void column_tile(gdn2_dtype dtype, int own, int vecs, int n, int K, step_lines from, step_lines to, step_token t,
                        const float *z, float *o, const char *next) {
  const gdn2_dtype from_dtype = own ? GDN2_F32 : dtype;
  const int from_n = own ? VL : n;
  vf sum[STEP_SETS][STEP_VECS], u[STEP_VECS];
  const int bytes = vecs * VL * (dtype == GDN2_F32 ? 4 : 2), every = dtype == GDN2_F32 ? 2 : 1;
  const int early = next && every > 1 && from.step != bytes;
  const char *const late = every > 1 && from.step == bytes ? first_of_two(next) : next;
  UNROLL
  for (int x = 0; x < STEP_SETS * vecs; x++) sum[x / vecs][x % vecs] = v_zero();
  int c = 0;
  for (; c + STEP_SETS <= K; c += STEP_SETS) {
    UNROLL
    for (int i = 0; i < STEP_SETS; i++) {
      column_read(from_dtype, vecs, from_n, from.at + (c + i) * from.step, t.e[c + i], sum[i]);
      if (early) fetch(next + (c + i) * from.step, bytes, 1, 2);
    }
  }
  if (c < K) column_read(from_dtype, vecs, from_n, from.at + c * from.step, t.e[c], sum[0]);
  load_floats(dtype, vecs, z, u);
  UNROLL
  for (int x = 0; x < vecs; x++) u[x] = v_sub(u[x], v_add(sum[0][x], sum[1][x]));
  UNROLL
  for (int x = 0; x < STEP_SETS * vecs; x++) sum[x / vecs][x % vecs] = v_zero();
  for (c = 0; c + STEP_SETS <= K; c += STEP_SETS) {
    UNROLL
    for (int i = 0; i < STEP_SETS; i++) {
      const int m = c + i;
      column_write(dtype, own, vecs, n, from.at + m * from.step, to.at + m * to.step, t.alpha[m], t.k[m], t.q[m], u, sum[i]);
      if (next) fetch(late + m * from.step, bytes, 0, every);
    }
  }
  if (c < K)
    column_write(dtype, own, vecs, n, from.at + c * from.step, to.at + c * to.step, t.alpha[c], t.k[c], t.q[c], u, sum[0]);
  UNROLL
  for (int x = 0; x < vecs; x++) sum[0][x] = v_add(sum[0][x], sum[1][x]);
  store_floats(dtype, vecs, o, sum[0]);
}

/* Less than a vector of columns: where lines lie close together, a masked load overlaps the masked store of the line before, and
 * would wait for it. All lines are read before the first is written. */
INLINE void column_rest(gdn2_dtype dtype, int n, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,
                        const char *next) {
  _Alignas(64) float room[GDN2_MAX_DIM * VL];
  for (int c = 0; c < K; c++) v_store(room + c * VL, any_load(dtype, from.at + c * from.step, 0, n));
  const step_lines lines = {(char *)room, VL * (ptrdiff_t)sizeof *room};
  column_tile(dtype, 1, 1, n, K, lines, to, t, z, o, next);
}

/* Columns of the tile that so many begin with. */
INLINE int tile_width(int left) {
  if (left >= STEP_VECS * VL) return STEP_VECS * VL;
  if (left >= STEP_HALF * VL) return STEP_HALF * VL;
  return left < VL ? left : VL;
}

/* `width` columns. */
INLINE void columns(gdn2_dtype dtype, column_function *wide, column_function *half, column_function *narrow, int width, int K,
                    step_lines from, step_lines to, step_token t, const float *z, float *o, const char *next) {
  const int size = dtype == GDN2_F32 ? 4 : 2;
  for (int v = 0; v < width;) {
    const int left = width - v, n = tile_width(left);
    const step_lines a = {from.at + v * size, from.step}, b = {to.at + v * size, to.step};
    column_function *tile = n == STEP_VECS * VL ? wide : n == STEP_HALF * VL ? half : narrow;
    tile(n, K, a, b, t, z + v, o + v, left > n ? a.at + n * size : next);
    v += n;
  }
}

/* ---- Several tokens ------------------------------------------------------------------------------------------------------- */

/* The second touch of a token is the first touch of the next: one sweep a token, which is bound by its multiply-adds, where two
 * are by their loads. float32; every sum in the order of column_tile. */

/* Vectors of a tile: four sums, u and four factors of a line stay in registers. */
#define SWEEP_VECS (TILE_ROWS * TILE_VECS >= 24 ? 4 : 2)

/* follows: read += S e, for the next token. */
INLINE void sweep_line(int vecs, int follows, const char *from, char *to, float alpha, float k, float q, float e, const vf *u,
                       vf *sum, vf *read) {
  vf S[SWEEP_VECS];
  load_line(GDN2_F32, vecs, VL, from, S);
  UNROLL
  for (int x = 0; x < vecs; x++) {
    S[x] = v_fma(v_set1(k), u[x], v_mul(v_set1(alpha), S[x]));
    sum[x] = v_fma(S[x], v_set1(q), sum[x]);
    if (follows) read[x] = v_fma(S[x], v_set1(e), read[x]);
  }
  store_line(GDN2_F32, vecs, VL, to, S);
}

/* r: what the token reads; then, if a token follows, what that one does, whose erase key is e. */
INLINE void sweep_tile(int vecs, int follows, int K, step_lines from, step_lines to, step_token t, const float *e, const float *z,
                       float *r, float *o) {
  vf sum[STEP_SETS][SWEEP_VECS], read[STEP_SETS][SWEEP_VECS], u[SWEEP_VECS];
  UNROLL
  for (int x = 0; x < vecs; x++) u[x] = v_sub(v_load(z + x * VL), v_load(r + x * VL));
  UNROLL
  for (int x = 0; x < STEP_SETS * vecs; x++) sum[x / vecs][x % vecs] = read[x / vecs][x % vecs] = v_zero();
  int c = 0;
  for (; c + STEP_SETS <= K; c += STEP_SETS) {
    UNROLL
    for (int i = 0; i < STEP_SETS; i++) {
      const int m = c + i;
      sweep_line(vecs, follows, from.at + m * from.step, to.at + m * to.step, t.alpha[m], t.k[m], t.q[m], follows ? e[m] : 0.0f,
                 u, sum[i], read[i]);
    }
  }
  if (c < K)
    sweep_line(vecs, follows, from.at + c * from.step, to.at + c * to.step, t.alpha[c], t.k[c], t.q[c], follows ? e[c] : 0.0f, u,
               sum[0], read[0]);
  UNROLL
  for (int x = 0; x < vecs; x++) {
    v_store(o + x * VL, v_add(sum[0][x], sum[1][x]));
    if (follows) v_store(r + x * VL, v_add(read[0][x], read[1][x]));
  }
}

/* The first touch of the first token: r = S^T e. */
INLINE void first_tile(int vecs, int K, step_lines from, const float *e, float *r) {
  vf sum[STEP_SETS][STEP_VECS];
  UNROLL
  for (int x = 0; x < STEP_SETS * vecs; x++) sum[x / vecs][x % vecs] = v_zero();
  int c = 0;
  for (; c + STEP_SETS <= K; c += STEP_SETS) {
    UNROLL
    for (int i = 0; i < STEP_SETS; i++) column_read(GDN2_F32, vecs, VL, from.at + (c + i) * from.step, e[c + i], sum[i]);
  }
  if (c < K) column_read(GDN2_F32, vecs, VL, from.at + c * from.step, e[c], sum[0]);
  UNROLL
  for (int x = 0; x < vecs; x++) v_store(r + x * VL, v_add(sum[0][x], sum[1][x]));
}

STAGE void sweep_wide(int K, step_lines from, step_lines to, step_token t, const float *e, const float *z, float *r, float *o) {
  if (e)
    sweep_tile(SWEEP_VECS, 1, K, from, to, t, e, z, r, o);
  else
    sweep_tile(SWEEP_VECS, 0, K, from, to, t, e, z, r, o);
}

STAGE void sweep_narrow(int K, step_lines from, step_lines to, step_token t, const float *e, const float *z, float *r, float *o) {
  if (e)
    sweep_tile(1, 1, K, from, to, t, e, z, r, o);
  else
    sweep_tile(1, 0, K, from, to, t, e, z, r, o);
}

/* `width` columns, whole vectors. e: the next token's erase key; NULL: no token follows. */
STAGE void sweep(int width, int K, step_lines from, step_lines to, step_token t, const float *e, const float *z, float *r,
                 float *o) {
  for (int v = 0; v < width;) {
    const int full = width - v >= SWEEP_VECS * VL;
    const step_lines a = {from.at + v * (ptrdiff_t)sizeof(float), from.step}, b = {to.at + v * (ptrdiff_t)sizeof(float), to.step};
    (full ? sweep_wide : sweep_narrow)(K, a, b, t, e, z + v, r + v, o + v);
    v += full ? SWEEP_VECS * VL : VL;
  }
}

STAGE void first_reads(int width, int K, step_lines from, const float *e, float *r) {
  for (int v = 0; v < width;) {
    const int full = width - v >= STEP_HALF * VL;
    const step_lines a = {from.at + v * (ptrdiff_t)sizeof(float), from.step};
    if (full)
      first_tile(STEP_HALF, K, a, e, r + v);
    else
      first_tile(1, K, a, e, r + v);
    v += full ? STEP_HALF * VL : VL;
  }
}
