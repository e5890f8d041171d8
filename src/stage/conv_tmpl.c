/* Causal depthwise convolution, forward and backward, in float32.
 *
 *     z_t = bias + sum_j weight_j x_{t-(W-1)+j},   y_t = z_t or z_t sigmoid(z_t)                              (39)
 *     dz_t = dy_t (or times s + z s (1-s), s = sigmoid(z_t))                                                   (40)
 *     dx_t = sum_j weight_j dz_{t+(W-1)-j} + dstate_final_{t-T+W-1}                                            (41)
 *     dweight_j = sum_t dz_t x_{t-(W-1)+j},   dbias = sum_t dz_t                                               (42)
 *
 * Tokens before the first are the state; as if they were tokens, (41) gives dstate. The taps are added in the order (39) writes
 * them, wherever a token stands, so that cuts do not show. 1 - s is computed without cancellation.
 * Cost: one load of x and one store of y per number, and an exponential and a division where there is a sigmoid. */
#include "stage/conv.h"

/* Tokens of a block: so many rows of two or three tensors fit side by side in the ways of one set of the first-level cache, where
 * rows that are a multiple of 4 kilobytes apart all land. */
#define CONV_BLOCK 4
#define CONV_ROOM (GDN2_CONV_PANEL + VL)

/* A row in memory, of a type known to the compiler or not. */
INLINE vf any_load(gdn2_dtype dtype, const char *at, int64_t index, int n) {
  if (dtype == GDN2_F32) return v_load_upto((const float *)(const void *)at + index, n);
  const uint16_t *half = (const uint16_t *)(const void *)at + index;
  return dtype == GDN2_BF16 ? v_load_bf16(half, n) : v_load_f16(half, n);
}
INLINE void any_store(gdn2_dtype dtype, char *at, int64_t index, vf x, int n) {
  uint16_t *half = (uint16_t *)(void *)at + index;
  if (dtype == GDN2_F32)
    v_store_upto((float *)(void *)at + index, x, n);
  else if (dtype == GDN2_BF16)
    v_store_bf16(half, x, n);
  else
    v_store_f16(half, x, n);
}

/* What a panel needs at hand, as floats; lanes beyond the channels hold 0. */
typedef struct {
  float taps[GDN2_CONV_MAX_WIDTH][CONV_ROOM], bias[CONV_ROOM];
  float past[GDN2_CONV_PAST][CONV_ROOM]; /* the W-1 inputs before token 0 */
} conv_room;

/* Numbers of a grid, tap by tap: row j of `to` is tap j. */
STAGE void grid_read(gdn2_conv_grid from, int taps, int channels, float (*to)[CONV_ROOM]) {
  for (int j = 0; j < taps; j++) {
    const char *at = from.at ? from.at + j * from.tap * gdn2_dtype_size(from.dtype) : NULL;
    for (int m = 0; m < channels; m += VL) v_store(to[j] + m, v_zero());
    if (from.at && from.channel == 1)
      for (int m = 0; m < channels; m += VL) v_store(to[j] + m, any_load(from.dtype, at, m, channels - m));
    else if (from.at)
      for (int m = 0; m < channels; m++)
        to[j][m] = gdn2_number_at(at + m * from.channel * gdn2_dtype_size(from.dtype), from.dtype);
  }
}

STAGE void grid_write(gdn2_conv_grid_out to, int taps, int channels, const float (*from)[CONV_ROOM]) {
  for (int j = 0; j < taps; j++) {
    char *at = to.at + j * to.tap * gdn2_dtype_size(to.dtype);
    if (to.channel == 1)
      for (int m = 0; m < channels; m += VL) any_store(to.dtype, at, m, v_load(from[j] + m), channels - m);
    else
      for (int m = 0; m < channels; m++) gdn2_number_to(at + m * to.channel * gdn2_dtype_size(to.dtype), to.dtype, from[j][m]);
  }
}

INLINE void conv_prepare(const gdn2_conv_panel *p, const gdn2_conv_run *run, conv_room *room) {
  const gdn2_conv_grid bias = {p->bias.at, p->bias.dtype, 1, 0};
  grid_read(p->weight, p->W, p->channels, room->taps);
  grid_read(bias, 1, p->channels, &room->bias);
  if (run->first == 0) grid_read(run->state, p->W - 1, p->channels, room->past);
}

/* The taps of a vector of channels, and the W-1 inputs before token t. */
typedef struct {
  vf w[GDN2_CONV_MAX_WIDTH], bias, x[GDN2_CONV_PAST];
} conv_column;

INLINE vf conv_input(gdn2_dtype dtype, const gdn2_rows *x, const conv_room *room, int W, int64_t t, int m, int n) {
  return t < 0 ? v_load(room->past[t + W - 1] + m) : any_load(dtype, x->at, t * x->step + m, n);
}

