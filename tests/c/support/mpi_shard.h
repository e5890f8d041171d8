/* The shards of a problem on the ranks of a communicator. Every rank makes the whole problem and the whole of each output; its
 * call is given pointers into them, so that shards have the strides of the whole. */
#ifndef TEST_MPI_SHARD_H
#define TEST_MPI_SHARD_H
#include "double.h"
#include "exact.h"
#include "gdn2_mpi.h"

/* The tokens of a rank. */
typedef struct mpi_window {
  int64_t from, to;
} mpi_window;

/* Ways to cut. */
typedef enum mpi_cut {
  MPI_CUT_EVEN,
  MPI_CUT_GROWING,  /* each rank has more tokens than the one before */
  MPI_CUT_GAPS,     /* every second rank has none, the first among them */
  MPI_CUT_ONE_EACH, /* one token for each rank, the rest for the last */
  MPI_CUT_FRONT,    /* everything for the first */
  MPI_CUTS
} mpi_cut;

mpi_window mpi_window_of(mpi_cut cut, int64_t T, int rank, int ranks);
/* cuts [ranks + 1], in order: the same, from a list. */
mpi_window mpi_window_drawn(uint64_t seed, int64_t T, int rank, int ranks);

gdn2_mpi_shard mpi_shard_new(MPI_Comm comm);
/* The tensors of a call on the whole become those of the window. */
void mpi_cut_forward(gdn2_forward_args *args, mpi_window w);
void mpi_cut_backward(gdn2_backward_args *args, mpi_window w);

/* ---- float32, sequences side by side ---- */

typedef struct mpi_run {
  MPI_Comm comm;
  mpi_cut cut;
  gdn2_mpi_method method;
  bool forget; /* nothing is kept between forward and backward */
  gdn2_exec exec;
  /* Called between forward and backward on what the rank has kept; may be NULL. */
  void (*between)(const exact_case *c, float *kept);
} mpi_run;

/* All outputs, put together from the ranks, on every rank of the communicator. Fails on any status but GDN2_OK and where a rank
 * writes rows that are not its own. */
results mpi_run_exact(const exact_case *c, const mpi_run *how);

/* What main returns; a failing test stops all ranks, which would wait for this one otherwise. */
int mpi_main(const struct CMUnitTest *tests, size_t count, int *rank, int *ranks);
#endif
