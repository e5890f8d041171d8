/* The order of gdn2_heads: groups, messages, calls. */
#include "error.h"
#include "heads.h"
#include <string.h>

/* ---- Groups ---- */

static int64_t first_key(const gdn2_heads *h, int64_t n) { return n * h->step < h->keys ? n * h->step : h->keys; }

/* Group n of the states that pass from rank to rank. */
static gdn2_block block_of(const gdn2_split *s, const gdn2_heads *h, int64_t n) {
  gdn2_block b = s->states;
  b.shape[1] = (first_key(h, n + 1) - first_key(h, n)) * h->of_each;
  return b;
}

static void *made(const gdn2_split *s, const gdn2_heads *h, int64_t n) {
  gdn2_block before = s->states;
  before.shape[1] = first_key(h, n) * h->of_each;
  return h->made + gdn2_block_bytes(&before);
}

/* The same group in an array [any number of rows, HV, K, V], from row `row` on. */
static gdn2_output part_of(const gdn2_split *s, const gdn2_heads *h, gdn2_output array, int64_t row, int64_t n) {
  const gdn2_output rows = gdn2_block_out_from(&s->states, array, 0, row);
  return gdn2_block_out_from(&s->states, rows, 1, first_key(h, n) * h->of_each);
}

static gdn2_output array_of(const gdn2_split *s, void *data) { return (gdn2_output){.data = data, .dtype = s->states.dtype}; }

/* The threads of the rank with the most want a task each; a head has one in each row, and more where V is large. */
void gdn2_heads_prepare(gdn2_split *s, gdn2_heads *h) {
  int64_t threads = 1;
  for (int r = 0; r < s->group.ranks; r++)
    if (s->group.cards[r].threads > threads) threads = s->group.cards[r].threads;
  h->keys = s->problem.H;
  h->of_each = h->keys ? s->states.shape[1] / h->keys : 1;
  const int64_t tasks = s->states.shape[0] * h->of_each;
  h->step = tasks > 0 && tasks < threads ? (threads + tasks - 1) / tasks : 1;
  if (h->step > h->keys) h->step = h->keys ? h->keys : 1;
  h->groups = (h->keys + h->step - 1) / h->step;
  const gdn2_block first = block_of(s, h, 0);
  h->made = gdn2_split_take(s, gdn2_block_bytes(&s->states));
  h->got = gdn2_split_take(s, 2 * gdn2_block_bytes(&first));
  h->requests = gdn2_split_take(s, (size_t)h->groups * sizeof(MPI_Request));
  for (int64_t n = 0; h->requests && n < h->groups; n++) h->requests[n] = MPI_REQUEST_NULL;
}

void gdn2_heads_reserve_forward(gdn2_split *s, const gdn2_heads *h, const gdn2_forward_args *args) {
  const gdn2_forward_args parts[] = {gdn2_heads_forward(args, 0, first_key(h, 1)),
                                     gdn2_heads_forward(args, first_key(h, h->groups - 1), h->keys)};
  for (int i = 0; i < 2 && h->groups > 0; i++) gdn2_split_reserve_forward(s, parts + i);
}

void gdn2_heads_reserve_backward(gdn2_split *s, const gdn2_heads *h, const gdn2_backward_args *args) {
  const gdn2_backward_args parts[] = {gdn2_heads_backward(args, 0, first_key(h, 1)),
                                      gdn2_heads_backward(args, first_key(h, h->groups - 1), h->keys)};
  for (int i = 0; i < 2 && h->groups > 0; i++) gdn2_split_reserve_backward(s, parts + i);
}

/* ---- Messages ---- */

static gdn2_message message(const gdn2_split *s, const gdn2_heads *h, int64_t n, void *data, int peer) {
  const gdn2_block b = block_of(s, h, n);
  return (gdn2_message){data, b.shape[0] * b.shape[1], b.shape[2] * b.shape[3], b.dtype, peer, 0};
}

