/* The time of gdn2_mpi_forward and gdn2_mpi_backward on the ranks that mpiexec starts, one thread each unless THREADS says more:
 *   mpiexec -n RANKS build/gdn2-ranks T H D [THREADS [METHOD]]
 * float32, B = 1, K = V = D, T tokens in equal shards; METHOD as in gdn2_mpi_shard. `ninja -C build gdn2-ranks` builds it. */
#include <gdn2_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 7 };

/* Numbers between low and high, the same on every run. */
static float *numbers(size_t count, double low, double high) {
  float *x = malloc((count + 1) * sizeof *x);
  uint64_t state = count;
  if (!x) exit(1);
  for (size_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x[i] = (float)(low + (high - low) * (double)(state >> 40) / (double)(1 << 24));
  }
  return x;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Milliseconds from the first rank's start to the last one's end, median. */
static double time_of(const gdn2_forward_args *forward, const gdn2_backward_args *backward, const gdn2_mpi_shard *shard) {
  double samples[SAMPLES];
  for (int n = -1; n < SAMPLES; n++) { /* one to warm up */
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    const gdn2_status status = backward ? gdn2_mpi_backward(backward, shard) : gdn2_mpi_forward(forward, shard);
    if (status != GDN2_OK) {
      fprintf(stderr, "%s\n", gdn2_mpi_last_error());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double took = MPI_Wtime() - start;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (n >= 0) samples[n] = 1e3 * took;
  }
  qsort(samples, SAMPLES, sizeof *samples, by_size);
  return samples[SAMPLES / 2];
}

int main(int argc, char **argv) {
  int rank, ranks, level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int64_t T = atoll(argv[1]), H = atoll(argv[2]), D = atoll(argv[3]);
  const int64_t own = T * (rank + 1) / ranks - T * rank / ranks;
  const size_t rows = (size_t)(own * H), row = rows * (size_t)D;
  const double unit = 2 / (double)D;
  gdn2_mpi_shard shard = {.struct_size = sizeof shard, .comm = MPI_COMM_WORLD};
  gdn2_forward_args forward = {
      .struct_size = sizeof forward,
      .problem = {.B = 1,
                  .T = own,
                  .H = H,
                  .K = D,
                  .V = D,
                  .q = {.data = numbers(row, -unit, unit)},
                  .k = {.data = numbers(row, -unit, unit)},
                  .v = {.data = numbers(row, -1, 1)},
                  .g = {.data = numbers(row, -0.1, -1e-3)},
                  .b = {.data = numbers(row, 0, 1)},
                  .w = {.data = numbers(row, 0, 1)}},
      .o = {.data = numbers(row, 0, 1)},
      .exec = {.threads = argc > 4 ? atoi(argv[4]) : 1},
  };
  if (argc > 5) shard.method = (gdn2_mpi_method)atoi(argv[5]);
  (void)gdn2_mpi_kept_bytes(&forward.problem, &shard.kept_bytes);
  shard.kept = malloc(shard.kept_bytes);
  gdn2_backward_args backward = {.struct_size = sizeof backward,
                                 .problem = forward.problem,
                                 .d_o = {.data = numbers(row, -1, 1)},
                                 .dq = {.data = numbers(row, 0, 1)},
                                 .dk = {.data = numbers(row, 0, 1)},
                                 .dv = {.data = numbers(row, 0, 1)},
                                 .dg = {.data = numbers(row, 0, 1)},
                                 .db = {.data = numbers(row, 0, 1)},
                                 .dw = {.data = numbers(row, 0, 1)},
                                 .exec = forward.exec};
  const double forth = time_of(&forward, NULL, &shard), back = time_of(NULL, &backward, &shard);
  if (rank == 0) printf("%d ranks of %d threads: forward %.1f ms, backward %.1f ms\n", ranks, forward.exec.threads, forth, back);
  MPI_Finalize();
  return 0;
}
