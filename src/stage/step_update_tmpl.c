/* One token on a part of a state, read twice and written once.
 *
 *     r  = S^T (alpha b k)                         first touch
 *     S' = alpha S + k (z - r)^T,  o = S'^T q      second touch, while the part is in the first-level cache or near it
 *
 * Stable: the recurrence itself, (1) to (4). A state of 16 bits is widened in registers and rounded as it is stored. Columns
 * (values side by side in memory): a tile of some vectors of values, all keys. Rows (keys side by side): eight values at a time.
 * Sums over the keys are made in one order for each form, whatever the tile. Cost: 4 K V multiply-adds. */
#include "stage/step.h"

/* Vectors of the widest tile of columns: the sums of two keys and u stay in registers. With AVX-512 it is a whole row of 128
 * float32, which the processor's own fetching ahead can follow. */
#define STEP_VECS (TILE_ROWS * TILE_VECS >= 24 ? 8 : 4)
/* The next narrower one: enough sums to hide the latency of an addition. */
#define STEP_HALF 4
/* Sums that take turns over the keys. */
#define STEP_SETS 2
#define STEP_ROWS 8

/* A part of a state: lines of neighbouring elements, `step` bytes apart. */
typedef struct {
  char *at;
  ptrdiff_t step;
} step_lines;

/* The lines `from`, from + every, ... of so many bytes into the second-level cache: the first holds the part that is at work. */
INLINE void fetch(const char *at, int bytes, int from, int every) {
  UNROLL
  for (int x = 64 * from; x < bytes; x += 64 * every) __builtin_prefetch(at + x, 0, 2);
}

/* `at`; if its line is the second of two that share 128 aligned bytes, the same place in the first. */
INLINE const char *first_of_two(const char *at) { return at ? at - (uintptr_t)at % 128 / 64 * 64 : at; }

/* ---- Columns -------------------------------------------------------------------------------------------------------------- */

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

/* ---- Columns, several tokens ---------------------------------------------------------------------------------------------- */

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

/* ---- Rows ----------------------------------------------------------------------------------------------------------------- */

/* What to fetch while a tile is written, in the order of memory: the tile that follows, for the first-level cache, and one that
 * is wanted later, for the second. */
typedef struct {
  const char *next, *later;
} step_wanted;

/* The same on its way, a unit after every vector of the tile's rows. Rows are a whole number of units, or taken to lie close
 * together. */
typedef struct {
  const char *next, *later;
  ptrdiff_t gap; /* from row to row */
  int row, left; /* bytes */
} step_fetch;

INLINE step_fetch fetch_of(step_wanted wanted, ptrdiff_t step, int row, int unit) {
  return (step_fetch){wanted.next, wanted.later, row % unit == 0 ? step - row : 0, row, row};
}

INLINE void fetch_unit(step_fetch *f, int unit) {
  UNROLL
  for (int x = 0; x < unit; x += 64) {
    __builtin_prefetch(f->next + x, 0, 3);
    __builtin_prefetch(f->later + x, 0, 2);
  }
  f->next += unit, f->later += unit, f->left -= unit;
  if (f->left > 0) return;
  f->next += f->gap, f->later += f->gap, f->left = f->row;
}

/* A tile's rows: two pointers with three offsets each. */
typedef struct {
  char *at, *at4;
  ptrdiff_t step;
} step_tile;

INLINE step_tile tile_of(int rows, step_lines x) {
  step_tile tile = {x.at, rows > 4 ? x.at + 4 * x.step : x.at, x.step};
  /* As in product_tile: the compiler must not see through at4. */
  __asm__ volatile("" : "+r"(tile.at4), "+r"(tile.step));
  return tile;
}
INLINE char *tile_row(step_tile tile, int i) { return i < 4 ? tile.at + i * tile.step : tile.at4 + (i - 4) * tile.step; }
INLINE void tile_move(step_tile *tile, int bytes) { tile->at += bytes, tile->at4 += bytes; }

/* `vecs` vectors of keys from m on, one or a pair; count: lanes of the last. */
INLINE void row_read(gdn2_dtype dtype, int vecs, int rows, step_tile *from, step_token t, int m, int count, vf *sum) {
  vf e[2], S[2];
  load_floats(dtype, vecs, t.e + m, e);
  UNROLL
  for (int i = 0; i < rows; i++) {
    load_line(dtype, vecs, count, tile_row(*from, i), S);
    UNROLL
    for (int x = 0; x < vecs; x++) sum[i] = v_fma(S[x], e[x], sum[i]);
  }
  tile_move(from, vecs * VL * (dtype == GDN2_F32 ? 4 : 2));
}

