/* Causal depthwise convolution, forward and backward, in float32.
 *
 *     z_t = bias + sum_j weight_j x_{t-(W-1)+j},   y_t = z_t or z_t sigmoid(z_t)                              (L1)
 *     dz_t = dy_t (or times s + z s (1-s), s = sigmoid(z_t))                                                   (L2)
 *     dx_t = sum_j weight_j dz_{t+(W-1)-j} + dstate_final_{t-T+W-1}                                            (L3)
 *     dweight_j = sum_t dz_t x_{t-(W-1)+j},   dbias = sum_t dz_t                                               (L4)
 *
 * Tokens before the first are the state; as if they were tokens, (L3) gives dstate. The taps are added in the order (L1) writes
 * them, wherever a token stands, so that cuts do not show. 1 - s is computed without cancellation.
 * Cost: one load of x and one store of y per number, and an exponential and a division where there is a sigmoid. */
#include "stage/conv.h"

/* Tokens of a block: so many rows of two or three tensors fit side by side in the ways of one set of the first-level cache, where
 * rows that are a multiple of 4 kilobytes apart all land. */
#define CONV_BLOCK 4
#define CONV_ROOM (GDN2_CONV_PANEL + VL)

/* What a panel needs at hand, as floats; lanes beyond the channels hold 0. */
typedef struct {
  float taps[GDN2_CONV_MAX_WIDTH][CONV_ROOM], bias[CONV_ROOM];
  float past[GDN2_CONV_PAST][CONV_ROOM]; /* the W-1 inputs before token 0 */
} conv_room;

/* A grid whose channels lie one behind the other, from and to rows of taps; with a constant number of them. */
INLINE void grid_split(int taps, int channels, const float *restrict flat, float (*restrict to)[CONV_ROOM]) {
  for (int m = 0; m < channels; m++) {
    UNROLL
    for (int j = 0; j < taps; j++) to[j][m] = flat[m * taps + j];
  }
}
INLINE void grid_join(int taps, int channels, const float (*restrict from)[CONV_ROOM], float *restrict flat) {
  for (int m = 0; m < channels; m++) {
    UNROLL
    for (int j = 0; j < taps; j++) flat[m * taps + j] = from[j][m];
  }
}

STAGE void grid_read_flat(gdn2_conv_grid from, int taps, int channels, float (*to)[CONV_ROOM]) {
  float room[GDN2_CONV_MAX_WIDTH * GDN2_CONV_PANEL + VL];
  const float *flat = from.dtype == GDN2_F32 ? (const float *)(const void *)from.at : room;
  const int count = taps * channels;
  for (int i = 0; flat == room && i < count; i += VL) v_store(room + i, any_load(from.dtype, from.at, i, count - i));
  if (taps == 2) grid_split(2, channels, flat, to);
  if (taps == 3) grid_split(3, channels, flat, to);
  if (taps == 4) grid_split(4, channels, flat, to);
}

STAGE void grid_write_flat(gdn2_conv_grid_out to, int taps, int channels, const float (*from)[CONV_ROOM]) {
  float room[GDN2_CONV_PAST * GDN2_CONV_PANEL + VL], *flat = to.dtype == GDN2_F32 ? (float *)(void *)to.at : room;
  const int count = taps * channels;
  if (taps == 2) grid_join(2, channels, from, flat);
  if (taps == 3) grid_join(3, channels, from, flat);
  for (int i = 0; flat == room && i < count; i += VL) any_store(to.dtype, to.at, i, v_load(room + i), count - i);
}

/* Row j of a grid whose channels lie `channel` apart. */
INLINE void grid_read_row(gdn2_conv_grid from, const char *at, int channels, float *to) {
  if (from.channel == 1)
    for (int m = 0; m < channels; m += VL) v_store(to + m, any_load(from.dtype, at, m, channels - m));
  else
    for (int m = 0; m < channels; m++) to[m] = gdn2_number_at(at + m * from.channel * gdn2_dtype_size(from.dtype), from.dtype);
}
INLINE void grid_write_row(gdn2_conv_grid_out to, char *at, int channels, const float *from) {
  if (to.channel == 1)
    for (int m = 0; m < channels; m += VL) any_store(to.dtype, at, m, v_load(from + m), channels - m);
  else
    for (int m = 0; m < channels; m++) gdn2_number_to(at + m * to.channel * gdn2_dtype_size(to.dtype), to.dtype, from[m]);
}

