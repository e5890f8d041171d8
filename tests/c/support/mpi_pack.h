/* Packed sequences on ranks: which of them a rank has, and the arguments of its call. */
#ifndef TEST_MPI_PACK_H
#define TEST_MPI_PACK_H
#include "mpi_shard.h"

/* The sequences of a rank: g0, g0 + 1, ... of the whole. A sequence begins where its first token is, an empty one with the token
 * at its place; what is behind the last token belongs to the last rank. */
typedef struct mpi_pack {
  mpi_window w;
  int64_t g0, N, cu[16];
  bool continues;
} mpi_pack;

/* cu == NULL: every row of the batch goes through all ranks; N is then their number. */
mpi_pack mpi_pack_of(const int64_t *cu, int64_t N, mpi_window w, int rank, int ranks);
/* Whether sequence n of the whole begins, or ends, on this rank. */
bool mpi_begins(const mpi_pack *p, const width_case *c, int64_t n, int rank);
bool mpi_ends(const mpi_pack *p, const width_case *c, int64_t n, int rank, int ranks);

/* Calls on the whole become those of the rank. dh_final: contiguous, of the type of the state, [N,HV,K,V] of the whole. */
void mpi_pack_forward(const width_case *c, const mpi_pack *p, int rank, gdn2_forward_args *args);
void mpi_pack_backward(const width_case *c, const mpi_pack *p, int rank, int ranks, gdn2_backward_args *args);

/* ||got - want|| / max(||want||, unit sqrt(count)) over the parts that the ranks have; the whole on every rank is want. */
double mpi_rows_error(MPI_Comm comm, const tensor *t, mpi_window w, const double *got, const double *want, double unit);
double mpi_states_error(MPI_Comm comm, const tensor *t, const bool *mine, const double *got, const double *want, double unit);
#endif
