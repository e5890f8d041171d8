/* The convolution's schedule. The tokens of all sequences, one behind the other, are cut into windows of a fixed length, the
 * channels into panels: a task is a panel of a window, and walks the pieces of sequences in it. A sequence belongs to the window
 * in which it begins; that one reads its state and writes its final state, so that they may be the same memory. The sums for the
 * weights are made window by window, and these are added in order. */
#include "drive/conv.h"
#include "base/arena.h"
#include "base/flush.h"
#include "base/par_for.h"

#define WINDOW 256

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

/* Where sequence n begins among the tokens of all sequences; of n = N: how many there are. */
static int64_t start_of(const gdn2_call *in, int64_t n) { return in->cu_seqlens ? gdn2_offset(in, n) : n * in->T; }

/* At least one, so that the states of empty sequences have a window. */
static int64_t windows_of(const gdn2_call *in) { return most(1, gdn2_ceil_div(start_of(in, in->N), WINDOW)); }
static int64_t panels_of(const gdn2_conv_call *call) { return gdn2_ceil_div(call->D, GDN2_CONV_PANEL); }

/* The first sequence that begins at `place` or behind it. */
static int64_t first_from(const gdn2_call *in, int64_t place) {
  int64_t low = 0, high = in->N;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (start_of(in, middle) < place)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The tokens of sequence n that lie before `place`: none, or W-1 at least, so that no window but the first needs the state. */
static int64_t tokens_before(const gdn2_conv_call *call, int64_t n, int64_t place) {
  const int64_t start = start_of(&call->in, n), length = start_of(&call->in, n + 1) - start;
  return place <= start ? 0 : least(length, most(place - start, call->W - 1));
}

typedef struct {
  const gdn2_conv_call *in;
  int64_t first, last; /* places of the window's tokens; `last` is one behind */
  int64_t channel;     /* the panel's first */
  gdn2_conv_panel panel;
} window;

/* y: what the call writes, y or dx. */
static window window_of(const gdn2_conv_call *call, const gdn2_view_out *y, int64_t task) {
  const int64_t panels = panels_of(call), at = task / panels, channel = task % panels * GDN2_CONV_PANEL;
  window w = {.in = call, .first = at * WINDOW, .last = at + 1 == windows_of(&call->in) ? INT64_MAX : (at + 1) * WINDOW};
  w.channel = channel;
  w.panel = (gdn2_conv_panel){.W = call->W, .silu = call->silu, .channels = (int)least(GDN2_CONV_PANEL, call->D - channel)};
  w.panel.stream = gdn2_streams(call->in.B * call->in.T * call->D * gdn2_dtype_size(y->dtype));
  w.panel.bias = gdn2_view_rows(&call->bias, 0, 0, 0, 0.0f);
  gdn2_rows_skip(&w.panel.bias, channel);
  w.panel.weight = (gdn2_conv_grid){call->weight.data, call->weight.dtype, call->weight.stride[2], call->weight.stride[3]};
  w.panel.weight.at += channel * w.panel.weight.channel * gdn2_dtype_size(w.panel.weight.dtype);
  return w;
}

static gdn2_conv_grid state_of(const gdn2_view *state, int64_t slot, int64_t channel) {
  if (!state->data) return (gdn2_conv_grid){.at = NULL};
  const int64_t first = slot * state->stride[0] + channel * state->stride[2];
  return (gdn2_conv_grid){state->data + first * gdn2_dtype_size(state->dtype), state->dtype, state->stride[2], state->stride[3]};
}

static gdn2_conv_grid_out state_out_of(const gdn2_view_out *state, int64_t slot, int64_t channel) {
  if (!state->data) return (gdn2_conv_grid_out){.at = NULL};
  const int64_t first = slot * state->stride[0] + channel * state->stride[2];
  return (gdn2_conv_grid_out){state->data + first * gdn2_dtype_size(state->dtype), state->dtype, state->stride[2],
                              state->stride[3]};
}

static gdn2_rows rows_of(const gdn2_view *x, const window *w, int64_t n) {
  const gdn2_span at = gdn2_span_of(&w->in->in, n);
  gdn2_rows rows = gdn2_view_rows(x, at.batch, at.start, 0, 0.0f);
  gdn2_rows_skip(&rows, w->channel);
  return rows;
}

static gdn2_rows_out rows_out_of(const gdn2_view_out *x, const window *w, int64_t batch, int64_t start) {
  gdn2_rows_out rows = gdn2_view_rows_out(x, batch, start, 0);
  gdn2_rows_out_skip(&rows, w->channel);
  return rows;
}

static gdn2_rows_out sequence_out_of(const gdn2_view_out *x, const window *w, int64_t n) {
  const gdn2_span at = gdn2_span_of(&w->in->in, n);
  return rows_out_of(x, w, at.batch, at.start);
}

/* The piece of sequence n in the window; 0 if there is none, or the sequence is skipped. */
static int run_of(const window *w, int64_t n, gdn2_conv_run *run) {
  const gdn2_conv_call *call = w->in;
  const int64_t start = start_of(&call->in, n), slot = gdn2_conv_slot(call, n);
  run->first = tokens_before(call, n, w->first);
  run->length = start_of(&call->in, n + 1) - start;
  run->count = tokens_before(call, n, w->last) - run->first;
  const int begins = start >= w->first && start < w->last;
  if (slot < 0 || (run->count == 0 && !begins)) return 0;
  run->x = rows_of(&call->x, w, n);
  run->state = state_of(&call->state, slot, w->channel);
  if (call->fresh && call->fresh[n]) run->state.at = NULL;
  return 1;
}

/* Calls work(context, w, n, run) for every piece in the window. */
typedef void piece_work(const void *context, const window *w, int64_t n, const gdn2_conv_run *run);
static void walk(const window *w, piece_work *work, const void *context) {
  const gdn2_call *in = &w->in->in;
  for (int64_t n = most(0, first_from(in, w->first) - 1); n < in->N && start_of(in, n) < w->last; n++) {
    gdn2_conv_run run;
    if (run_of(w, n, &run)) work(context, w, n, &run);
  }
}

/* Panels of the tokens that belong to no sequence, a window's share of them at a time. */
static void clear_rest(const gdn2_conv_call *call, const gdn2_view_out *y) {
  if (!call->in.cu_seqlens || !y->data) return;
  const int64_t start = start_of(&call->in, call->in.N);
  for (int64_t channel = 0; channel < call->D; channel += GDN2_CONV_PANEL) {
    const window w = {.in = call, .channel = channel};
    call->in.table->conv->clear((int)least(GDN2_CONV_PANEL, call->D - channel), call->in.T - start, rows_out_of(y, &w, 0, start));
  }
}

/* ---- Forward -------------------------------------------------------------------------------------------------------------- */

static void forward_piece(const void *context, const window *w, int64_t n, const gdn2_conv_run *run) {
  const gdn2_conv_forward_call *call = context;
  const gdn2_conv_grid_out last = state_out_of(&call->state_final, gdn2_conv_slot(&call->in, n), w->channel);
  w->in->in.table->conv->forward(&w->panel, run, sequence_out_of(&call->y, w, n), last);
}

static void forward_task(void *context, int64_t task, int worker) {
  (void)worker;
  const gdn2_conv_forward_call *call = context;
  const window w = window_of(&call->in, &call->y, task);
  const uint64_t mode = gdn2_flush_begin(!call->in.in.f64);
  walk(&w, forward_piece, call);
  gdn2_flush_end(mode);
  call->in.in.table->conv->finish();
}

void gdn2_drive_conv_forward(const gdn2_conv_forward_call *call) {
  gdn2_conv_forward_call copy = *call;
  gdn2_par_for(call->in.in.threads, windows_of(&call->in.in) * panels_of(&call->in), forward_task, &copy);
  clear_rest(&call->in, &call->y);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  const gdn2_conv_backward_call *call;
  char *sums; /* [windows][GDN2_CONV_SUMS][ld] float, or double; NULL: not wanted */
  int64_t ld; /* the channels, rounded up to whole panels */
} backward_work;

static int64_t ld_of(const gdn2_conv_call *call) { return panels_of(call) * GDN2_CONV_PANEL; }
static int64_t number_size(const gdn2_conv_call *call) { return call->in.f64 ? 8 : 4; }

size_t gdn2_conv_backward_bytes(const gdn2_conv_backward_call *call) {
  if (!call->dweight.data && !call->dbias.data) return 0;
  return (size_t)(windows_of(&call->in.in) * GDN2_CONV_SUMS * ld_of(&call->in) * number_size(&call->in));
}

/* The sums of the panel in the window that begins at place `first`. */
static char *sums_of(const backward_work *work, int64_t first, int sum, int64_t channel) {
  const int64_t row = first / WINDOW * GDN2_CONV_SUMS + sum;
  return work->sums ? work->sums + (row * work->ld + channel) * number_size(&work->call->in) : NULL;
}

static void backward_piece(const void *context, const window *w, int64_t n, const gdn2_conv_run *run) {
  const backward_work *work = context;
  const gdn2_conv_backward_call *call = work->call;
  const gdn2_conv_grad grad = {.dy = rows_of(&call->dy, w, n),
                               .dstate_final = state_of(&call->dstate_final, n, w->channel),
                               .dx = sequence_out_of(&call->dx, w, n),
                               .dstate = state_out_of(&call->dstate, n, w->channel),
                               .sums = sums_of(work, w->first, 0, w->channel),
                               .ld = work->ld};
  w->in->in.table->conv->backward(&w->panel, run, &grad);
}

static void backward_task(void *context, int64_t task, int worker) {
  (void)worker;
  const backward_work *work = context;
  const window w = window_of(&work->call->in, &work->call->dx, task);
  for (int sum = 0; work->sums && sum < GDN2_CONV_SUMS; sum++)
    memset(sums_of(work, w.first, sum, w.channel), 0, GDN2_CONV_PANEL * (size_t)number_size(&work->call->in));
  const uint64_t mode = gdn2_flush_begin(!work->call->in.in.f64);
  walk(&w, backward_piece, work);
  gdn2_flush_end(mode);
  work->call->in.in.table->conv->finish();
}

/* One panel of dweight and dbias. */
static void total_task(void *context, int64_t task, int worker) {
  (void)worker;
  const backward_work *work = context;
  const gdn2_conv_backward_call *call = work->call;
  const gdn2_conv_call *in = &call->in;
  const int64_t channel = task * GDN2_CONV_PANEL, windows = windows_of(&in->in), step = GDN2_CONV_SUMS * work->ld;
  const int channels = (int)least(GDN2_CONV_PANEL, in->D - channel);
  const gdn2_view_out *w = &call->dweight, *b = &call->dbias;
  for (int j = 0; w->data && j < in->W; j++) {
    const int64_t first = channel * w->stride[2] + j * w->stride[3];
    const gdn2_conv_grid_out to = {w->data + first * gdn2_dtype_size(w->dtype), w->dtype, w->stride[2], 0};
    in->in.table->conv->total(channels, windows, sums_of(work, 0, j, channel), step, in->in.f64, to);
  }
  if (!b->data) return;
  const gdn2_conv_grid_out to = {b->data + channel * gdn2_dtype_size(b->dtype), b->dtype, 1, 0};
  in->in.table->conv->total(channels, windows, sums_of(work, 0, GDN2_CONV_MAX_WIDTH, channel), step, in->in.f64, to);
}

void gdn2_drive_conv_backward(const gdn2_conv_backward_call *call, void *workspace) {
  const gdn2_conv_call *in = &call->in;
  const int sums = call->dweight.data || call->dbias.data;
  backward_work work = {call, sums ? workspace : NULL, ld_of(in)};
  gdn2_par_for(in->in.threads, windows_of(&in->in) * panels_of(in), backward_task, &work);
  if (sums) gdn2_par_for(in->in.threads, panels_of(in), total_task, &work);
  clear_rest(in, &call->dx);
}
