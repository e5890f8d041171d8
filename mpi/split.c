#include "split.h"
#include "error.h"
#include "heads.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* ---- Checks ---- */

gdn2_status gdn2_split_check_place(const gdn2_split *s, const gdn2_mpi_shard *shard) {
  const int c = shard->continues;
  if (c != 0 && c != 1) return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.continues is %d; it must be 0 or 1", c);
  if (c && !s->packed)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT,
                         "shard.continues is 1; it must be 0 without cu_seqlens, where it goes without saying");
  if (c && s->group.rank == 0)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.continues is 1; it must be 0 on the first rank, before which there is none");
  if (c && s->N == 0)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.continues is 1 and N is 0; there must be a sequence, be it of length 0");
  return GDN2_OK;
}

static gdn2_status check_kept(const gdn2_split *s, const gdn2_mpi_shard *shard) {
  size_t bytes;
  if (!shard->kept) return GDN2_OK;
  const gdn2_status status = gdn2_mpi_kept_bytes(&s->problem, &bytes);
  if (status == GDN2_OK && shard->kept_bytes < bytes)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.kept_bytes is %zu; it must be at least gdn2_mpi_kept_bytes, %zu",
                         shard->kept_bytes, bytes);
  return status;
}

static gdn2_status check_method(gdn2_split *s, const gdn2_mpi_shard *shard) {
  const bool possible = gdn2_heads_possible(&s->problem);
  s->method = shard->method;
  if (s->method == GDN2_MPI_AUTO) s->method = possible && s->group.ranks <= 3 ? GDN2_MPI_HEADS : GDN2_MPI_SCAN;
  if (s->method != GDN2_MPI_SCAN && s->method != GDN2_MPI_HEADS)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.method is %d; it must be GDN2_MPI_AUTO (0), _SCAN (1) or _HEADS (2)",
                         (int)shard->method);
  if (s->method == GDN2_MPI_HEADS && !possible)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT,
                         "shard.method is GDN2_MPI_HEADS (2); it must not be where map is GDN2_HEADS_TILED and HV is not H");
  if (s->group.ranks == 1) s->method = GDN2_MPI_SCAN; /* one call, on all heads */
  return GDN2_OK;
}

gdn2_status gdn2_split_check(gdn2_split *s, const gdn2_problem *problem, const gdn2_exec *exec, const gdn2_mpi_shard *shard) {
  s->problem = *problem;
  s->exec = *exec;
  s->packed = problem->cu_seqlens != NULL;
  s->N = s->packed ? problem->N : problem->B;
  s->states = (gdn2_block){.shape = {s->packed ? 1 : problem->B, gdn2_problem_heads(problem), problem->K, problem->V},
                           .dtype = gdn2_state_type(problem->q.dtype)};
  if (exec->workspace)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "exec.workspace is %p; it must be NULL: memory is allocated", exec->workspace);
  if (s->states.shape[0] * s->states.shape[1] > INT_MAX)
    return gdn2_mpi_fail(GDN2_ERR_SHAPE, "B HV is %" PRId64 "; it must not be above %d", s->states.shape[0] * s->states.shape[1],
                         INT_MAX);
  if (problem->h0.data && !s->packed && s->group.rank > 0)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT,
                         "h0 is given; it must be absent on every rank but the first, where the sequences begin");
  gdn2_status status = gdn2_split_check_place(s, shard);
  if (status == GDN2_OK) status = check_method(s, shard);
  return status == GDN2_OK ? check_kept(s, shard) : status;
}

gdn2_status gdn2_split_meet(gdn2_split *s, const gdn2_card *mine) {
  gdn2_card card = *mine;
  card.same[GDN2_SAME_PACKED] = s->packed;
  card.same[GDN2_SAME_WIDE] = s->states.dtype == GDN2_F64;
  for (int i = 0; i < 4; i++) card.same[GDN2_SAME_ROWS + i] = s->states.shape[i];
  card.same[GDN2_SAME_METHOD] = s->method;
  card.N = s->N;
  card.threads = gdn2_threads(s->exec.threads);
  if (!s->packed) card.continues = s->group.rank > 0;
  const gdn2_status status = gdn2_group_meet(&s->group, &card);
  if (status != GDN2_OK) return status;
  s->in = gdn2_group_continues(&s->group, s->group.rank);
  s->out = gdn2_group_continues(&s->group, s->group.rank + 1);
  s->through = gdn2_group_through(&s->group, s->group.rank);
  return GDN2_OK;
}

/* ---- Memory ---- */

void *gdn2_split_take(gdn2_split *s, size_t bytes) {
  void *memory = aligned_alloc(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN);
  if (!memory || s->buffer_count == GDN2_SPLIT_BUFFERS) {
    free(memory);
    s->no_memory = true;
    return NULL;
  }
  return s->buffers[s->buffer_count++] = memory;
}

static void reserve(gdn2_split *s, gdn2_status status, size_t bytes) {
  if (gdn2_mpi_pass(status) != GDN2_OK) s->no_memory = true; /* only of the backward's checkpoints */
  if (bytes > s->exec.workspace_bytes) s->exec.workspace_bytes = bytes;
}

void gdn2_split_reserve_forward(gdn2_split *s, const gdn2_forward_args *args) {
  size_t bytes = 0;
  if (!args->struct_size) return;
  const gdn2_status status = gdn2_forward_workspace(args, &bytes);
  reserve(s, status, bytes);
}

void gdn2_split_reserve_backward(gdn2_split *s, const gdn2_backward_args *args) {
  size_t bytes = 0;
  if (!args->struct_size) return;
  const gdn2_status status = gdn2_backward_workspace(args, &bytes);
  reserve(s, status, bytes);
}

gdn2_status gdn2_split_end_of_taking(gdn2_split *s) {
  s->exec.workspace = gdn2_split_take(s, s->exec.workspace_bytes);
  s->scan.exec = s->exec;
  if (!s->no_memory) return GDN2_OK;
  return gdn2_mpi_fail(GDN2_ERR_MEMORY, "the states of the scan and a workspace of %zu bytes could not be allocated",
                       s->exec.workspace_bytes);
}

void gdn2_split_close(gdn2_split *s) {
  for (int i = 0; i < s->buffer_count; i++) free(s->buffers[i]);
  gdn2_group_close(&s->group);
}

/* ---- Calls ---- */

gdn2_status gdn2_split_forward(const gdn2_split *s, gdn2_forward_args args) {
  if (!args.struct_size) return GDN2_OK;
  args.exec = s->exec;
  return gdn2_mpi_pass(gdn2_forward(&args));
}

gdn2_status gdn2_split_backward(const gdn2_split *s, gdn2_backward_args args) {
  if (!args.struct_size) return GDN2_OK;
  args.exec = s->exec;
  return gdn2_mpi_pass(gdn2_backward(&args));
}
