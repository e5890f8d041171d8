/* The convolution's backward in float32: equations (L2) to (L4), from the last token of a run to the first, so that dz of the W-1
 * tokens behind a block is at hand when (L3) asks for it. A run that does not end its sequence begins with the dz of the W-1
 * tokens behind it. Sums of a block of tokens are made in registers and then added to those of the run. */
#include "stage/conv.h"

typedef struct {
  conv_room fore;
  float next[GDN2_CONV_PAST][CONV_ROOM]; /* dz of the W-1 tokens behind the block */
  float last[GDN2_CONV_PAST][CONV_ROOM]; /* dstate_final */
  float sums[GDN2_CONV_SUMS][CONV_ROOM]; /* those of the caller, whose lines lie beside another thread's */
} conv_back_room;

/* dz of `count` tokens from their z, in place; (L2). dtype: of x. */
INLINE void conv_dz(int silu, gdn2_dtype dtype, int count, const vf *dy, vf *z) {
  vf s[GATE_MOST], rest[GATE_MOST];
  if (silu) gate_sigmoids(dtype, count, z, s, rest);
  EACH_ABREAST(z[i] = silu ? v_mul(dy[i], v_fma(v_mul(z[i], s[i]), rest[i], s[i])) : dy[i]);
}

INLINE vf conv_dy(gdn2_dtype dtype, const gdn2_rows *dy, int64_t t, int m, int n) {
  return dy->at ? any_load(dtype, dy->at, t * dy->step + m, n) : v_zero();
}

INLINE void add_to(float *at, vf x) { v_store(at, v_add(v_load(at), x)); }

/* What a vector of channels has gathered over some tokens. dz: of these tokens and the W-1 behind them. */
typedef struct {
  conv_column c;
  vf dz[CONV_BLOCK + GDN2_CONV_PAST], sum[GDN2_CONV_SUMS];
} conv_back_column;

INLINE void conv_back_begin(int W, conv_back_column *k, const conv_back_room *room, int count, int m) {
  UNROLL
  for (int j = 0; j < W - 1; j++) k->dz[count + j] = v_load(room->next[j] + m);
  UNROLL
  for (int j = 0; j <= W; j++) k->sum[j] = v_zero();
}

/* (L2) and (L4) of `count` tokens with the inputs x. */
INLINE void conv_back_tokens(int W, int silu, gdn2_dtype dtype, conv_back_column *k, int count, const vf *x, const vf *dy) {
  vf past[GDN2_CONV_PAST + CONV_BLOCK];
  UNROLL
  for (int j = 0; j < W - 1; j++) past[j] = k->c.x[j];
  EACH_ABREAST(past[W - 1 + i] = x[i]);
  EACH_ABREAST(k->dz[i] = conv_next(W, &k->c, x[i]));
  conv_dz(silu, dtype, count, dy, k->dz);
  UNROLL
  for (int i = 0; i < count; i++) {
    UNROLL
    for (int j = 0; j < W; j++) k->sum[j] = v_fma(k->dz[i], past[i + j], k->sum[j]);
    k->sum[W] = v_add(k->sum[W], k->dz[i]);
  }
}

/* (L3) of token i. */
INLINE vf conv_back_dx(int W, const conv_back_column *k, int i, vf dx) {
  UNROLL
  for (int j = 0; j < W; j++) dx = v_fma(k->c.w[j], k->dz[i + W - 1 - j], dx);
  return dx;
}

INLINE void conv_back_end(int W, const conv_back_column *k, conv_back_room *room, int m) {
  UNROLL
  for (int j = 0; j < W - 1; j++) v_store(room->next[j] + m, k->dz[j]);
  UNROLL
  for (int j = 0; j < W; j++) add_to(room->sums[j] + m, k->sum[j]);
  add_to(room->sums[GDN2_CONV_MAX_WIDTH] + m, k->sum[W]);
}

/* Equations (L2) to (L4) for a vector of each of a block's rows. */
INLINE void conv_back_values(int W, int silu, gdn2_dtype dtype, const conv_rows *rows, const conv_rows *dy_rows,
                             conv_back_room *room, int m, vf *dx) {
  conv_back_column k = {.c = conv_taps_at(W, &room->fore, m)};
  conv_back_begin(W, &k, room, CONV_BLOCK, m);
  UNROLL
  for (int j = 0; j < W - 1; j++) k.c.x[j] = any_load(dtype, rows->x[j], m, VL);
  vf x[CONV_BLOCK], dy[CONV_BLOCK];
  UNROLL
  for (int i = 0; i < CONV_BLOCK; i++) x[i] = any_load(dtype, rows->x[W - 1 + i], m, VL);
  UNROLL
  for (int i = 0; i < CONV_BLOCK; i++) dy[i] = any_load(dtype, dy_rows->x[i], m, VL);
  conv_back_tokens(W, silu, dtype, &k, CONV_BLOCK, x, dy);
  UNROLL
  for (int i = 0; i < CONV_BLOCK; i++) dx[i] = conv_back_dx(W, &k, i, v_zero());
  conv_back_end(W, &k, room, m);
}

