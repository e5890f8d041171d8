/* The causal convolution before the rule: what crosses the borders of shards are the last W-1 inputs, forward, and the gradient
 * by them, backward; docs/math.md, (L1) to (L4). A shard with fewer tokens passes on some of what it has got. */
#include "error.h"
#include "split.h"
#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* s.states: [rows, 1, D, W-1]. */
typedef struct halo {
  gdn2_split s;
  gdn2_conv_backward_args args; /* of the forward: the problem alone */
  void *made, *arrived;         /* [rows, 1, D, W-1]: what this rank sends, and what it gets */
  void *all;                    /* [N, 1, D, W-1]: the caller's array */
} halo;

/* ---- Checks ---- */

static gdn2_status check(const gdn2_conv_backward_args *args, const gdn2_mpi_shard *shard, const void *all, halo *h) {
  size_t bytes;
  gdn2_split *s = &h->s;
  const gdn2_status status = gdn2_conv_backward_workspace(args, &bytes);
  if (status != GDN2_OK) return gdn2_mpi_pass(status);
  const gdn2_conv_problem *p = &args->problem;
  h->args = *args;
  s->packed = p->cu_seqlens != NULL;
  s->N = s->packed ? p->N : p->B;
  s->states = (gdn2_block){.shape = {s->packed ? 1 : p->B, 1, p->D, p->W - 1}, .dtype = gdn2_state_type(p->x.dtype)};
  if (!all && s->N > 0) return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "the array for the result is NULL; it must not be");
  if (p->B > INT_MAX / (p->D * (p->W - 1)))
    return gdn2_mpi_fail(GDN2_ERR_SHAPE, "B is %" PRId64 "; B D (W - 1) must not be above %d", p->B, INT_MAX);
  return gdn2_split_check_place(s, shard);
}

static gdn2_status prepare(halo *h, void *all) {
  gdn2_split *s = &h->s;
  h->all = all;
  h->made = gdn2_split_take(s, gdn2_block_bytes(&s->states));
  h->arrived = gdn2_split_take(s, gdn2_block_bytes(&s->states));
  return gdn2_split_end_of_taking(s);
}

/* ---- Parts of a problem ---- */

static int64_t offset(const gdn2_conv_problem *p, int64_t n) { return gdn2_offset_at(p->cu_seqlens, p->cu_seqlens_type, n); }

/* Tokens from `first` on, whatever the number of tokens is then. */
static gdn2_input tokens_from(const gdn2_conv_problem *p, gdn2_input x, int64_t first) {
  const gdn2_block b = {.shape = {p->B, p->T, 1, p->D}, .dtype = x.dtype};
  return gdn2_block_from(&b, x, 1, first);
}

static gdn2_input states_from(const halo *h, gdn2_input x, int64_t n) {
  gdn2_block b = h->s.states;
  b.shape[0] = h->s.N;
  b.dtype = x.dtype;
  return gdn2_block_from(&b, x, 0, n);
}

/* The call on sequence n alone; on all of them where there are no cu_seqlens. */
static gdn2_conv_backward_args part_of(const halo *h, int64_t n) {
  gdn2_conv_backward_args c = h->args;
  gdn2_conv_problem *p = &c.problem;
  const int64_t first = h->s.packed ? offset(p, n) : 0;
  const int64_t length = h->s.packed ? offset(p, n + 1) - first : p->T;
  c.dy = tokens_from(&h->args.problem, c.dy, first);
  p->x = tokens_from(&h->args.problem, p->x, first);
  p->T = length;
  if (!h->s.packed) return c;
  p->state = states_from(h, p->state, n);
  p->cu_seqlens = NULL;
  p->N = 0;
  return c;
}

/* The caller's states of any type as an array of ours: a call without tokens hands them through. */
static gdn2_status copy_states(const halo *h, gdn2_input from, void *to) {
  const gdn2_conv_problem *p = &h->args.problem;
  const gdn2_conv_forward_args copy = {
      .struct_size = sizeof copy,
      .problem = {.B = h->s.N, .T = 0, .D = p->D, .W = p->W, .x = p->x, .weight = p->weight, .state = from},
      .state_final = {.data = to, .dtype = h->s.states.dtype},
      .exec = h->args.exec};
  return gdn2_mpi_pass(gdn2_conv_forward(&copy));
}

static gdn2_input array(const halo *h, const void *data) { return (gdn2_input){.data = data, .dtype = h->s.states.dtype}; }

/* ---- From rank to rank ---- */

typedef struct relay {
  int from, to; /* ranks, or MPI_PROC_NULL */
  bool late;    /* what is sent depends on what arrives */
  gdn2_status (*make)(const halo *h);
} relay;

static gdn2_status send(const halo *h, const relay *r, int count, MPI_Datatype type, MPI_Request *request) {
  const gdn2_status made = r->to == MPI_PROC_NULL ? GDN2_OK : r->make(h);
  return gdn2_mpi_first(made, gdn2_mpi_code(MPI_Isend(h->made, count, type, r->to, 0, h->s.group.comm, request), "MPI_Isend"));
}

