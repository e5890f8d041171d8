/* Backward in float64: one task per (block of sequences, key head). A task walks the value heads that read its key head, one
 * after the other, and adds what they give: the caller's arrays hold the sums. What is summed over sequences, the gradients of
 * A_log and dt_bias, has an array per block; the blocks are added in their order.
 *
 * A head keeps the state before every segment of about sqrt(T) tokens, or of as many as the caller says; then, from the last
 * segment to the first, its tokens are replayed with a state each and walked in reverse. */
#include "base/par_for.h"
#include "chunk/records.h"
#include "double/double.h"
#include "double/head.h"

/* Blocks of sequences, at most: tasks enough for any machine, memory for the sums that stays small. */
#define MOST_BLOCKS 64

static int64_t at_most(int64_t x, int64_t limit) { return x < limit ? x : limit; }

/* Tokens of a segment, no more than there are: the caller's chunks, or the root of the length, rounded up; 1 at least. */
static int64_t segment_of(const gdn2_backward_call *call, int64_t length) {
  int64_t n = 1;
  if (call->checkpoint_every > length / GDN2_CHUNK) return length > 0 ? length : 1;
  if (call->checkpoint_every > 0) return call->checkpoint_every * GDN2_CHUNK;
  while (n * n < length) n++;
  return n;
}

typedef struct {
  const gdn2_backward_call *call;
  int64_t per_block, blocks; /* sequences */
  int64_t g_heads;
  int64_t segment, segments; /* tokens from one kept state to the next; how many are kept of the longest sequence */
  int workers, want_states;  /* want_states: any of dq dk dg db and what follows from dg */
  double *sums;              /* [blocks][g_heads][K + 1] gradients by dt_bias, then by A_log */
  char *slots;
  size_t slot_bytes;
} backward_work;

/* A worker's part of the workspace. */
typedef struct {
  gdn2_double_token token;
  gdn2_double_grad grad;
  double *dS, *du;     /* [K][V], [V] */
  double *checkpoints; /* [segments][K][V] */
  double *states;      /* [segment + 1][K][V] before each token of the segment at hand, and after the last */
  double *u;           /* [segment][V] what its tokens wrote */
} backward_slot;

static int want_sums(const gdn2_backward_call *call) { return call->dA_log.data || call->ddt_bias.data; }

static backward_slot lay_slot(gdn2_arena *arena, const backward_work *w) {
  const int64_t K = w->call->in.K, V = w->call->in.V, segment = w->want_states ? w->segment : 0;
  const int64_t kept = w->want_states ? w->segments : 0;
  backward_slot slot;
  slot.token = gdn2_double_lay_token(arena, K, V);
  double **const by_key[] = {&slot.grad.q, &slot.grad.k, &slot.grad.g, &slot.grad.b};
  for (int i = 0; i < 4; i++) *by_key[i] = gdn2_double_room(arena, K);
  slot.grad.v = gdn2_double_room(arena, V);
  slot.grad.w = gdn2_double_room(arena, V);
  slot.dS = gdn2_double_room(arena, K * V);
  slot.du = gdn2_double_room(arena, V);
  slot.checkpoints = gdn2_double_room(arena, kept * K * V);
  slot.states = gdn2_double_room(arena, (segment + 1) * K * V);
  slot.u = gdn2_double_room(arena, segment * V);
  return slot;
}

/* How the work is cut, and what of the workspace goes where; *bytes: all of it. */
static backward_work plan(const gdn2_backward_call *call, char *workspace, size_t *bytes) {
  const gdn2_call *in = &call->in;
  backward_work w = {.call = call, .segment = segment_of(call, gdn2_longest(in)), .g_heads = gdn2_g_heads(in)};
  w.segments = gdn2_ceil_div(gdn2_longest(in), w.segment);
  w.per_block = in->N > 0 ? gdn2_ceil_div(in->N, MOST_BLOCKS) : 1;
  w.blocks = gdn2_ceil_div(in->N, w.per_block);
  w.workers = (int)at_most(in->threads, w.blocks * in->H);
  w.want_states = call->dq.data || call->dk.data || call->dg.data || call->db.data || want_sums(call);
  gdn2_arena arena = {workspace, 0}, measure = {NULL, 0};
  w.sums = gdn2_double_room(&arena, want_sums(call) ? w.blocks * w.g_heads * (in->K + 1) : 0);
  (void)lay_slot(&measure, &w);
  w.slots = workspace ? workspace + arena.used : NULL;
  w.slot_bytes = measure.used;
  *bytes = arena.used + w.slot_bytes * (size_t)w.workers;
  return w;
}