/* A full block of a type and of whole steps, away from the state and from the last W-1 tokens. */
INLINE void conv_back_block(int W, int silu, gdn2_dtype dtype, int channels, const gdn2_conv_run *run, const gdn2_conv_grad *grad,
                            conv_back_room *room, int stream, int64_t t) {
  const int64_t size = gdn2_dtype_size(dtype), wants_dx = grad->dx.at != NULL;
  const conv_rows rows = conv_rows_at(W, &run->x, wants_dx ? &grad->dx : NULL, t, CONV_BLOCK);
  const conv_rows dy_rows = conv_rows_at(1, &grad->dy, NULL, t, CONV_BLOCK);
  const ptrdiff_t x_ahead = -CONV_BLOCK * run->x.step * size, dy_ahead = -CONV_BLOCK * grad->dy.step * size;
  const ptrdiff_t dx_ahead = wants_dx ? -CONV_BLOCK * grad->dx.step * size : 0;
  for (int m = 0; m + CONV_STEP <= channels; m += CONV_STEP) {
    vf dx[2][CONV_BLOCK];
    UNROLL
    for (int h = 0; h < 2; h++) conv_back_values(W, silu, dtype, &rows, &dy_rows, room, m + h * VL, dx[h]);
    if (wants_dx) conv_store(dtype, stream, rows.y, m, dx);
    conv_fetch(dtype, rows.x, x_ahead, m);
    conv_fetch(dtype, dy_rows.x, dy_ahead, m);
    if (wants_dx && !stream) conv_fetch_out(dtype, rows.y, dx_ahead, m);
  }
}

#define CONV_BACK_OF(NAME, W, DTYPE)                                                                                             \
  STAGE void NAME(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room,          \
                  int stream, int64_t t) {                                                                                       \
    if (p->silu)                                                                                                                 \
      conv_back_block(W, 1, DTYPE, p->channels, run, grad, room, stream, t);                                                     \
    else                                                                                                                         \
      conv_back_block(W, 0, DTYPE, p->channels, run, grad, room, stream, t);                                                     \
  }
CONV_BACK_OF(conv_back_2_f32, 2, GDN2_F32)
CONV_BACK_OF(conv_back_3_f32, 3, GDN2_F32)
CONV_BACK_OF(conv_back_4_f32, 4, GDN2_F32)
CONV_BACK_OF(conv_back_2_bf16, 2, GDN2_BF16)
CONV_BACK_OF(conv_back_3_bf16, 3, GDN2_BF16)
CONV_BACK_OF(conv_back_4_bf16, 4, GDN2_BF16)

typedef void conv_back_fn(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room,
                          int stream, int64_t t);

/* The code for full blocks of these types; NULL: there is none. */
INLINE conv_back_fn *conv_back_for(int W, const gdn2_conv_run *run, const gdn2_conv_grad *grad) {
  static conv_back_fn *const f32[] = {conv_back_2_f32, conv_back_3_f32, conv_back_4_f32};
  static conv_back_fn *const bf16[] = {conv_back_2_bf16, conv_back_3_bf16, conv_back_4_bf16};
  const gdn2_dtype dtype = run->x.dtype;
  const int same = grad->dy.at && grad->dy.dtype == dtype && (!grad->dx.at || grad->dx.dtype == dtype);
  if (!same || dtype == GDN2_F16) return NULL;
  const int at = W - GDN2_CONV_MIN_WIDTH;
  return dtype == GDN2_F32 ? f32[at] : bf16[at];
}

/* Token t of any types, anywhere, channels from m on: the same arithmetic. */
INLINE void conv_back_any(int W, const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad,
                          conv_back_room *room, int64_t t, int m) {
  const int64_t kept = t - run->length + W - 1;
  for (; m < p->channels; m += VL) {
    const int n = p->channels - m;
    conv_back_column k = {.c = conv_column_at(W, run->x.dtype, &run->x, &room->fore, t, m, n)};
    conv_back_begin(W, &k, room, 1, m);
    const vf x = any_load(run->x.dtype, run->x.at, t * run->x.step + m, n), dy = conv_dy(grad->dy.dtype, &grad->dy, t, m, n);
    conv_back_tokens(W, p->silu, run->x.dtype, &k, 1, &x, &dy);
    const vf dx = conv_back_dx(W, &k, 0, kept >= 0 ? v_load(room->last[kept] + m) : v_zero());
    if (grad->dx.at) any_store(grad->dx.dtype, grad->dx.at, t * grad->dx.step + m, dx, n);
    conv_back_end(W, &k, room, m);
  }
}

STAGE void conv_back_token_any(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad,
                               conv_back_room *room, int64_t t, int m) {
  if (p->W == 2) conv_back_any(2, p, run, grad, room, t, m);
  if (p->W == 3) conv_back_any(3, p, run, grad, room, t, m);
  if (p->W == 4) conv_back_any(4, p, run, grad, room, t, m);
}