INLINE conv_column conv_column_at(int W, gdn2_dtype dtype, const gdn2_rows *x, const conv_room *room, int64_t t, int m, int n) {
  conv_column c;
  UNROLL
  for (int j = 0; j < W; j++) c.w[j] = v_load(room->taps[j] + m);
  c.bias = v_load(room->bias + m);
  UNROLL
  for (int j = 0; j < W - 1; j++) c.x[j] = conv_input(dtype, x, room, W, t - (W - 1) + j, m, n);
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

/* One vector of channels over the tokens t .. t+count-1. */
INLINE void conv_tokens(int W, int silu, gdn2_dtype from, gdn2_dtype to, const gdn2_rows *x, const gdn2_rows_out *y,
                        const conv_room *room, int64_t t, int count, int m, int n) {
  conv_column c = conv_column_at(W, from, x, room, t, m, n);
  UNROLL
  for (int i = 0; i < count; i++) {
    const vf z = conv_next(W, &c, any_load(from, x->at, (t + i) * x->step + m, n));
    any_store(to, y->at, (t + i) * y->step + m, silu ? v_mul(z, v_sigmoid(z)) : z, n);
  }
}

/* Full blocks of whole vectors in code made for the types; the rest by the same arithmetic in code for any. */
INLINE void conv_block(int W, gdn2_dtype from, gdn2_dtype to, const gdn2_conv_panel *p, const gdn2_rows *x,
                       const gdn2_rows_out *y, const conv_room *room, int64_t t) {
  int m = 0;
  if (p->silu)
    for (; m + VL <= p->channels; m += VL) conv_tokens(W, 1, from, to, x, y, room, t, CONV_BLOCK, m, VL);
  else
    for (; m + VL <= p->channels; m += VL) conv_tokens(W, 0, from, to, x, y, room, t, CONV_BLOCK, m, VL);
}

STAGE void conv_block_any(const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room, int64_t t,
                          int count, int m) {
  for (; m < p->channels; m += VL)
    for (int i = 0; i < count; i++) {
      const int n = p->channels - m;
      if (p->W == 2) conv_tokens(2, p->silu, x->dtype, y->dtype, x, y, room, t + i, 1, m, n);
      if (p->W == 3) conv_tokens(3, p->silu, x->dtype, y->dtype, x, y, room, t + i, 1, m, n);
      if (p->W == 4) conv_tokens(4, p->silu, x->dtype, y->dtype, x, y, room, t + i, 1, m, n);
    }
}

#define CONV_BLOCK_OF(NAME, DTYPE)                                                                                               \
  STAGE void NAME(const gdn2_conv_panel *p, const gdn2_rows *x, const gdn2_rows_out *y, const conv_room *room, int64_t t) {      \
    if (p->W == 2) conv_block(2, DTYPE, DTYPE, p, x, y, room, t);                                                                \
    if (p->W == 3) conv_block(3, DTYPE, DTYPE, p, x, y, room, t);                                                                \
    if (p->W == 4) conv_block(4, DTYPE, DTYPE, p, x, y, room, t);                                                                \
  }
CONV_BLOCK_OF(conv_block_f32, GDN2_F32)
CONV_BLOCK_OF(conv_block_bf16, GDN2_BF16)

STAGE void conv_outputs(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y, const conv_room *room) {
  const int whole = p->channels / VL * VL, fast = run->x.dtype == y.dtype && y.dtype != GDN2_F16;
  for (int64_t t = run->first, end = run->first + run->count; t < end; t += CONV_BLOCK) {
    const int count = end - t < CONV_BLOCK ? (int)(end - t) : CONV_BLOCK;
    const int quick = fast && count == CONV_BLOCK;
    if (quick && y.dtype == GDN2_F32) conv_block_f32(p, &run->x, &y, room, t);
    if (quick && y.dtype == GDN2_BF16) conv_block_bf16(p, &run->x, &y, room, t);
    conv_block_any(p, &run->x, &y, room, t, count, quick ? whole : 0);
  }
}

/* The last W-1 inputs of the whole sequence, those before it counted in. */
STAGE void conv_keep(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room *room, gdn2_conv_grid_out to) {
  float last[GDN2_CONV_PAST][CONV_ROOM];
  for (int j = 0; j < p->W - 1; j++)
    for (int m = 0; m < p->channels; m += VL)
      v_store(last[j] + m, conv_input(run->x.dtype, &run->x, room, p->W, run->length - (p->W - 1) + j, m, p->channels - m));
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

STAGE void stage_conv_clear(int channels, int64_t count, gdn2_rows_out y) {
  for (int64_t t = 0; t < count; t++)
    memset(y.at + t * y.step * gdn2_dtype_size(y.dtype), 0, (size_t)channels * (size_t)gdn2_dtype_size(y.dtype));
}
