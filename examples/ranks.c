/* A sequence too long for one machine, split over MPI ranks: run it with mpiexec. Each rank has some consecutive tokens. What the
 * convolution before the rule and the rule itself need of the tokens before comes from the other ranks. Every token adds its
 * value, the average of three inputs, to the state that it reads. */
#include <gdn2_mpi.h>
#include <stdio.h>

enum { T = 12, W = 3 }; /* tokens of the whole sequence; taps of the convolution */

static void check(gdn2_status status, const char *sentence) {
  if (status == GDN2_OK) return;
  fprintf(stderr, "%s\n", sentence);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* y of the shard: averages over the last three inputs, those of the ranks before included. */
static void convolve(const gdn2_mpi_shard *shard, const float *x, int tokens, float *y) {
  const float weight[W] = {1.0f / 3, 1.0f / 3, 1.0f / 3};
  float before[W - 1]; /* zeros on the first rank */
  gdn2_conv_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = tokens, .D = 1, .W = W, .x = {.data = x}, .weight = {.data = weight}},
      .y = {.data = y},
  };
  check(gdn2_mpi_conv_state(&args.problem, shard, before), gdn2_mpi_last_error());
  args.problem.state.data = before;
  check(gdn2_conv_forward(&args), gdn2_last_error());
}

/* K = V = 1, no gates: the state is the sum of the values so far. */
static void sum_up(const gdn2_mpi_shard *shard, const float *v, int tokens, float *o) {
  static const float one[T] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const gdn2_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = tokens, .H = 1, .K = 1, .V = 1, .q = {.data = one}, .k = {.data = one}, .v = {.data = v}},
      .o = {.data = o},
  };
  check(gdn2_mpi_forward(&args, shard), gdn2_mpi_last_error());
}

int main(int argc, char **argv) {
  int rank, ranks, level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > T) MPI_Abort(MPI_COMM_WORLD, 2); /* only because the last token of each is printed */

  const gdn2_mpi_shard shard = {.struct_size = sizeof shard, .comm = MPI_COMM_WORLD};
  const int first = T * rank / ranks, tokens = T * (rank + 1) / ranks - first;
  float x[T], v[T], o[T], last[T] = {0};
  for (int t = 0; t < tokens; t++) x[t] = (float)(3 * (first + t + 1));
  convolve(&shard, x, tokens, v);
  sum_up(&shard, v, tokens, o);
  MPI_Gather(o + tokens - 1, 1, MPI_FLOAT, last, 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < ranks && rank == 0; r++) printf("token %d reads %g\n", T * (r + 1) / ranks - 1, (double)last[r]);
  MPI_Finalize();
  return 0;
}
