/* The convolution of float64 tensors: equations (L1) to (L4) as in conv_tmpl.c, in double and without vector words. */
#include "stage/conv.h"

typedef struct {
  double taps[GDN2_CONV_MAX_WIDTH][GDN2_CONV_PANEL], bias[GDN2_CONV_PANEL];
  double past[GDN2_CONV_PAST][GDN2_CONV_PANEL];
} conv_room_f64;

INLINE void grid_read_f64(gdn2_conv_grid from, int taps, int channels, double (*to)[GDN2_CONV_PANEL]) {
  const double *at = (const double *)(const void *)from.at;
  for (int j = 0; j < taps; j++)
    for (int c = 0; c < channels; c++) to[j][c] = at ? at[c * from.channel + j * from.tap] : 0.0;
}

INLINE void grid_write_f64(gdn2_conv_grid_out to, int taps, int channels, const double (*from)[GDN2_CONV_PANEL]) {
  double *at = (double *)(void *)to.at;
  for (int j = 0; j < taps; j++)
    for (int c = 0; c < channels; c++) at[c * to.channel + j * to.tap] = from[j][c];
}

INLINE void conv_prepare_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, conv_room_f64 *room) {
  const gdn2_conv_grid bias = {p->bias.at, p->bias.dtype, 1, 0};
  grid_read_f64(p->weight, p->W, p->channels, room->taps);
  grid_read_f64(bias, 1, p->channels, &room->bias);
  if (run->first == 0) grid_read_f64(run->state, p->W - 1, p->channels, room->past);
}

/* The panel's inputs of token t, which may lie before the first. */
INLINE const double *conv_row_f64(const gdn2_conv_run *run, const conv_room_f64 *room, int W, int64_t t) {
  return t < 0 ? room->past[t + W - 1] : (const double *)(const void *)run->x.at + t * run->x.step;
}

INLINE void conv_z_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room_f64 *room, int64_t t, double *z) {
  memcpy(z, room->bias, (size_t)p->channels * sizeof *z);
  for (int j = 0; j < p->W; j++) {
    const double *x = conv_row_f64(run, room, p->W, t - (p->W - 1) + j);
    for (int c = 0; c < p->channels; c++) z[c] += room->taps[j][c] * x[c];
  }
}

STAGE void conv_keep_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room_f64 *room, gdn2_conv_grid_out to) {
  double last[GDN2_CONV_PAST][GDN2_CONV_PANEL];
  for (int j = 0; j < p->W - 1; j++)
    memcpy(last[j], conv_row_f64(run, room, p->W, run->length - (p->W - 1) + j), (size_t)p->channels * sizeof **last);
  grid_write_f64(to, p->W - 1, p->channels, (const double(*)[GDN2_CONV_PANEL])last);
}

static void conv_forward_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y,
                             gdn2_conv_grid_out state_final) {
  conv_room_f64 room;
  conv_prepare_f64(p, run, &room);
  for (int64_t t = run->first; y.at && t < run->first + run->count; t++) {
    double *to = (double *)(void *)y.at + t * y.step;
    conv_z_f64(p, run, &room, t, to);
    for (int c = 0; p->silu && c < p->channels; c++) to[c] = to[c] / (1.0 + exp(-to[c]));
  }
  if (state_final.at && run->first == 0) conv_keep_f64(p, run, &room, state_final);
}

/* dz of token t from its z. */
INLINE void conv_dz_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room_f64 *room, const gdn2_rows *dy,
                        int64_t t, double *dz) {
  double z[GDN2_CONV_PANEL];
  conv_z_f64(p, run, room, t, z);
  const double *d = (const double *)(const void *)dy->at;
  for (int c = 0; c < p->channels; c++) dz[c] = d ? d[t * dy->step + c] : 0.0;
  for (int c = 0; p->silu && c < p->channels; c++) {
    const double e = exp(-fabs(z[c])), r = 1.0 / (1.0 + e), s = z[c] >= 0 ? r : e * r, rest = z[c] >= 0 ? e * r : r;
    dz[c] *= s + z[c] * s * rest;
  }
}

INLINE void conv_sums_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room_f64 *room, int64_t t,
                          const double *dz, const gdn2_conv_grad *grad) {
  double *sums = grad->sums;
  for (int j = 0; sums && j < p->W; j++) {
    const double *x = conv_row_f64(run, room, p->W, t - (p->W - 1) + j);
    for (int c = 0; c < p->channels; c++) sums[j * grad->ld + c] += dz[c] * x[c];
  }
  for (int c = 0; sums && c < p->channels; c++) sums[GDN2_CONV_MAX_WIDTH * grad->ld + c] += dz[c];
}

/* (L3) for the place t of a token, or of an input before the first; next: dz of t .. t+W-1, where they are tokens. */
INLINE void conv_dx_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const conv_room_f64 *room,
                        double (*last)[GDN2_CONV_PANEL], double (*next)[GDN2_CONV_PANEL], int64_t t, double *dx) {
  const int64_t kept = t - run->length + p->W - 1;
  for (int c = 0; c < p->channels; c++) dx[c] = kept >= 0 ? last[kept][c] : 0.0;
  for (int j = 0; j < p->W; j++)
    for (int c = 0; t + p->W - 1 - j >= 0 && c < p->channels; c++) dx[c] += room->taps[j][c] * next[p->W - 1 - j][c];
}

static void conv_backward_f64(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad) {
  conv_room_f64 room;
  double last[GDN2_CONV_PAST][GDN2_CONV_PANEL], next[GDN2_CONV_MAX_WIDTH][GDN2_CONV_PANEL] = {{0}};
  double dstate[GDN2_CONV_PAST][GDN2_CONV_PANEL], dx[GDN2_CONV_PANEL];
  const int64_t end = run->first + run->count, lowest = run->first == 0 ? 1 - p->W : run->first;
  conv_prepare_f64(p, run, &room);
  grid_read_f64(grad->dstate_final, p->W - 1, p->channels, last);
  for (int64_t t = end + p->W - 2; t >= lowest; t--) {
    memmove(next[1], next[0], sizeof next - sizeof next[0]);
    memset(next[0], 0, sizeof next[0]);
    if (t >= 0 && t < run->length) conv_dz_f64(p, run, &room, &grad->dy, t, next[0]);
    if (t >= end) continue;
    if (t >= 0) conv_sums_f64(p, run, &room, t, next[0], grad);
    conv_dx_f64(p, run, &room, last, next, t, t < 0 ? dstate[t + p->W - 1] : dx);
    if (t >= 0 && grad->dx.at) memcpy((double *)(void *)grad->dx.at + t * grad->dx.step, dx, (size_t)p->channels * sizeof *dx);
  }
  if (grad->dstate.at && run->first == 0)
    grid_write_f64(grad->dstate, p->W - 1, p->channels, (const double(*)[GDN2_CONV_PANEL])dstate);
}
