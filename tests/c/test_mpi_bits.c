/* The same bits: from run to run, for any number of threads, with what is kept and without; and those of gdn2.h on one rank. */
#include "test.h"

#include "mpi_shard.h"

static int rank, ranks;

/* M is neither 0 nor the identity, and every rank has several chunks. */
static exact_case remembering(void) {
  exact_case c = case_trained(5, 2, 240, 2, 18, 21);
  case_fill(&c, IN_G, -2e-3);
  return c;
}

static results run(const exact_case *c, gdn2_mpi_method method, int threads, bool forget) {
  const mpi_run how = {
      .comm = MPI_COMM_WORLD, .cut = MPI_CUT_GROWING, .method = method, .forget = forget, .exec = {.threads = threads}};
  return mpi_run_exact(c, &how);
}

static void test_again(void **state) {
  (void)state;
  const exact_case c = remembering();
  for (int m = GDN2_MPI_SCAN; m <= GDN2_MPI_HEADS; m++) {
    const gdn2_mpi_method method = (gdn2_mpi_method)m;
    const results once = run(&c, method, 1, false), again = run(&c, method, 1, false), threads = run(&c, method, 3, false),
                  forgotten = run(&c, method, 1, true);
    expect_equal(&c, &again, &once);
    expect_equal(&c, &threads, &once);
    expect_equal(&c, &forgotten, &once);
  }
}

/* Head after head, and cut at chunks: the forward has the bits of one call on the whole. */
static void test_heads_are_the_whole(void **state) {
  (void)state;
  exact_case c = case_trained(6, 1, 16 * (int64_t)ranks * 3, 5, 18, 21);
  case_fill(&c, IN_G, -2e-3);
  const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = MPI_CUT_EVEN, .method = GDN2_MPI_HEADS};
  const results got = mpi_run_exact(&c, &how), want = engine_run(&c);
  expect_equal(&c, &got, &want);
}

static void test_one_rank(void **state) {
  (void)state;
  const exact_case c = remembering();
  const mpi_run how = {.comm = MPI_COMM_SELF, .cut = MPI_CUT_EVEN};
  const results got = mpi_run_exact(&c, &how), want = engine_run(&c);
  expect_equal(&c, &got, &want);
}

/* With the states that the forward kept on the way, and what its tokens wrote, in the place of dv. */
static void expect_snapshots(gdn2_mpi_method method) {
  enum { EVERY = 16 };
  const exact_case c = remembering();
  const results want = run(&c, method, 1, false);
  const mpi_window w = mpi_window_of(MPI_CUT_GROWING, c.T, rank, ranks);
  const int64_t moments = (w.to - w.from) / EVERY, own = w.to - w.from;
  results r = results_new(&c, OUT_ALL);
  gdn2_forward_args forward = forward_args(&c, &r);
  gdn2_backward_args backward = backward_args(&c, &r);
  gdn2_mpi_shard shard = mpi_shard_new(MPI_COMM_WORLD);
  mpi_cut_forward(&forward, w);
  mpi_cut_backward(&backward, w);
  if (rank > 0) forward.problem.h0.data = backward.problem.h0.data = NULL, backward.dh0.data = NULL;
  if (rank < ranks - 1) backward.dh_final.data = NULL;
  shard.method = method;
  forward.snapshots.data = test_floats((size_t)(c.B * moments * c.H * c.K * c.V));
  forward.snapshot_every = backward.snapshot_every = EVERY;
  forward.residual = backward.dv;
  backward.snapshots = forward.snapshots;
  backward.residual = (gdn2_input){.data = backward.dv.data};
  memcpy(backward.residual.stride, backward.dv.stride, sizeof backward.dv.stride);
  assert_int_equal(gdn2_mpi_forward(&forward, &shard), GDN2_OK);
  assert_int_equal(gdn2_mpi_backward(&backward, &shard), GDN2_OK);
  for (int i = 0; i < OUTPUTS; i++) {
    if (i == OUT_HF || i == OUT_DH0) continue;
    if (own) expect_equal_rows(&c, i, r.out[i], &c, want.out[i], w.from, w.to);
  }
  if (rank == ranks - 1) {
    const tensor h = output_tensor(&c, OUT_HF);
    expect_same_bits(&h, r.out[OUT_HF], want.out[OUT_HF]);
  }
}

static void test_snapshots(void **state) {
  (void)state;
  expect_snapshots(GDN2_MPI_SCAN);
  expect_snapshots(GDN2_MPI_HEADS);
}

/* What every rank may ask for: the state after its tokens, which is nearly the one that the next has got. */
static void test_states_between(void **state) {
  (void)state;
  const exact_case c = remembering();
  results r = results_new(&c, OUT_FORWARD);
  gdn2_forward_args args = forward_args(&c, &r);
  gdn2_mpi_shard shard = mpi_shard_new(MPI_COMM_WORLD);
  mpi_cut_forward(&args, mpi_window_of(MPI_CUT_EVEN, c.T, rank, ranks));
  if (rank > 0) args.problem.h0.data = NULL;
  assert_int_equal(gdn2_mpi_kept_bytes(&args.problem, &shard.kept_bytes), GDN2_OK);
  shard.kept = test_floats(shard.kept_bytes / sizeof(float));
  assert_int_equal(gdn2_mpi_forward(&args, &shard), GDN2_OK);
  const tensor h = output_tensor(&c, OUT_HF);
  float *before = test_floats(tensor_count(&h));
  double *want = test_doubles(tensor_count(&h));
  MPI_Sendrecv(r.out[OUT_HF], (int)tensor_count(&h), MPI_FLOAT, (rank + 1) % ranks, 0, before, (int)tensor_count(&h), MPI_FLOAT,
               (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (size_t i = 0; i < tensor_count(&h); i++) want[i] = (double)before[i];
  if (rank > 0) expect_close(&h, shard.kept, want, 1e-6);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_again), TEST(test_one_rank), TEST(test_heads_are_the_whole), TEST(test_snapshots),
                                     TEST(test_states_between)};
  return mpi_main(tests, sizeof tests / sizeof *tests, &rank, &ranks);
}
