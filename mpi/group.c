#include "group.h"
#include "error.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[GDN2_SAME_FIELDS] = {
    "the function",    "cu_seqlens (1: given)", "float64 (1: yes)",     "B", "HV", "K", "V", "the method (1: scan, 2: heads)",
    "kept (1: given)", "the count of dA_log",   "the count of ddt_bias"};

/* ---- The communicator ---- */

static gdn2_status check_running(void) {
  int started = 0, ended = 0;
  (void)MPI_Initialized(&started);
  (void)MPI_Finalized(&ended);
  if (started && !ended) return GDN2_OK;
  return gdn2_mpi_fail(GDN2_ERR_MPI, ended ? "MPI is finalized; it must be running" : "MPI_Init has not been called");
}

/* The duplicate keeps this library's messages from the caller's, and the caller's error handler from this library. */
static gdn2_status duplicate(MPI_Comm comm, MPI_Comm *copy) {
  MPI_Errhandler handler;
  gdn2_status status = gdn2_mpi_code(MPI_Comm_get_errhandler(comm, &handler), "MPI_Comm_get_errhandler");
  if (status != GDN2_OK) return status;
  status = gdn2_mpi_code(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (status == GDN2_OK) status = gdn2_mpi_code(MPI_Comm_dup(comm, copy), "MPI_Comm_dup");
  (void)MPI_Comm_set_errhandler(comm, handler);
  (void)MPI_Errhandler_free(&handler);
  if (status == GDN2_OK) status = gdn2_mpi_code(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return status;
}

static gdn2_status open_copy(MPI_Comm comm, gdn2_group *group) {
  gdn2_status status = duplicate(comm, &group->comm);
  if (status != GDN2_OK) return status;
  status = gdn2_mpi_code(MPI_Comm_rank(group->comm, &group->rank), "MPI_Comm_rank");
  return status == GDN2_OK ? gdn2_mpi_code(MPI_Comm_size(group->comm, &group->ranks), "MPI_Comm_size") : status;
}

gdn2_status gdn2_group_open(const gdn2_mpi_shard *shard, gdn2_group *group) {
  *group = (gdn2_group){.comm = MPI_COMM_NULL};
  if (!shard) return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard is NULL; it must point to a gdn2_mpi_shard");
  if (shard->struct_size != sizeof *shard)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.struct_size is %zu; it must be sizeof(gdn2_mpi_shard), %zu",
                         shard->struct_size, sizeof *shard);
  gdn2_status status = check_running();
  if (status != GDN2_OK) return status;
  if (shard->comm == MPI_COMM_NULL)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.comm is MPI_COMM_NULL; it must be a communicator of this rank");
  int inter = 0;
  status = gdn2_mpi_code(MPI_Comm_test_inter(shard->comm, &inter), "MPI_Comm_test_inter");
  if (status == GDN2_OK && inter)
    return gdn2_mpi_fail(GDN2_ERR_ARGUMENT, "shard.comm is an intercommunicator; it must be an intracommunicator");
  return status == GDN2_OK ? open_copy(shard->comm, group) : status;
}

void gdn2_group_close(gdn2_group *group) {
  free(group->cards);
  if (group->comm != MPI_COMM_NULL) (void)MPI_Comm_free(&group->comm);
}

/* ---- Agreement ---- */

gdn2_status gdn2_group_agree(const gdn2_group *group, gdn2_status mine) {
  struct {
    int status, rank;
  } own = {mine != GDN2_OK, group->rank}, first;
  /* The first of the ranks with the largest value. */
  gdn2_status status = gdn2_mpi_code(MPI_Allreduce(&own, &first, 1, MPI_2INT, MPI_MAXLOC, group->comm), "MPI_Allreduce");
  if (status != GDN2_OK || !first.status) return status;
  char text[GDN2_MPI_TEXT] = "";
  int value = (int)mine;
  if (group->rank == first.rank) (void)snprintf(text, sizeof text, "%s", gdn2_mpi_last_error());
  status = gdn2_mpi_code(MPI_Bcast(&value, 1, MPI_INT, first.rank, group->comm), "MPI_Bcast");
  if (status == GDN2_OK) status = gdn2_mpi_code(MPI_Bcast(text, GDN2_MPI_TEXT, MPI_CHAR, first.rank, group->comm), "MPI_Bcast");
  return status == GDN2_OK ? gdn2_mpi_fail((gdn2_status)value, "rank %d: %.560s", first.rank, text) : status;
}

/* The states of a convolution have other sizes. */
static const char *name_of(int field, int64_t call) {
  const bool conv = call == GDN2_CALL_CONV_STATE || call == GDN2_CALL_CONV_DSTATE;
  if (conv && field == GDN2_SAME_K) return "D";
  return conv && field == GDN2_SAME_V ? "W - 1" : names[field];
}

/* The same cards lead to the same answer everywhere. */
static gdn2_status check_cards(const gdn2_card *cards, int ranks) {
  for (int r = 1; r < ranks; r++)
    for (int i = 0; i < GDN2_SAME_FIELDS; i++)
      if (cards[r].same[i] != cards[0].same[i])
        return gdn2_mpi_fail(GDN2_ERR_SHAPE, "rank %d: %s is %" PRId64 "; it must be what it is on rank 0, %" PRId64, r,
                             name_of(i, cards[0].same[GDN2_SAME_CALL]), cards[r].same[i], cards[0].same[i]);
  for (int r = 1; r < ranks; r++)
    if (cards[r].continues && cards[r - 1].N == 0 && cards[r].same[GDN2_SAME_PACKED])
      return gdn2_mpi_fail(GDN2_ERR_SHAPE,
                           "rank %d: continues is 1, but rank %d has no sequence; it must have one, be it of length 0", r, r - 1);
  return GDN2_OK;
}

gdn2_status gdn2_group_meet(gdn2_group *group, const gdn2_card *mine) {
  enum { NUMBERS = sizeof *mine / sizeof(int64_t) };
  group->cards = malloc((size_t)group->ranks * sizeof *mine);
  gdn2_status status = group->cards ? GDN2_OK : gdn2_mpi_fail(GDN2_ERR_MEMORY, "no memory for %d ranks", group->ranks);
  status = gdn2_group_agree(group, status);
  if (status != GDN2_OK || !group->cards) return status;
  status =
      gdn2_mpi_code(MPI_Allgather(mine, NUMBERS, MPI_INT64_T, group->cards, NUMBERS, MPI_INT64_T, group->comm), "MPI_Allgather");
  return status == GDN2_OK ? check_cards(group->cards, group->ranks) : status;
}

/* ---- Messages ---- */

/* A type for each matrix: their number fits into an int, that of all numbers may not. */
static gdn2_status post(const gdn2_group *group, const gdn2_message *m, bool send, MPI_Request *request) {
  MPI_Datatype matrix;
  MPI_Datatype number = m->dtype == GDN2_F64 ? MPI_DOUBLE : MPI_FLOAT;
  gdn2_status status = gdn2_mpi_code(MPI_Type_contiguous((int)m->numbers, number, &matrix), "MPI_Type_contiguous");
  if (status != GDN2_OK) return status;
  status = gdn2_mpi_code(MPI_Type_commit(&matrix), "MPI_Type_commit");
  if (status == GDN2_OK && send)
    status = gdn2_mpi_code(MPI_Isend(m->data, (int)m->matrices, matrix, m->peer, m->tag, group->comm, request), "MPI_Isend");
  else if (status == GDN2_OK)
    status = gdn2_mpi_code(MPI_Irecv(m->data, (int)m->matrices, matrix, m->peer, m->tag, group->comm, request), "MPI_Irecv");
  (void)MPI_Type_free(&matrix); /* a message on its way keeps it */
  return status;
}

gdn2_status gdn2_group_send(const gdn2_group *group, const gdn2_message *message, MPI_Request *request) {
  return post(group, message, true, request);
}

gdn2_status gdn2_group_receive(const gdn2_group *group, const gdn2_message *message, MPI_Request *request) {
  return post(group, message, false, request);
}

/* ---- What the cards say ---- */

bool gdn2_group_continues(const gdn2_group *group, int rank) {
  return rank > 0 && rank < group->ranks && group->cards[rank].continues;
}

bool gdn2_group_through(const gdn2_group *group, int rank) {
  return !group->cards[rank].same[GDN2_SAME_PACKED] || group->cards[rank].N == 1;
}
