/* The convolution's backward in float32: equations (40) to (42), from the last token of a run to the first, so that dz of the W-1
 * tokens behind a block is at hand when (41) asks for it. A run that does not end its sequence begins with the dz of the W-1
 * tokens behind it. Sums of a block of tokens are made in registers and then added to those of the run. */
#include "stage/conv.h"

typedef struct {
  conv_room fore;
  float next[GDN2_CONV_PAST][CONV_ROOM]; /* dz of the W-1 tokens behind the block */
  float last[GDN2_CONV_PAST][CONV_ROOM]; /* dstate_final */
} conv_back_room;

/* The slope of z sigmoid(z). */
INLINE vf silu_slope(vf z) {
  vf rest;
  const vf s = gate_sigmoids(z, &rest);
  return v_fma(v_mul(z, s), rest, s);
}

INLINE vf conv_dz(int silu, gdn2_dtype dtype, const gdn2_rows *dy, int64_t t, int m, int n, vf z) {
  const vf d = dy->at ? any_load(dtype, dy->at, t * dy->step + m, n) : v_zero();
  return silu ? v_mul(d, silu_slope(z)) : d;
}

INLINE void add_to(float *at, vf x) { v_store(at, v_add(v_load(at), x)); }

/* One vector of channels over the tokens t .. t+count-1, count a constant; edge: some may be among the last W-1. */
INLINE void conv_back_tokens(int W, int silu, int edge, gdn2_dtype xt, gdn2_dtype dyt, gdn2_dtype dxt, const gdn2_conv_run *run,
                             const gdn2_conv_grad *grad, conv_back_room *room, int64_t t, int count, int m, int n) {
  conv_column c = conv_column_at(W, xt, &run->x, &room->fore, t, m, n);
  vf dz[CONV_BLOCK + GDN2_CONV_PAST], sum[GDN2_CONV_SUMS];
  UNROLL
  for (int j = 0; j < W - 1; j++) dz[count + j] = v_load(room->next[j] + m);
  UNROLL
  for (int j = 0; j <= W; j++) sum[j] = v_zero();
  UNROLL
  for (int i = 0; i < count; i++) {
    const vf x = any_load(xt, run->x.at, (t + i) * run->x.step + m, n);
    const conv_column at = c;
    dz[i] = conv_dz(silu, dyt, &grad->dy, t + i, m, n, conv_next(W, &c, x));
    UNROLL
    for (int j = 0; j < W; j++) sum[j] = v_fma(dz[i], j < W - 1 ? at.x[j] : x, sum[j]);
    sum[W] = v_add(sum[W], dz[i]);
  }
  if (grad->dx.at) {
    UNROLL
    for (int i = 0; i < count; i++) {
      const int64_t kept = t + i - run->length + W - 1;
      vf dx = edge && kept >= 0 ? v_load(room->last[kept] + m) : v_zero();
      UNROLL
      for (int j = 0; j < W; j++) dx = v_fma(c.w[j], dz[i + W - 1 - j], dx);
      any_store(dxt, grad->dx.at, (t + i) * grad->dx.step + m, dx, n);
    }
  }
  UNROLL
  for (int j = 0; j < W - 1; j++) v_store(room->next[j] + m, dz[j]);
  float *sums = grad->sums;
  if (!sums) return;
  UNROLL
  for (int j = 0; j < W; j++) add_to(sums + j * grad->ld + m, sum[j]);
  add_to(sums + GDN2_CONV_MAX_WIDTH * grad->ld + m, sum[W]);
}

INLINE void conv_back_block(int W, gdn2_dtype dtype, const gdn2_conv_panel *p, const gdn2_conv_run *run,
                            const gdn2_conv_grad *grad, conv_back_room *room, int64_t t) {
  int m = 0;
  if (p->silu)
    for (; m + VL <= p->channels; m += VL) conv_back_tokens(W, 1, 0, dtype, dtype, dtype, run, grad, room, t, CONV_BLOCK, m, VL);
  else
    for (; m + VL <= p->channels; m += VL) conv_back_tokens(W, 0, 0, dtype, dtype, dtype, run, grad, room, t, CONV_BLOCK, m, VL);
}

#define CONV_BACK_OF(NAME, DTYPE)                                                                                                \
  STAGE void NAME(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room,          \
                  int64_t t) {                                                                                                   \
    if (p->W == 2) conv_back_block(2, DTYPE, p, run, grad, room, t);                                                             \
    if (p->W == 3) conv_back_block(3, DTYPE, p, run, grad, room, t);                                                             \
    if (p->W == 4) conv_back_block(4, DTYPE, p, run, grad, room, t);                                                             \
  }
CONV_BACK_OF(conv_back_f32, GDN2_F32)
CONV_BACK_OF(conv_back_bf16, GDN2_BF16)

/* Token t, channels from m on. */
STAGE void conv_back_any(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room,
                         int64_t t, int m) {
  const gdn2_dtype xt = run->x.dtype, dyt = grad->dy.dtype, dxt = grad->dx.dtype;
  for (; m < p->channels; m += VL) {
    const int n = p->channels - m;
    if (p->W == 2) conv_back_tokens(2, p->silu, 1, xt, dyt, dxt, run, grad, room, t, 1, m, n);
    if (p->W == 3) conv_back_tokens(3, p->silu, 1, xt, dyt, dxt, run, grad, room, t, 1, m, n);
    if (p->W == 4) conv_back_tokens(4, p->silu, 1, xt, dyt, dxt, run, grad, room, t, 1, m, n);
  }
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
        const vf z = conv_next(W, &c, any_load(run->x.dtype, run->x.at, (end + j) * run->x.step + m, n));
        dz = conv_dz(p->silu, dy->dtype, dy, end + j, m, n, z);
      }
      v_store(room->next[j] + m, dz);
    }
  }
}

/* (41) at the places of the state. */
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

/* The last W-1 tokens of a sequence go the slow way whether dstate_final is given or not: the order of the sums is the same then.
 */
INLINE int conv_is_quick(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, int64_t t, int count) {
  const gdn2_dtype dtype = run->x.dtype;
  const int same = grad->dy.at && grad->dy.dtype == dtype && (!grad->dx.at || grad->dx.dtype == dtype) && dtype != GDN2_F16;
  return same && count == CONV_BLOCK && t + CONV_BLOCK <= run->length - (p->W - 1);
}

STAGE void conv_walk_back(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad, conv_back_room *room) {
  const int64_t blocks = (run->count + CONV_BLOCK - 1) / CONV_BLOCK;
  for (int64_t block = blocks - 1; block >= 0; block--) {
    const int64_t t = run->first + block * CONV_BLOCK, left = run->first + run->count - t;
    const int count = left < CONV_BLOCK ? (int)left : CONV_BLOCK, quick = conv_is_quick(p, run, grad, t, count);
    if (quick && run->x.dtype == GDN2_F32) conv_back_f32(p, run, grad, room, t);
    if (quick && run->x.dtype == GDN2_BF16) conv_back_bf16(p, run, grad, room, t);
    for (int i = count - 1; i >= 0; i--) conv_back_any(p, run, grad, room, t + i, quick ? p->channels / VL * VL : 0);
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
  conv_walk_back(p, run, grad, &room);
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
