#include "error.h"
#include "heads.h"
#include <stdlib.h>
#include <string.h>

typedef struct backward {
  gdn2_split s;
  gdn2_heads heads;
  gdn2_backward_args main, summary; /* summary: of c', (M5), where the call itself does not give it */
  bool main_first;                  /* a rank on which the sequences end: the call itself gives what the others wait for */
  void *zeros;                      /* [rows, HV, K, V], where a gradient by h0 is asked for that is none */
  void *all_h0;                     /* see gdn2_split_take_all */
  void *dh_final;                   /* [N, HV, K, V], where other ranks add to the caller's */
  gdn2_block A, dt;
  void *dA, *ddt, *parts; /* sums of this rank; those of all ranks, on the first */
} backward;

/* ---- Checks ---- */

/* As in forward.c. */
static gdn2_status check_args(const gdn2_backward_args *args) {
  size_t bytes;
  const gdn2_status status = gdn2_backward_workspace(args, &bytes);
  if (status != GDN2_OK) return gdn2_mpi_pass(status);
  _Alignas(64) char place[2];
  gdn2_backward_args dry = *args;
  dry.exec.workspace = place + 1;
  const gdn2_status refused = gdn2_backward(&dry);
  return refused == GDN2_ERR_WORKSPACE ? GDN2_OK : gdn2_mpi_pass(refused);
}

static gdn2_status check(const gdn2_backward_args *args, const gdn2_mpi_shard *shard, backward *b) {
  gdn2_status status = check_args(args);
  if (status == GDN2_OK) status = gdn2_split_check(&b->s, &args->problem, &args->exec, shard);
  if (status == GDN2_OK && args->dh0.data && !b->s.packed && b->s.group.rank > 0)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT,
                         "dh0 is given; it must be absent on every rank but the first, where the sequences begin");
  return status;
}

static bool per_head(const gdn2_output *x) { return x->stride[3] == 0 && (x->stride[0] || x->stride[1] || x->stride[2]); }

static gdn2_block parameter(const backward *b, const gdn2_problem *p, bool one) {
  const int64_t heads = p->g_key_heads ? p->H : gdn2_problem_heads(p);
  return (gdn2_block){.shape = {1, 1, heads, one ? 1 : p->K}, .dtype = b->s.states.dtype};
}

static int64_t count_of(const gdn2_block *block, const gdn2_output *wanted) {
  return wanted->data ? block->shape[2] * block->shape[3] : 0;
}

static gdn2_card card_of(const gdn2_backward_args *args, const gdn2_mpi_shard *shard, backward *b) {
  gdn2_card card = {.continues = shard->continues};
  b->A = parameter(b, &args->problem, true);
  b->dt = parameter(b, &args->problem, per_head(&args->ddt_bias));
  card.same[GDN2_SAME_CALL] = GDN2_CALL_BACKWARD;
  card.same[GDN2_SAME_KEPT] = shard->kept != NULL;
  card.same[GDN2_SAME_A] = count_of(&b->A, &args->dA_log);
  card.same[GDN2_SAME_DT] = count_of(&b->dt, &args->ddt_bias);
  return card;
}

/* ---- The calls ---- */

/* Where the gradient goes that the rank before waits for. */
static gdn2_output sent(const backward *b) {
  return (gdn2_output){.data = b->s.method == GDN2_MPI_HEADS ? (void *)b->heads.made : b->s.scan.own.c,
                       .dtype = b->s.states.dtype};
}

/* The gradient by the state before the shard, or before its first sequence where no other gradient reaches it. */
static gdn2_backward_args summary_of(const backward *b, const gdn2_backward_args *args) {
  const gdn2_split *s = &b->s;
  gdn2_backward_args c = {.struct_size = sizeof c,
                          .problem = s->problem,
                          .d_o = args->d_o,
                          .dh_final = args->dh_final,
                          .dh0 = sent(b),
                          .checkpoint_every = args->checkpoint_every,
                          .profile = args->profile};
  if (s->through) {
    c.snapshots = args->snapshots;
    c.snapshot_every = args->snapshot_every;
    c.residual = args->residual;
  } else {
    c.problem = gdn2_problem_sequence(&s->problem, 0);
    c.d_o = gdn2_problem_tokens(&s->problem, args->d_o, s->states.shape[1], s->states.shape[3], 0);
  }
  c.problem.h0 = (gdn2_input){.data = s->arrived, .dtype = s->states.dtype};
  return c;
}