size_t gdn2_double_backward_bytes(const gdn2_backward_call *call) {
  size_t bytes;
  (void)plan(call, NULL, &bytes);
  return bytes;
}

/* One value head of one sequence on its way. */
typedef struct {
  const backward_work *work;
  backward_slot slot;
  gdn2_span at;
  int64_t j, segment; /* value head; tokens from one checkpoint to the next */
  gdn2_double_head head;
  gdn2_rows d_o;
  gdn2_rows_out dq, dk, dv, dg, db, dw;
  int add_keys, add_g, add_b; /* an earlier value head of the group has been there */
  double *sums;               /* [K + 1] of the head of its decays; NULL: not wanted */
} head_walk;

/* The row of token t; the sum over the channels where the row is one number. */
static void put(gdn2_rows_out to, int64_t t, int64_t count, const double *from, int add) {
  if (!to.at) return;
  double *row = (double *)(void *)to.at + t * to.step, sum = 0;
  for (int64_t c = 0; !to.channel && c < count; c++) sum += from[c];
  if (!to.channel) row[0] = add ? row[0] + sum : sum;
  for (int64_t c = 0; to.channel && c < count; c++) row[c] = add ? row[c] + from[c] : from[c];
}

static void put_keys(const head_walk *w, int64_t t) {
  const int64_t K = w->head.K;
  const gdn2_double_grad *grad = &w->slot.grad;
  put(w->dq, t, K, grad->q, w->add_keys);
  put(w->dk, t, K, grad->k, w->add_keys);
  put(w->dg, t, K, grad->g, w->add_g);
  put(w->db, t, K, grad->b, w->add_b);
  if (!w->sums) return;
  for (int64_t d = 0; d < K; d++) w->sums[d] += grad->g[d];
  w->sums[K] += grad->A_log;
}

static void keep_checkpoints(head_walk *w) {
  const gdn2_call *in = &w->work->call->in;
  const size_t state = (size_t)(in->K * in->V);
  double *S = w->slot.states;
  gdn2_double_state_load(&in->h0, w->at.sequence, w->j, in->K, in->V, S);
  for (int64_t t = 0; t < w->at.length; t++) {
    if (t % w->segment == 0) memcpy(w->slot.checkpoints + (size_t)(t / w->segment) * state, S, state * sizeof *S);
    gdn2_double_load(&w->head, t, &w->slot.token);
    gdn2_double_step(&w->head, &w->slot.token, S, S, w->slot.u, NULL);
  }
}

/* The states before tokens first .. first+count-1 and after the last. */
static void replay(head_walk *w, int64_t first, int64_t count) {
  const int64_t state = w->head.K * w->head.V;
  double *S = w->slot.states;
  memcpy(S, w->slot.checkpoints + first / w->segment * state, (size_t)state * sizeof *S);
  for (int64_t i = 0; i < count; i++) {
    gdn2_double_load(&w->head, first + i, &w->slot.token);
    gdn2_double_step(&w->head, &w->slot.token, S + i * state, S + (i + 1) * state, w->slot.u + i * w->head.V, NULL);
  }
}

/* Token t, the i-th of its segment. */
static void token_back(head_walk *w, int64_t t, int64_t i) {
  const int64_t V = w->head.V, state = w->head.K * V;
  const int keys = w->work->want_states;
  const double *S0 = keys ? w->slot.states + i * state : NULL, *S1 = keys ? S0 + state : NULL;
  const double *u = keys ? w->slot.u + i * V : NULL, *d_o = w->d_o.at ? gdn2_double_at(w->d_o, t) : NULL;
  gdn2_double_grad *grad = &w->slot.grad;
  gdn2_double_load(&w->head, t, &w->slot.token);
  gdn2_double_step_back(&w->head, &w->slot.token, S0, S1, u, d_o, w->slot.dS, w->slot.du, grad);
  gdn2_double_chain_values(&w->head, t, grad);
  put(w->dv, t, V, grad->v, 0);
  put(w->dw, t, V, grad->w, 0);
  if (!keys) return;
  gdn2_double_chain_keys(&w->head, t, &w->slot.token, grad);
  put_keys(w, t);
}

static void walk_back(head_walk *w) {
  const gdn2_backward_call *call = w->work->call;
  const int64_t K = w->head.K, V = w->head.V, length = w->at.length;
  gdn2_double_state_load(&call->dh_final, w->at.sequence, w->j, K, V, w->slot.dS);
  if (w->work->want_states) keep_checkpoints(w);
  for (int64_t segment = gdn2_ceil_div(length, w->segment) - 1; segment >= 0; segment--) {
    const int64_t first = segment * w->segment, count = at_most(length - first, w->segment);
    if (w->work->want_states) replay(w, first, count);
    for (int64_t i = count - 1; i >= 0; i--) token_back(w, first + i, i);
  }
  gdn2_double_state_store(w->slot.dS, K, V, &call->dh0, w->at.sequence, w->j);
}