static gdn2_status receive(const gdn2_split *s, const gdn2_heads *h, int64_t n, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  const gdn2_message m = message(s, h, n, h->got, peer);
  const gdn2_status status = gdn2_group_receive(&s->group, &m, &request);
  return gdn2_mpi_first(status, gdn2_mpi_code(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"));
}

static gdn2_status send(const gdn2_split *s, const gdn2_heads *h, int64_t n, int peer) {
  const gdn2_message m = message(s, h, n, made(s, h, n), peer);
  return gdn2_group_send(&s->group, &m, h->requests + n);
}

static gdn2_status wait_for_all(const gdn2_heads *h) {
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < h->groups; n++)
    status = gdn2_mpi_first(status, gdn2_mpi_code(MPI_Wait(h->requests + n, MPI_STATUS_IGNORE), "MPI_Wait"));
  return status;
}

/* ---- Forward ---- */

static gdn2_status arrive(const gdn2_split *s, const gdn2_heads *h, int64_t n, void *all) {
  const gdn2_status status = receive(s, h, n, s->group.rank - 1);
  const gdn2_block b = block_of(s, h, n);
  const gdn2_output arrived = part_of(s, h, array_of(s, s->arrived), 0, n);
  gdn2_block_put(&b, h->got, &arrived, 0);
  if (all) {
    const gdn2_output first = part_of(s, h, array_of(s, all), 0, n);
    gdn2_block_put(&b, h->got, &first, 0);
  }
  return status;
}

static gdn2_status forward_group(const gdn2_split *s, const gdn2_heads *h, const gdn2_forward_args *args,
                                 const gdn2_forward_args *alone, void *all, int64_t n) {
  const int64_t first = first_key(h, n), last = first_key(h, n + 1);
  const gdn2_block b = block_of(s, h, n);
  gdn2_status status = GDN2_OK;
  gdn2_forward_args c = gdn2_heads_forward(alone, first, last);
  c.h_final = array_of(s, made(s, h, n));
  if (s->out && !s->through) {
    status = gdn2_split_forward(s, c);
    status = gdn2_mpi_first(status, send(s, h, n, s->group.rank + 1));
  }
  if (s->in) status = gdn2_mpi_first(status, arrive(s, h, n, all));
  c = gdn2_heads_forward(args, first, last);
  if (!s->out || !s->through) return gdn2_mpi_first(status, gdn2_split_forward(s, c));
  const gdn2_output wanted = c.h_final;
  c.h_final = array_of(s, made(s, h, n));
  status = gdn2_mpi_first(status, gdn2_split_forward(s, c));
  status = gdn2_mpi_first(status, send(s, h, n, s->group.rank + 1));
  if (args->h_final.data) gdn2_block_put(&b, made(s, h, n), &wanted, 0);
  return status;
}

gdn2_status gdn2_heads_run_forward(const gdn2_split *s, const gdn2_heads *h, const gdn2_forward_args *args,
                                   const gdn2_forward_args *alone, void *all) {
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < h->groups; n++) status = gdn2_mpi_first(status, forward_group(s, h, args, alone, all, n));
  return gdn2_mpi_first(status, wait_for_all(h));
}

/* ---- Backward ---- */

/* What arrives is added to the gradient by the last states of the shard. */
static gdn2_status arrive_back(const gdn2_split *s, const gdn2_heads *h, int64_t n, void *dh_final) {
  const gdn2_status status = receive(s, h, n, s->group.rank + 1);
  const gdn2_block b = block_of(s, h, n);
  const gdn2_output part = part_of(s, h, array_of(s, dh_final), s->N - s->states.shape[0], n);
  const gdn2_input own = gdn2_as_input(part);
  void *sum = h->got + gdn2_block_bytes(&b);
  gdn2_block_get(&b, &own, 0, sum);
  gdn2_block_add(&b, h->got, sum);
  gdn2_block_put(&b, sum, &part, 0);
  return status;
}

static gdn2_status backward_group(const gdn2_split *s, const gdn2_heads *h, const gdn2_backward_args *args,
                                  const gdn2_backward_args *alone, void *dh_final, int64_t n) {
  const int64_t first = first_key(h, n), last = first_key(h, n + 1);
  gdn2_status status = GDN2_OK;
  gdn2_backward_args c = gdn2_heads_backward(alone, first, last);
  c.dh0 = array_of(s, made(s, h, n));
  if (s->in && !s->through) {
    status = gdn2_split_backward(s, c);
    status = gdn2_mpi_first(status, send(s, h, n, s->group.rank - 1));
  }
  if (s->out) status = gdn2_mpi_first(status, arrive_back(s, h, n, dh_final));
  c = gdn2_heads_backward(args, first, last);
  if (s->in && s->through) c.dh0 = array_of(s, made(s, h, n));
  status = gdn2_mpi_first(status, gdn2_split_backward(s, c));
  return s->in && s->through ? gdn2_mpi_first(status, send(s, h, n, s->group.rank - 1)) : status;
}

gdn2_status gdn2_heads_run_backward(const gdn2_split *s, const gdn2_heads *h, const gdn2_backward_args *args,
                                    const gdn2_backward_args *alone, void *dh_final) {
  gdn2_status status = GDN2_OK;
  for (int64_t n = 0; n < h->groups; n++) status = gdn2_mpi_first(status, backward_group(s, h, args, alone, dh_final, n));
  return gdn2_mpi_first(status, wait_for_all(h));
}
