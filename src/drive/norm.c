/* The norm's schedule: rows in the order [batch, time, head] are cut into blocks, a task each; the sums for the weight are made
 * block by block, and these are added in order. */
#include "drive/drive.h"
#include "drive/norm.h"
#include "base/arena.h"
#include "base/flush.h"
#include "base/par_for.h"

/* Numbers of a block, about. The backward's blocks have many rows, so that their sums are few numbers beside their rows. */
#define FORWARD_BLOCK (16 * 1024)
#define BACKWARD_BLOCK (32 * 1024)
#define BACKWARD_ROWS 32
/* Channels of a task of the last sum. */
#define PANEL GDN2_CONV_PANEL

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t rows_of(const gdn2_norm_call *call) { return call->B * call->T * call->H; }

/* y: an output. All have the same shape. */
static gdn2_norm_rule rule_of(const gdn2_norm_call *call, const gdn2_view_out *y) {
  return (gdn2_norm_rule){.D = call->D,
                          .eps = call->eps,
                          .plus_one = call->plus_one,
                          .gate = call->gate,
                          .stream = gdn2_streams(rows_of(call) * call->D * gdn2_dtype_size(y->dtype)),
                          .weight = gdn2_view_rows(&call->weight, 0, 0, 0, 1.0f)};
}

/* Rows that lie a constant step apart in every tensor: of one token's heads, or of one head's tokens where there is one head. */
typedef struct {
  int64_t batch, token, head, count;
} stretch;

static stretch stretch_of(const gdn2_norm_call *call, int64_t row, int64_t end) {
  const int64_t token = row / call->H;
  stretch s = {token / call->T, token % call->T, row % call->H, 0};
  s.count = least(end - row, call->H == 1 ? call->T - s.token : call->H - s.head);
  return s;
}

static gdn2_rows at_stretch(const gdn2_norm_call *call, const gdn2_view *x, const stretch *s) {
  gdn2_rows rows = gdn2_view_rows(x, s->batch, s->token, s->head, 0.0f);
  if (call->H > 1) rows.step = x->stride[2];
  return rows;
}

static gdn2_rows_out out_stretch(const gdn2_norm_call *call, const gdn2_view_out *x, const stretch *s) {
  gdn2_rows_out rows = gdn2_view_rows_out(x, s->batch, s->token, s->head);
  if (call->H > 1) rows.step = x->stride[2];
  return rows;
}

static gdn2_norm_in in_stretch(const gdn2_norm_call *call, const stretch *s) {
  return (gdn2_norm_in){at_stretch(call, &call->x, s), at_stretch(call, &call->z, s)};
}

/* ---- Forward -------------------------------------------------------------------------------------------------------------- */

static int64_t forward_rows(const gdn2_norm_call *call) { return most(1, FORWARD_BLOCK / call->D); }

static void forward_task(void *context, int64_t task, int worker) {
  (void)worker;
  const gdn2_norm_forward_call *call = context;
  const gdn2_norm_call *in = &call->in;
  const gdn2_norm_rule rule = rule_of(in, &call->y);
  const int64_t block = forward_rows(in), end = least((task + 1) * block, rows_of(in));
  const uint64_t mode = gdn2_flush_begin(!in->f64);
  for (int64_t row = task * block; row < end;) {
    const stretch s = stretch_of(in, row, end);
    const gdn2_norm_in rows = in_stretch(in, &s);
    in->table->norm->forward(&rule, &rows, s.count, out_stretch(in, &call->y, &s));
    row += s.count;
  }
  gdn2_flush_end(mode);
  in->table->norm->finish();
}

void gdn2_drive_norm_forward(const gdn2_norm_forward_call *call) {
  gdn2_norm_forward_call copy = *call;
  if (!call->y.data) return;
  gdn2_par_for(call->in.threads, gdn2_ceil_div(rows_of(&call->in), forward_rows(&call->in)), forward_task, &copy);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

/* The workspace: a scratch row for each worker, then the sums of each block. */
typedef struct {
  const gdn2_norm_backward_call *call;
  char *scratch, *sums; /* rows of row_bytes; sums == NULL: not wanted */
  int64_t row_bytes;
} backward_work;

static int64_t backward_rows(const gdn2_norm_call *call) { return most(BACKWARD_ROWS, BACKWARD_BLOCK / call->D); }
static int64_t blocks_of(const gdn2_norm_call *call) { return gdn2_ceil_div(rows_of(call), backward_rows(call)); }
static int64_t number_size(const gdn2_norm_call *call) { return call->f64 ? 8 : 4; }
static int64_t row_bytes(const gdn2_norm_call *call) {
  return gdn2_ceil_div(call->D * number_size(call), GDN2_ALIGN) * GDN2_ALIGN;
}

size_t gdn2_norm_backward_bytes(const gdn2_norm_backward_call *call) {
  const int64_t blocks = call->dweight.data ? blocks_of(&call->in) : 0;
  return (size_t)(row_bytes(&call->in) * (call->in.threads + blocks));
}

static void backward_task(void *context, int64_t task, int worker) {
  const backward_work *work = context;
  const gdn2_norm_backward_call *call = work->call;
  const gdn2_norm_call *in = &call->in;
  const gdn2_norm_rule rule = rule_of(in, &call->dx);
  const int64_t block = backward_rows(in), end = least((task + 1) * block, rows_of(in));
  gdn2_norm_grad grad = {.scratch = work->scratch + worker * work->row_bytes};
  if (work->sums) grad.dweight = memset(work->sums + task * work->row_bytes, 0, (size_t)work->row_bytes);
  const uint64_t mode = gdn2_flush_begin(!in->f64);
  for (int64_t row = task * block; row < end;) {
    const stretch s = stretch_of(in, row, end);
    const gdn2_norm_in rows = in_stretch(in, &s);
    grad.dy = at_stretch(in, &call->dy, &s);
    grad.dx = out_stretch(in, &call->dx, &s);
    grad.dz = out_stretch(in, &call->dz, &s);
    in->table->norm->backward(&rule, &rows, s.count, &grad);
    row += s.count;
  }
  gdn2_flush_end(mode);
  in->table->norm->finish();
}

static void total_task(void *context, int64_t task, int worker) {
  (void)worker;
  const backward_work *work = context;
  const gdn2_norm_call *in = &work->call->in;
  const gdn2_view_out *to = &work->call->dweight;
  const int64_t channel = task * PANEL, size = number_size(in);
  const gdn2_conv_grid_out out = {to->data + channel * gdn2_dtype_size(to->dtype), to->dtype, 1, 0};
  in->table->conv->total((int)least(PANEL, in->D - channel), blocks_of(in), work->sums + channel * size, work->row_bytes / size,
                         in->f64, out);
}

void gdn2_drive_norm_backward(const gdn2_norm_backward_call *call, void *workspace) {
  const gdn2_norm_call *in = &call->in;
  backward_work work = {.call = call, .scratch = workspace, .row_bytes = row_bytes(in)};
  if (call->dweight.data) work.sums = work.scratch + work.row_bytes * in->threads;
  gdn2_par_for(in->threads, blocks_of(in), backward_task, &work);
  if (work.sums) gdn2_par_for(in->threads, gdn2_ceil_div(in->D, PANEL), total_task, &work);
}