static gdn2_status run_relay(const halo *h, const relay *r) {
  const gdn2_block *b = &h->s.states;
  const int count = (int)(b->shape[0] * b->shape[2] * b->shape[3]);
  MPI_Datatype type = b->dtype == GDN2_F64 ? MPI_DOUBLE : MPI_FLOAT;
  MPI_Request request = MPI_REQUEST_NULL;
  gdn2_status status = r->late ? GDN2_OK : send(h, r, count, type, &request);
  status = gdn2_mpi_first(
      status, gdn2_mpi_code(MPI_Recv(h->arrived, count, type, r->from, 0, h->s.group.comm, MPI_STATUS_IGNORE), "MPI_Recv"));
  if (r->late) status = gdn2_mpi_first(status, send(h, r, count, type, &request));
  return gdn2_mpi_first(status, gdn2_mpi_code(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"));
}

static int rank_if(bool is, int rank) { return is ? rank : MPI_PROC_NULL; }

/* ---- Forward ---- */

/* The last inputs of the sequences that go on. */
static gdn2_status make_state(const halo *h) {
  const gdn2_split *s = &h->s;
  const gdn2_conv_backward_args part = part_of(h, s->N - 1);
  gdn2_conv_forward_args c = {.struct_size = sizeof c,
                              .problem = part.problem,
                              .state_final = {.data = h->made, .dtype = s->states.dtype},
                              .exec = h->args.exec};
  if (s->in && s->through) c.problem.state = array(h, part.problem.T < part.problem.W - 1 ? h->arrived : NULL);
  return gdn2_mpi_pass(gdn2_conv_forward(&c));
}

static bool few_tokens(const halo *h, int64_t n) { return h->s.through && part_of(h, n).problem.T < h->args.problem.W - 1; }

static gdn2_status run_state(halo *h) {
  const gdn2_split *s = &h->s;
  const int rank = s->group.rank;
  const relay r = {rank_if(s->in, rank - 1), rank_if(s->out, rank + 1), s->in && s->out && few_tokens(h, s->N - 1), make_state};
  gdn2_status status = run_relay(h, &r);
  if (s->N > 0) status = gdn2_mpi_first(status, copy_states(h, h->args.problem.state, h->all));
  if (s->in) memcpy(h->all, h->arrived, gdn2_block_bytes(&s->states));
  return status;
}

static gdn2_status check_state(const gdn2_conv_problem *problem, const gdn2_mpi_shard *shard, const void *state, halo *h) {
  if (!problem) return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "problem is NULL; it must point to a gdn2_conv_problem");
  const gdn2_conv_backward_args args = {.struct_size = sizeof args, .problem = *problem};
  const gdn2_status status = check(&args, shard, state, h);
  if (status != GDN2_OK || !problem->state.data || h->s.packed || h->s.group.rank == 0) return status;
  return gdn2_mpi_fail(GDN2_ERR_ARGUMENT,
                       "state is given; it must be absent on every rank but the first, where the sequences begin");
}

gdn2_status gdn2_mpi_conv_state(const gdn2_conv_problem *problem, const gdn2_mpi_shard *shard, void *state) {
  halo h = {.made = NULL};
  gdn2_status status = gdn2_group_open(shard, &h.s.group);
  if (status == GDN2_OK) status = gdn2_group_agree(&h.s.group, check_state(problem, shard, state, &h));
  const gdn2_card card = {.same = {[GDN2_SAME_CALL] = GDN2_CALL_CONV_STATE}, .continues = status == GDN2_OK && shard->continues};
  if (status == GDN2_OK) status = gdn2_split_meet(&h.s, &card);
  if (status == GDN2_OK) status = gdn2_group_agree(&h.s.group, prepare(&h, state));
  if (status == GDN2_OK) status = run_state(&h);
  gdn2_split_close(&h.s);
  return status;
}

/* ---- Backward ---- */

/* The gradient by the state before the first sequence: of its first W-1 tokens alone, where it has so many. */
static gdn2_status make_gradient(const halo *h) {
  gdn2_split const *s = &h->s;
  const gdn2_conv_backward_args part = part_of(h, 0);
  const int64_t reach = part.problem.W - 1;
  gdn2_conv_backward_args c = {.struct_size = sizeof c,
                               .problem = part.problem,
                               .dy = part.dy,
                               .dstate = {.data = h->made, .dtype = s->states.dtype},
                               .exec = h->args.exec};
  if (part.problem.T >= reach) {
    c.problem.T = reach;
  } else {
    if (s->out && s->through) gdn2_block_add(&s->states, h->arrived, h->all);
    c.dstate_final = array(h, h->all);
  }
  return gdn2_mpi_pass(gdn2_conv_backward(&c));
}

static gdn2_status run_gradient(halo *h) {
  const gdn2_split *s = &h->s;
  const int rank = s->group.rank;
  const relay r = {rank_if(s->out, rank + 1), rank_if(s->in, rank - 1), s->in && s->out && few_tokens(h, 0), make_gradient};
  gdn2_status status = s->N > 0 ? copy_states(h, h->args.dstate_final, h->all) : GDN2_OK;
  status = gdn2_mpi_first(status, run_relay(h, &r));
  if (!s->out || r.late) return status; /* late: make_gradient has added it */
  gdn2_block every = s->states;
  every.shape[0] = s->N;
  gdn2_block_add(&s->states, h->arrived, (char *)h->all + (gdn2_block_bytes(&every) - gdn2_block_bytes(&s->states)));
  return status;
}

gdn2_status gdn2_mpi_conv_dstate_final(const gdn2_conv_backward_args *args, const gdn2_mpi_shard *shard, void *dstate_final) {
  halo h = {.made = NULL};
  gdn2_status status = gdn2_group_open(shard, &h.s.group);
  if (status == GDN2_OK) status = gdn2_group_agree(&h.s.group, check(args, shard, dstate_final, &h));
  const gdn2_card card = {.same = {[GDN2_SAME_CALL] = GDN2_CALL_CONV_DSTATE}, .continues = status == GDN2_OK && shard->continues};
  if (status == GDN2_OK) status = gdn2_split_meet(&h.s, &card);
  if (status == GDN2_OK) status = gdn2_group_agree(&h.s.group, prepare(&h, dstate_final));
  if (status == GDN2_OK) status = run_gradient(&h);
  gdn2_split_close(&h.s);
  return status;
}
