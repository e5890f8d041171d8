#include "error.h"
#include "heads.h"

typedef struct forward {
  gdn2_split s;
  gdn2_heads heads;
  gdn2_forward_args main;
  bool main_first; /* a rank on which the sequences begin: the call itself gives what the others wait for */
  void *all;       /* see gdn2_split_take_all */
} forward;

/* What gdn2_forward would refuse, without its running: a workspace that is not aligned is refused last. */
static gdn2_status check_args(const gdn2_forward_args *args) {
  size_t bytes;
  const gdn2_status status = gdn2_forward_workspace(args, &bytes);
  if (status != GDN2_OK) return gdn2_mpi_pass(status);
  _Alignas(64) char place[2];
  gdn2_forward_args dry = *args;
  dry.exec.workspace = place + 1;
  const gdn2_status refused = gdn2_forward(&dry);
  return refused == GDN2_ERR_WORKSPACE ? GDN2_OK : gdn2_mpi_pass(refused);
}

static gdn2_status check(const gdn2_forward_args *args, const gdn2_mpi_shard *shard, forward *f) {
  const gdn2_status status = check_args(args);
  return status == GDN2_OK ? gdn2_split_check(&f->s, &args->problem, &args->exec, shard) : status;
}

static gdn2_status prepare(const gdn2_forward_args *args, const gdn2_mpi_shard *shard, forward *f) {
  gdn2_split *s = &f->s;
  gdn2_split_prepare(s, shard);
  f->main = *args;
  f->all = gdn2_split_take_all(s, s->in);
  if (s->method == GDN2_MPI_HEADS) {
    gdn2_forward_args longest = *args;
    gdn2_heads_prepare(s, &f->heads);
    if (s->out && s->through) longest.h_final = (gdn2_output){.data = f->heads.made, .dtype = s->states.dtype};
    gdn2_heads_reserve_forward(s, &f->heads, &longest);
    gdn2_heads_reserve_forward(s, &f->heads, &s->c_call);
    return gdn2_split_end_of_taking(s);
  }
  f->main_first = s->out && s->through && !s->in;
  if (f->main_first) f->main.h_final = s->c_call.h_final, s->c_call.struct_size = 0;
  gdn2_split_reserve_forward(s, &f->main);
  return gdn2_split_end_of_taking(s);
}

static gdn2_status run_scan(const gdn2_forward_args *args, forward *f) {
  gdn2_split *s = &f->s;
  gdn2_status status = gdn2_split_forward(s, f->main_first ? f->main : s->c_call);
  if (f->main_first && status == GDN2_OK && args->h_final.data) gdn2_block_put(&s->states, s->scan.own.c, &args->h_final, 0);
  if (status == GDN2_OK) status = gdn2_split_forward(s, s->M_call);
  if (status == GDN2_OK) status = gdn2_split_scan(s);
  if (status != GDN2_OK || f->main_first) return status;
  f->main.problem = gdn2_split_arrived(s, f->all);
  return gdn2_split_forward(s, f->main);
}

static gdn2_status run(const gdn2_forward_args *args, forward *f) {
  if (f->s.method == GDN2_MPI_SCAN) return run_scan(args, f);
  f->main.problem = gdn2_split_arrived(&f->s, f->all);
  return gdn2_heads_run_forward(&f->s, &f->heads, &f->main, &f->s.c_call, f->all);
}

gdn2_status gdn2_mpi_forward(const gdn2_forward_args *args, const gdn2_mpi_shard *shard) {
  forward f = {.main_first = false};
  gdn2_status status = gdn2_group_open(shard, &f.s.group);
  if (status == GDN2_OK) status = gdn2_group_agree(&f.s.group, check(args, shard, &f));
  const gdn2_card card = {.continues = status == GDN2_OK && shard->continues};
  if (status == GDN2_OK) status = gdn2_split_meet(&f.s, &card);
  if (status == GDN2_OK) status = gdn2_group_agree(&f.s.group, prepare(args, shard, &f));
  if (status == GDN2_OK) status = run(args, &f);
  gdn2_split_close(&f.s);
  return status;
}

gdn2_status gdn2_mpi_kept_bytes(const gdn2_problem *problem, size_t *bytes) {
  if (!problem || !bytes) return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "%s is NULL; it must not be", problem ? "bytes" : "problem");
  const gdn2_forward_args args = {.struct_size = sizeof args, .problem = *problem};
  size_t unused;
  const gdn2_status status = gdn2_mpi_pass(gdn2_forward_workspace(&args, &unused));
  if (status != GDN2_OK) return status;
  const size_t heads = (size_t)((problem->cu_seqlens ? 1 : problem->B) * gdn2_problem_heads(problem));
  const size_t K = (size_t)problem->K, V = (size_t)problem->V;
  *bytes = heads * K * (K + V) * gdn2_number_bytes(gdn2_state_type(problem->q.dtype));
  return GDN2_OK;
}