/* The sums over the tokens of this rank go to memory of ours first. */
static void take_sums(backward *b, const gdn2_backward_args *args) {
  gdn2_split *s = &b->s;
  const size_t A = gdn2_block_bytes(&b->A), dt = gdn2_block_bytes(&b->dt);
  if (s->group.ranks == 1 || (!args->dA_log.data && !args->ddt_bias.data)) return;
  b->dA = gdn2_split_take(s, A);
  b->ddt = gdn2_split_take(s, dt);
  b->parts = gdn2_split_take(s, (A > dt ? A : dt) * (s->group.rank == 0 ? (size_t)s->group.ranks : 1));
  if (args->dA_log.data) b->main.dA_log = (gdn2_output){.data = b->dA, .dtype = b->A.dtype};
  if (!args->ddt_bias.data) return;
  b->main.ddt_bias = per_head(&args->ddt_bias) ? gdn2_per_head_out(b->ddt, b->dt.dtype, 1, b->dt.shape[2])
                                               : (gdn2_output){.data = b->ddt, .dtype = b->dt.dtype};
}

static void take_arrays(backward *b, const gdn2_backward_args *args) {
  gdn2_split *s = &b->s;
  gdn2_block all = s->states;
  all.shape[0] = s->N;
  b->all_h0 = gdn2_split_take_all(s, s->in);
  if (s->out) b->dh_final = gdn2_split_take(s, gdn2_block_bytes(&all));
  if (s->in && args->dh0.data) b->zeros = gdn2_split_take(s, gdn2_block_bytes(&s->states));
  take_sums(b, args);
}

static gdn2_status prepare(const gdn2_backward_args *args, const gdn2_mpi_shard *shard, backward *b) {
  gdn2_split *s = &b->s;
  const bool scan = s->method == GDN2_MPI_SCAN;
  gdn2_split_prepare(s, shard);
  if (!scan) gdn2_heads_prepare(s, &b->heads);
  if (shard->kept) s->c_call.struct_size = s->M_call.struct_size = 0;
  b->main = *args;
  take_arrays(b, args);
  if (s->out) b->main.dh_final = (gdn2_input){.data = b->dh_final, .dtype = s->states.dtype};
  b->main_first = scan && s->in && s->through && !s->out;
  if (s->in && !b->main_first && (scan || !s->through)) b->summary = summary_of(b, args);
  if (b->main_first || (!scan && s->in && s->through)) b->main.dh0 = sent(b);
  if (scan) {
    gdn2_split_reserve_backward(s, &b->main);
    gdn2_split_reserve_backward(s, &b->summary);
  } else {
    gdn2_heads_reserve_forward(s, &b->heads, &s->c_call);
    gdn2_heads_reserve_backward(s, &b->heads, &b->main);
    gdn2_heads_reserve_backward(s, &b->heads, &b->summary);
  }
  return gdn2_split_end_of_taking(s);
}

/* ---- Sums over the ranks ---- */

static void add_parts(const gdn2_block *block, int ranks, const void *parts, void *sums) {
  const size_t count = (size_t)(block->shape[2] * block->shape[3]);
  for (size_t i = 0; i < count; i++) {
    double sum = 0;
    for (size_t r = 0; r < (size_t)ranks; r++)
      sum += block->dtype == GDN2_F64 ? ((const double *)parts)[r * count + i] : (double)((const float *)parts)[r * count + i];
    if (block->dtype == GDN2_F64)
      ((double *)sums)[i] = sum;
    else
      ((float *)sums)[i] = (float)sum;
  }
}

static gdn2_status sum(const backward *b, const gdn2_block *block, void *sums, const gdn2_output *wanted) {
  const gdn2_group *g = &b->s.group;
  const int count = (int)(block->shape[2] * block->shape[3]);
  MPI_Datatype type = block->dtype == GDN2_F64 ? MPI_DOUBLE : MPI_FLOAT;
  if (!wanted->data || g->ranks == 1) return GDN2_OK;
  gdn2_status status = gdn2_mpi_code(MPI_Gather(sums, count, type, b->parts, count, type, 0, g->comm), "MPI_Gather");
  if (status != GDN2_OK) return status;
  if (g->rank == 0) add_parts(block, g->ranks, b->parts, sums);
  status = gdn2_mpi_code(MPI_Bcast(sums, count, type, 0, g->comm), "MPI_Bcast");
  if (status == GDN2_OK) gdn2_block_put(block, sums, wanted, 0);
  return status;
}