/* Of less than a vector all rows are read before the first is written: see column_rest. */
INLINE void row_write(gdn2_dtype dtype, int vecs, int rows, step_tile *from, step_tile *to, step_token t, int m, int count,
                      const float *u, vf *sum) {
  const int bytes = vecs * VL * (dtype == GDN2_F32 ? 4 : 2);
  vf alpha[2], k[2], q[2], S[STEP_ROWS][2];
  load_floats(dtype, vecs, t.alpha + m, alpha);
  load_floats(dtype, vecs, t.k + m, k);
  load_floats(dtype, vecs, t.q + m, q);
  UNROLL
  for (int i = 0; i < rows; i++) {
    load_line(dtype, vecs, count, tile_row(*from, i), S[i]);
    UNROLL
    for (int x = 0; x < vecs; x++) {
      S[i][x] = v_fma(k[x], v_set1(u[i]), v_mul(alpha[x], S[i][x]));
      sum[i] = v_fma(S[i][x], q[x], sum[i]);
    }
    if (count == VL) store_line(dtype, vecs, VL, tile_row(*to, i), S[i]);
  }
  UNROLL
  for (int i = 0; count < VL && i < rows; i++) store_line(dtype, vecs, count, tile_row(*to, i), S[i]);
  tile_move(from, bytes);
  tile_move(to, bytes);
}

/* The lane sums of eight vectors, or of the first. */
INLINE void row_sums(int rows, vf *sum, float *out) {
  UNROLL
  for (int i = 0; i < rows; i++) out[i] = 0;
  if (rows == STEP_ROWS)
    v_add_sums(sum, out, out + 4);
  else
    out[0] += v_sum(sum[0]);
}

INLINE void row_tile(gdn2_dtype dtype, int rows, int K, step_lines from, step_lines to, step_token t, const float *z, float *o,
                     step_wanted wanted) {
  vf sum[STEP_ROWS];
  float u[STEP_ROWS];
  const int most = dtype == GDN2_BF16 ? 2 : 1, pairs = K / (most * VL) * most * VL, full = K / VL * VL;
  const int size = dtype == GDN2_F32 ? 4 : 2, unit = rows * most * VL * size;
  step_tile read = tile_of(rows, from), again = tile_of(rows, from), write = tile_of(rows, to);
  step_fetch ahead = fetch_of(wanted, from.step, K * size, unit);
  UNROLL
  for (int i = 0; i < rows; i++) sum[i] = v_zero();
  for (int m = 0; m < pairs; m += most * VL) row_read(dtype, most, rows, &read, t, m, VL, sum);
  if (pairs < full) row_read(dtype, 1, rows, &read, t, pairs, VL, sum);
  if (full < K) row_read(dtype, 1, rows, &read, t, full, K - full, sum);
  row_sums(rows, sum, u);
  UNROLL
  for (int i = 0; i < rows; i++) u[i] = z[i] - u[i], sum[i] = v_zero();
  for (int m = 0; m < pairs; m += most * VL) {
    row_write(dtype, most, rows, &again, &write, t, m, VL, u, sum);
    fetch_unit(&ahead, unit);
  }
  if (pairs < full) row_write(dtype, 1, rows, &again, &write, t, pairs, VL, u, sum);
  if (full < K) row_write(dtype, 1, rows, &again, &write, t, full, K - full, u, sum);
  row_sums(rows, sum, o);
}

typedef void row_function(int K, step_lines from, step_lines to, step_token t, const float *z, float *o, step_wanted wanted);

/* Rows are fetched so many bytes ahead: memory has a third of a microsecond or more to bring a tile. */
#define STEP_AHEAD 32768

/* Rows of that, whole tiles, no more than a head's. */
INLINE int rows_ahead(int count, ptrdiff_t step) {
  const ptrdiff_t bytes = step < 0 ? -step : step, rows = STEP_AHEAD / (bytes > 0 ? bytes : 1) / STEP_ROWS * STEP_ROWS;
  return rows < STEP_ROWS ? STEP_ROWS : rows < count ? (int)rows : count;
}

/* The row that comes so many after the first of `left`, the head's last; that first where there is none: it is at hand. */
INLINE const char *rows_after(step_lines rows, int many, int left, const char *next) {
  if (many < left) return rows.at + many * rows.step;
  return next ? next + (many - left) * rows.step : rows.at;
}

/* `count` rows. next: those of the next head. */
INLINE void rows_of_values(row_function *eight, row_function *one, int count, int K, step_lines from, step_lines to, step_token t,
                           const float *z, float *o, const char *next) {
  const int ahead = rows_ahead(count, from.step);
  for (int v = 0; v < count;) {
    const int left = count - v, n = left >= STEP_ROWS ? STEP_ROWS : 1;
    const step_lines a = {from.at + v * from.step, from.step}, b = {to.at + v * to.step, to.step};
    const step_wanted wanted = {rows_after(a, n, left, next), rows_after(a, ahead, left, next)};
    (n > 1 ? eight : one)(K, a, b, t, z + v, o + v, wanted);
    v += n;
  }
}

/* ---- For each element type ------------------------------------------------------------------------------------------------- */

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
