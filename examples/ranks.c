/* A sequence too long for one machine, split over MPI ranks: run it with mpiexec. Each rank has some consecutive tokens. The
 * rule's state goes from rank to rank inside gdn2_mpi_forward; the causal convolution before it needs the last two inputs of the
 * rank before, which are handed over here. Every token adds its value, averaged over three tokens, to the state that it reads. */
#include <gdn2_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 12, W = 3 }; /* tokens of the whole sequence; taps of the convolution */

/* The last W-1 inputs of the rank before; zeros on the first. They are a convolution's state. */
static void hand_over(const float *x, int tokens, float before[W - 1], int rank, int ranks) {
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  for (int i = 0; i < W - 1; i++) before[i] = 0;
  MPI_Sendrecv(x + tokens - (W - 1), W - 1, MPI_FLOAT, right, 0, before, W - 1, MPI_FLOAT, left, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

static gdn2_status convolve(const float *x, int tokens, const float before[W - 1], float *y) {
  const float weight[W] = {1.0f / 3, 1.0f / 3, 1.0f / 3};
  const gdn2_conv_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = tokens, .D = 1, .W = W, .x = {.data = x}, .weight = {.data = weight}, .state = {.data = before}},
      .y = {.data = y},
  };
  return gdn2_conv_forward(&args);
}

/* K = V = 1, no gates: the state is the sum of the values so far. */
static gdn2_status sum_up(const float *v, int tokens, float *o, float *state) {
  static const float one[T] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const gdn2_mpi_shard shard = {.struct_size = sizeof shard, .comm = MPI_COMM_WORLD};
  const gdn2_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = tokens, .H = 1, .K = 1, .V = 1, .q = {.data = one}, .k = {.data = one}, .v = {.data = v}},
      .o = {.data = o},
      .h_final = {.data = state}, /* behind the tokens of this rank */
  };
  return gdn2_mpi_forward(&args, &shard);
}

int main(int argc, char **argv) {
  int rank, ranks, level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks * (W - 1) > T) MPI_Abort(MPI_COMM_WORLD, 2); /* this hand_over reaches one rank far */

  const int first = T * rank / ranks, tokens = T * (rank + 1) / ranks - first;
  float x[T], v[T], o[T], before[W - 1], state = 0;
  for (int t = 0; t < tokens; t++) x[t] = (float)(3 * (first + t + 1));
  hand_over(x, tokens, before, rank, ranks);
  if (convolve(x, tokens, before, v) != GDN2_OK) {
    fprintf(stderr, "%s\n", gdn2_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (sum_up(v, tokens, o, &state) != GDN2_OK) { /* on all ranks or on none */
    fprintf(stderr, "%s\n", gdn2_mpi_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  float last[T] = {0}; /* no more ranks than that */
  MPI_Gather(o + tokens - 1, 1, MPI_FLOAT, last, 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < ranks && rank == 0; r++) printf("token %d reads %g\n", T * (r + 1) / ranks - 1, (double)last[r]);
  MPI_Finalize();
  return state == o[tokens - 1] ? 0 : 1;
}
