/* One token on a part of a state whose keys lie side by side, V x K: a tile of eight values, all keys. step_update_tmpl.c has the
 * equations. */
#include "stage/step.h"

#define STEP_ROWS 8

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