/* Numbers of a grid, tap by tap: row j of `to` is tap j. */
STAGE void grid_read(gdn2_conv_grid from, int taps, int channels, float (*to)[CONV_ROOM]) {
  for (int j = 0; j < taps; j++) /* lanes beyond the channels, and everything where nothing is read */
    for (int m = from.at ? channels / VL * VL : 0; m < channels; m += VL) v_store(to[j] + m, v_zero());
  if (from.at && from.tap == 1 && from.channel == taps && taps > 1)
    grid_read_flat(from, taps, channels, to);
  else if (from.at)
    for (int j = 0; j < taps; j++) grid_read_row(from, from.at + j * from.tap * gdn2_dtype_size(from.dtype), channels, to[j]);
}

STAGE void grid_write(gdn2_conv_grid_out to, int taps, int channels, const float (*from)[CONV_ROOM]) {
  if (to.tap == 1 && to.channel == taps && taps > 1)
    grid_write_flat(to, taps, channels, from);
  else
    for (int j = 0; j < taps; j++) grid_write_row(to, to.at + j * to.tap * gdn2_dtype_size(to.dtype), channels, from[j]);
}

INLINE void conv_prepare(const gdn2_conv_panel *p, const gdn2_conv_run *run, conv_room *room) {
  const gdn2_conv_grid bias = {p->bias.at, p->bias.dtype, 1, 0};
  grid_read(p->weight, p->W, p->channels, room->taps);
  grid_read(bias, 1, p->channels, &room->bias);
  if (run->first == 0) grid_read(run->state, p->W - 1, p->channels, room->past);
}

/* Rows of a block: inputs x[0] to x[W-2] are those before its first token. The addresses are made once, for the panel's first
 * channel: a vector store may alias anything, so what is behind a pointer would be read again after each. */
typedef struct {
  const char *x[GDN2_CONV_PAST + CONV_BLOCK];
  char *y[CONV_BLOCK];
} conv_rows;

/* y == NULL: none. */
INLINE conv_rows conv_rows_at(int W, const gdn2_rows *x, const gdn2_rows_out *y, int64_t t, int count) {
  conv_rows rows;
  UNROLL
  for (int i = 0; i < W - 1 + count; i++) rows.x[i] = x->at + (t - (W - 1) + i) * x->step * gdn2_dtype_size(x->dtype);
  UNROLL
  for (int i = 0; i < count; i++) rows.y[i] = y ? y->at + (t + i) * y->step * gdn2_dtype_size(y->dtype) : NULL;
  return rows;
}

/* The taps of a vector of channels, and the W-1 inputs before a token. */
typedef struct {
  vf w[GDN2_CONV_MAX_WIDTH], bias, x[GDN2_CONV_PAST];
} conv_column;

INLINE conv_column conv_taps_at(int W, const conv_room *room, int m) {
  conv_column c;
  UNROLL
  for (int j = 0; j < W; j++) c.w[j] = v_load(room->taps[j] + m);
  c.bias = v_load(room->bias + m);
  return c;
}

/* The same with the inputs before token t, wherever they are. */
INLINE conv_column conv_column_at(int W, gdn2_dtype dtype, const gdn2_rows *x, const conv_room *room, int64_t t, int m, int n) {
  conv_column c = conv_taps_at(W, room, m);
  UNROLL
  for (int j = 0; j < W - 1; j++) {
    const int64_t at = t - (W - 1) + j;
    c.x[j] = at < 0 ? v_load(room->past[at + W - 1] + m) : any_load(dtype, x->at, at * x->step + m, n);
  }
  return c;
}

/* z of the next token, whose input is x; the window moves on. */
INLINE vf conv_next(int W, conv_column *c, vf x) {
  vf z = c->bias;
  UNROLL
  for (int j = 0; j < W - 1; j++) z = v_fma(c->w[j], c->x[j], z);
  z = v_fma(c->w[W - 1], x, z);
  UNROLL
  for (int j = 0; j + 1 < W - 1; j++) c->x[j] = c->x[j + 1];
  c->x[W - 2] = x;
  return z;
}