/* dz of the W-1 tokens behind the run; beyond the sequence they are 0. */
INLINE void conv_behind(int W, const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_rows *dy, conv_back_room *room) {
  const int64_t end = run->first + run->count;
  for (int m = 0; m < p->channels; m += VL) {
    const int n = p->channels - m;
    conv_column c = {.bias = v_zero()};
    if (end < run->length) c = conv_column_at(W, run->x.dtype, &run->x, &room->fore, end, m, n);
    for (int j = 0; j < W - 1; j++) {
      vf dz = v_zero();
      if (end + j < run->length) {
        const vf d = conv_dy(dy->dtype, dy, end + j, m, n);
        dz = conv_next(W, &c, any_load(run->x.dtype, run->x.at, (end + j) * run->x.step + m, n));
        conv_dz(p->silu, run->x.dtype, 1, &d, &dz);
      }
      v_store(room->next[j] + m, dz);
    }
  }
}

/* (L3) at the places of the state. */
STAGE void conv_dstate(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_back_room *room, gdn2_conv_grid_out to) {
  float d[GDN2_CONV_PAST][CONV_ROOM];
  for (int i = 0; i < p->W - 1; i++)
    for (int m = 0; m < p->channels; m += VL) {
      vf sum = i >= run->length ? v_load(room->last[i - run->length] + m) : v_zero();
      for (int j = 0; j <= i; j++) sum = v_fma(v_load(room->fore.taps[j] + m), v_load(room->next[i - j] + m), sum);
      v_store(d[i] + m, sum);
    }
  grid_write(to, p->W - 1, p->channels, (const float(*)[CONV_ROOM])d);
}

/* The caller's sums, and back. */
INLINE void conv_sums_read(const gdn2_conv_panel *p, const gdn2_conv_grad *grad, conv_back_room *room) {
  const float *sums = grad->sums;
  for (int j = 0; j < GDN2_CONV_SUMS; j++)
    for (int m = 0; m < p->channels; m += VL)
      v_store(room->sums[j] + m, sums ? v_load_upto(sums + j * grad->ld + m, p->channels - m) : v_zero());
}
INLINE void conv_sums_write(const gdn2_conv_panel *p, const gdn2_conv_grad *grad, const conv_back_room *room) {
  float *sums = grad->sums;
  for (int j = 0; sums && j < GDN2_CONV_SUMS; j++)
    for (int m = 0; m < p->channels; m += VL) v_store_upto(sums + j * grad->ld + m, v_load(room->sums[j] + m), p->channels - m);
}

/* Blocks are counted from the first token of the run, the last W-1 tokens of a sequence always go one by one: the order of the
 * sums does not depend on what is wanted or given. */
STAGE void conv_walk_back(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room) {
  conv_back_fn *quick = conv_back_for(p->W, run, grad);
  const int whole = p->channels / CONV_STEP * CONV_STEP, stream = p->stream && rows_streamable(&grad->dx);
  const int64_t end = run->first + run->count, kept = run->length - (p->W - 1);
  for (int64_t block = (run->count - 1) / CONV_BLOCK; block >= 0; block--) {
    const int64_t t = run->first + block * CONV_BLOCK, left = end - t;
    const int count = left < CONV_BLOCK ? (int)left : CONV_BLOCK;
    const int is_quick = quick && count == CONV_BLOCK && t >= p->W - 1 && t + CONV_BLOCK <= kept;
    if (is_quick) quick(p, run, grad, room, stream, t);
    for (int i = count - 1; i >= 0 && !(is_quick && whole == p->channels); i--)
      conv_back_token_any(p, run, grad, room, t + i, is_quick ? whole : 0);
  }
}

static void conv_backward_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad);

STAGE void stage_conv_backward(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad) {
  conv_back_room room;
  if (run->x.dtype == GDN2_F64) {
    conv_backward_f64(p, run, grad);
    return;
  }
  conv_prepare(p, run, &room.fore);
  grid_read(grad->dstate_final, p->W - 1, p->channels, room.last);
  if (p->W == 2) conv_behind(2, p, run, &grad->dy, &room);
  if (p->W == 3) conv_behind(3, p, run, &grad->dy, &room);
  if (p->W == 4) conv_behind(4, p, run, &grad->dy, &room);
  conv_sums_read(p, grad, &room);
  conv_walk_back(p, run, grad, &room);
  conv_sums_write(p, grad, &room);
  if (grad->dstate.at && run->first == 0) conv_dstate(p, run, &room, grad->dstate);
}

/* The sums in float64, whatever the rows are: there may be thousands of them. */
STAGE void stage_conv_total(int channels, int64_t blocks, const void *rows, int64_t step, int f64, gdn2_conv_grid_out to) {
  double sum[GDN2_CONV_PANEL] = {0};
  for (int64_t block = 0; block < blocks; block++) {
    const float *single = (const float *)rows + (f64 ? 0 : block * step);
    const double *twice = (const double *)rows + (f64 ? block * step : 0);
    for (int c = 0; c < channels; c++) sum[c] += f64 ? twice[c] : (double)single[c];
  }
  for (int c = 0; c < channels; c++) {
    char *at = to.at + c * to.channel * gdn2_dtype_size(to.dtype);
    if (to.dtype == GDN2_F64)
      memcpy(at, &sum[c], sizeof *sum);
    else
      gdn2_number_to(at, to.dtype, (float)sum[c]);
  }
}