/* ---- The call ---- */

/* M^T takes the place of M, and the other way round. */
static gdn2_status scan_back(backward *b) {
  gdn2_scan *scan = &b->s.scan;
  void *const transposed = scan->own.left;
  scan->reversed = true;
  if (b->s.in && b->s.out && b->s.through) {
    gdn2_scan_transpose(scan, b->s.M, transposed);
    scan->own.M = transposed;
    scan->own.left = b->s.M;
  }
  return gdn2_scan_run(scan);
}

/* What arrives from the ranks behind is added to the gradient by the last states of the shard. */
static void take_over(backward *b) {
  const gdn2_split *s = &b->s;
  gdn2_block all = s->states;
  if (!s->out) return;
  all.shape[0] = s->N;
  gdn2_block_add(&s->states, s->scan.before.c, (char *)b->dh_final + (gdn2_block_bytes(&all) - gdn2_block_bytes(&s->states)));
}

/* The first sequence did not begin with its h0. */
static void clear_first_dh0(const backward *b, const gdn2_backward_args *args) {
  if (!b->zeros) return;
  memset(b->zeros, 0, gdn2_block_bytes(&b->s.states));
  gdn2_block_put(&b->s.states, b->zeros, &args->dh0, 0);
}

static gdn2_status run_scan(const gdn2_mpi_shard *shard, backward *b) {
  gdn2_split *s = &b->s;
  gdn2_status status = gdn2_split_forward(s, s->c_call);
  if (status == GDN2_OK) status = gdn2_split_forward(s, s->M_call);
  if (status == GDN2_OK && !shard->kept) status = gdn2_split_scan(s);
  b->main.problem = gdn2_split_arrived(s, b->all_h0);
  if (status == GDN2_OK) status = gdn2_split_backward(s, b->main_first ? b->main : b->summary);
  if (status == GDN2_OK) status = scan_back(b);
  take_over(b);
  return status == GDN2_OK && !b->main_first ? gdn2_split_backward(s, b->main) : status;
}

/* Without a kept state it comes by another forward, of those ranks that have one behind them. */
static gdn2_status run_heads(const gdn2_mpi_shard *shard, backward *b) {
  const gdn2_split *s = &b->s;
  gdn2_status status = GDN2_OK;
  if (!shard->kept) {
    gdn2_forward_args again = s->c_call;
    if (!s->through) again.struct_size = 0;
    again.problem = gdn2_split_arrived(s, b->all_h0);
    status = gdn2_heads_run_forward(s, &b->heads, &again, &s->c_call, b->all_h0);
  }
  b->main.problem = gdn2_split_arrived(s, b->all_h0);
  return status == GDN2_OK ? gdn2_heads_run_backward(s, &b->heads, &b->main, &b->summary, b->dh_final) : status;
}

static gdn2_status run(const gdn2_backward_args *args, const gdn2_mpi_shard *shard, backward *b) {
  const gdn2_split *s = &b->s;
  gdn2_block all = s->states;
  all.shape[0] = s->N;
  if (s->out) gdn2_block_get(&all, &args->dh_final, 0, b->dh_final);
  gdn2_status status = s->method == GDN2_MPI_SCAN ? run_scan(shard, b) : run_heads(shard, b);
  if (status == GDN2_OK) clear_first_dh0(b, args);
  if (status == GDN2_OK) status = sum(b, &b->A, b->dA, &args->dA_log);
  return status == GDN2_OK ? sum(b, &b->dt, b->ddt, &args->ddt_bias) : status;
}

gdn2_status gdn2_mpi_backward(const gdn2_backward_args *args, const gdn2_mpi_shard *shard) {
  backward b = {.main_first = false};
  gdn2_card card = {.N = 0};
  gdn2_status status = gdn2_group_open(shard, &b.s.group);
  if (status == GDN2_OK) status = gdn2_group_agree(&b.s.group, check(args, shard, &b));
  if (status == GDN2_OK) card = card_of(args, shard, &b);
  if (status == GDN2_OK) status = gdn2_split_meet(&b.s, &card);
  if (status == GDN2_OK) status = gdn2_group_agree(&b.s.group, prepare(args, shard, &b));
  if (status == GDN2_OK) status = run(args, shard, &b);
  gdn2_split_close(&b.s);
  return status;
}