/* y of `count` tokens, in place of z. */
INLINE void conv_values(int silu, gdn2_dtype to, int count, vf *z) {
  vf s[GATE_MOST];
  if (!silu) return;
  gate_sigmoid(to, count, z, s);
  EACH_ABREAST(z[i] = v_mul(z[i], s[i]));
}

/* What a step of a block covers of a row: two vectors, which make a cache line of 16-bit numbers. */
#define CONV_STEP (2 * VL)

/* y: the two vectors of each of a block's rows. */
INLINE void conv_store(gdn2_dtype dtype, int stream, char *const *rows, int m, vf (*y)[CONV_BLOCK]) {
  UNROLL
  for (int i = 0; i < CONV_BLOCK; i++) any_store_two(dtype, stream, rows[i], m, y[0][i], y[1][i]);
}

/* The lines of a step in the next block, to be read or to be written. */
INLINE void conv_fetch(gdn2_dtype dtype, const char *const *rows, ptrdiff_t ahead, int m) {
  const int size = (int)gdn2_dtype_size(dtype);
  UNROLL
  for (int at = 0; at < CONV_STEP * size; at += 64) {
    UNROLL
    for (int i = 0; i < CONV_BLOCK; i++) __builtin_prefetch(rows[i] + ahead + m * size + at, 0, 3);
  }
}
INLINE void conv_fetch_out(gdn2_dtype dtype, char *const *rows, ptrdiff_t ahead, int m) {
  const int size = (int)gdn2_dtype_size(dtype);
  UNROLL
  for (int at = 0; at < CONV_STEP * size; at += 64) {
    UNROLL
    for (int i = 0; i < CONV_BLOCK; i++) __builtin_prefetch(rows[i] + ahead + m * size + at, 1, 3);
  }
}

/* A vector of each of a block's rows. */
INLINE void conv_block_values(int W, int silu, gdn2_dtype dtype, const conv_rows *rows, const conv_room *room, int m, vf *y) {
  conv_column c = conv_taps_at(W, room, m);
  UNROLL
  for (int j = 0; j < W - 1; j++) c.x[j] = any_load(dtype, rows->x[j], m, VL);
  UNROLL
  for (int i = 0; i < CONV_BLOCK; i++) y[i] = conv_next(W, &c, any_load(dtype, rows->x[W - 1 + i], m, VL));
  conv_values(silu, dtype, CONV_BLOCK, y);
}

/* A full block of a type and of whole steps that does not look into the state. */
INLINE void conv_block(int W, int silu, gdn2_dtype dtype, int channels, const gdn2_rows *x, const gdn2_rows_out *y,
                       const conv_room *room, int stream, int64_t t) {
  const conv_rows rows = conv_rows_at(W, x, y, t, CONV_BLOCK);
  const ptrdiff_t x_ahead = CONV_BLOCK * x->step * gdn2_dtype_size(dtype),
                  y_ahead = CONV_BLOCK * y->step * gdn2_dtype_size(dtype);
  for (int m = 0; m + CONV_STEP <= channels; m += CONV_STEP) {
    vf y_of[2][CONV_BLOCK];
    UNROLL
    for (int h = 0; h < 2; h++) conv_block_values(W, silu, dtype, &rows, room, m + h * VL, y_of[h]);
    conv_store(dtype, stream, rows.y, m, y_of);
    conv_fetch(dtype, rows.x + W - 1, x_ahead, m);
    if (!stream) conv_fetch_out(dtype, rows.y, y_ahead, m);
  }
}

/* One token of any type, anywhere, from channel m on: the same arithmetic. */
INLINE void conv_token(int W, const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room,
                       int64_t t, int m) {
  for (; m < p->channels; m += VL) {
    const int n = p->channels - m;
    conv_column c = conv_column_at(W, x->dtype, x, room, t, m, n);
    vf z = conv_next(W, &c, any_load(x->dtype, x->at, t * x->step + m, n));
    conv_values(p->silu, y->dtype, 1, &z);
    any_store(y->dtype, y->at, t * y->step + m, z, n);
  }
}