static double *sums_of(const backward_work *work, int64_t block, int64_t i, int64_t j) {
  if (!want_sums(work->call)) return NULL;
  return work->sums + (block * work->g_heads + (work->call->in.g_key_heads ? i : j)) * (work->call->in.K + 1);
}

/* Number r of the value heads of key head i. */
static head_walk head_walk_of(const backward_work *work, backward_slot slot, gdn2_span at, int64_t block, int64_t i, int64_t r) {
  const gdn2_backward_call *call = work->call;
  const gdn2_call *in = &call->in;
  const int64_t j = gdn2_value_head(in, i, r), g_head = in->g_key_heads ? i : j, b_head = in->b_key_heads ? i : j;
  head_walk w = {.work = work, .slot = slot, .at = at, .j = j, .segment = work->segment};
  w.head = gdn2_double_head_of(in, at, j);
  w.d_o = gdn2_view_rows(&call->d_o, at.batch, at.start, j, 0.0f);
  w.dq = gdn2_view_rows_out(&call->dq, at.batch, at.start, i);
  w.dk = gdn2_view_rows_out(&call->dk, at.batch, at.start, i);
  w.dv = gdn2_view_rows_out(&call->dv, at.batch, at.start, j);
  w.dg = gdn2_view_rows_out(&call->dg, at.batch, at.start, g_head);
  w.db = gdn2_view_rows_out(&call->db, at.batch, at.start, b_head);
  w.dw = gdn2_view_rows_out(&call->dw, at.batch, at.start, j);
  w.add_keys = r > 0;
  w.add_g = r > 0 && in->g_key_heads;
  w.add_b = r > 0 && in->b_key_heads;
  w.sums = sums_of(work, block, i, j);
  return w;
}

static void backward_task(void *context, int64_t task, int worker) {
  const backward_work *work = context;
  const gdn2_call *in = &work->call->in;
  const int64_t block = task / in->H, i = task % in->H, group = in->HV / in->H, first = block * work->per_block;
  gdn2_arena arena = {work->slots + work->slot_bytes * (size_t)worker, 0};
  const backward_slot slot = lay_slot(&arena, work);
  for (int64_t r = 0; r < group; r++) {
    double *sums = sums_of(work, block, i, gdn2_value_head(in, i, r));
    for (int64_t d = 0; sums && d <= in->K; d++) sums[d] = 0;
  }
  for (int64_t n = first; n < at_most(first + work->per_block, in->N); n++)
    for (int64_t r = 0; r < group; r++) {
      head_walk w = head_walk_of(work, slot, gdn2_span_of(in, n), block, i, r);
      walk_back(&w);
    }
}

/* The blocks' sums, added in their order. */
static void put_sums(const backward_work *work) {
  const gdn2_backward_call *call = work->call;
  const int64_t K = call->in.K;
  for (int64_t h = 0; h < work->g_heads; h++) {
    double *total = work->sums + h * (K + 1), zero[GDN2_MAX_DIM + 1] = {0};
    if (work->blocks == 0) total = zero;
    for (int64_t block = 1; block < work->blocks; block++)
      for (int64_t d = 0; d <= K; d++) total[d] += work->sums[(block * work->g_heads + h) * (K + 1) + d];
    put(gdn2_view_rows_out(&call->ddt_bias, 0, 0, h), 0, K, total, 0);
    put(gdn2_view_rows_out(&call->dA_log, 0, 0, h), 0, 1, total + K, 0);
  }
}

/* Tokens of no sequence have no effect. */
static void clear_rest(const gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  const int64_t start = gdn2_offset(in, in->N);
  gdn2_double_clear(&call->dq, start, in->T, in->H, in->K);
  gdn2_double_clear(&call->dk, start, in->T, in->H, in->K);
  gdn2_double_clear(&call->dv, start, in->T, in->HV, in->V);
  gdn2_double_clear(&call->dg, start, in->T, gdn2_g_heads(in), in->K);
  gdn2_double_clear(&call->db, start, in->T, gdn2_b_heads(in), in->K);
  gdn2_double_clear(&call->dw, start, in->T, in->HV, in->V);
}

void gdn2_double_backward(const gdn2_backward_call *call, void *workspace) {
  size_t bytes;
  backward_work work = plan(call, workspace, &bytes);
  gdn2_par_for(work.workers, work.blocks * call->in.H, backward_task, &work);
  if (want_sums(call)) put_sums(&work);
  if (call->in.cu_seqlens) clear_rest(call);
}