STAGE void conv_token_any(const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room, int64_t t,
                          int m) {
  if (p->W == 2) conv_token(2, p, x, y, room, t, m);
  if (p->W == 3) conv_token(3, p, x, y, room, t, m);
  if (p->W == 4) conv_token(4, p, x, y, room, t, m);
}

#define CONV_BLOCK_OF(NAME, W, DTYPE)                                                                                            \
  STAGE void NAME(const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room, int stream,       \
                  int64_t t) {                                                                                                   \
    if (p->silu)                                                                                                                 \
      conv_block(W, 1, DTYPE, p->channels, x, y, room, stream, t);                                                               \
    else                                                                                                                         \
      conv_block(W, 0, DTYPE, p->channels, x, y, room, stream, t);                                                               \
  }
CONV_BLOCK_OF(conv_block_2_f32, 2, GDN2_F32)
CONV_BLOCK_OF(conv_block_3_f32, 3, GDN2_F32)
CONV_BLOCK_OF(conv_block_4_f32, 4, GDN2_F32)
CONV_BLOCK_OF(conv_block_2_bf16, 2, GDN2_BF16)
CONV_BLOCK_OF(conv_block_3_bf16, 3, GDN2_BF16)
CONV_BLOCK_OF(conv_block_4_bf16, 4, GDN2_BF16)

typedef void conv_block_fn(const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room,
                           int stream, int64_t t);

/* The code for full blocks of these types; NULL: there is none. */
INLINE conv_block_fn *conv_block_for(int W, gdn2_dtype from, gdn2_dtype to) {
  static conv_block_fn *const f32[] = {conv_block_2_f32, conv_block_3_f32, conv_block_4_f32};
  static conv_block_fn *const bf16[] = {conv_block_2_bf16, conv_block_3_bf16, conv_block_4_bf16};
  if (from != to || from == GDN2_F16) return NULL;
  const int at = W - GDN2_CONV_MIN_WIDTH;
  return from == GDN2_F32 ? f32[at] : bf16[at];
}

STAGE void conv_outputs(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y, const conv_room *room) {
  conv_block_fn *block = conv_block_for(p->W, run->x.dtype, y.dtype);
  const int whole = p->channels / CONV_STEP * CONV_STEP, stream = p->stream && rows_streamable(&y);
  for (int64_t t = run->first, end = run->first + run->count; t < end;) {
    const int quick = block && t >= p->W - 1 && t + CONV_BLOCK <= end, count = quick ? CONV_BLOCK : 1;
    if (quick) block(p, &run->x, &y, room, stream, t);
    for (int i = 0; i < count && !(quick && whole == p->channels); i++)
      conv_token_any(p, &run->x, &y, room, t + i, quick ? whole : 0);
    t += count;
  }
}

/* The last W-1 inputs of the whole sequence, those before it counted in. */
STAGE void conv_keep(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room *room, gdn2_conv_grid_out to) {
  float last[GDN2_CONV_PAST][CONV_ROOM];
  for (int j = 0; j < p->W - 1; j++) {
    const int64_t t = run->length - (p->W - 1) + j;
    for (int m = 0; m < p->channels; m += VL)
      v_store(last[j] + m, t < 0 ? v_load(room->past[t + p->W - 1] + m)
                                 : any_load(run->x.dtype, run->x.at, t * run->x.step + m, p->channels - m));
  }
  grid_write(to, p->W - 1, p->channels, (const float(*)[CONV_ROOM])last);
}

static void conv_forward_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y, gdn2_conv_grid_out state_final);

STAGE void stage_conv_forward(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y,
                              gdn2_conv_grid_out state_final) {
  conv_room room;
  if (run->x.dtype == GDN2_F64) {
    conv_forward_f64(p, run, y, state_final);
    return;
  }
  conv_prepare(p, run, &room);
  if (y.at) conv_outputs(p, run, y, &room);
  if (state_final.at && run->first == 0) conv_keep(p, run, &room, state_final);
}

STAGE void stage_conv_finish(void) { v_stream_end(); }

STAGE void stage_conv_clear(int channels, int64_t count, gdn2_rows_out y) {
  for (int64_t t = 0; t < count; t++)
    memset(y.at + t * y.step * gdn2_dtype_size(y.dtype), 0, (size_t)channels * (size_t)gdn2_dtype_size(y.dtype));
}
