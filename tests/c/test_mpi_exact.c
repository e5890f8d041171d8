/* Sequences split over ranks, float32, against the float64 oracle on the whole sequence. */
#include "test.h"

#include <math.h>

#include "mpi_shard.h"

#define FORWARD 1e-6
#define BACKWARD 2e-6 /* as test_exact_shapes.c */

static int rank, ranks;

/* The method of this run of a test. */
static gdn2_mpi_method method_of(void **state) { return *(const gdn2_mpi_method *)*state; }

static void expect_split_right(void **state, const exact_case *c, mpi_cut cut, bool forget) {
  const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = cut, .method = method_of(state), .forget = forget};
  const results got = mpi_run_exact(c, &how);
  const oracle want = oracle_run(c);
  expect_right(c, &got, &want, FORWARD, BACKWARD);
}

static void test_cuts(void **state) {
  for (int cut = 0; cut < MPI_CUTS; cut++) {
    const exact_case c = case_trained(1, 2, 83, 3, 11, 7);
    expect_split_right(state, &c, (mpi_cut)cut, cut % 2);
  }
}

/* More ranks than tokens, one token, none. */
static void test_few_tokens(void **state) {
  for (int64_t T = 0; T < 4; T++) {
    const exact_case c = case_trained(20 + (uint64_t)T, 2, T, 2, 5, 6);
    const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = MPI_CUT_EVEN, .method = method_of(state)};
    const results got = mpi_run_exact(&c, &how);
    const oracle want = oracle_run(&c);
    expect_right_to_unit(&c, &got, &want, BACKWARD, 1e-3);
  }
}

static void test_sizes(void **state) {
  static const int64_t sizes[][3] = {{1, 1, 3}, {2, 16, 1}, {1, 130, 140}, {1, 256, 4}, {3, 4, 256}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const exact_case c = case_trained(30 + i, 1, 70, sizes[i][0], sizes[i][1], sizes[i][2]);
    const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = MPI_CUT_GROWING, .method = method_of(state)};
    const results got = mpi_run_exact(&c, &how);
    const oracle want = oracle_run(&c);
    expect_right(&c, &got, &want, FORWARD, sizes[i][1] == 1 ? 6e-6 : BACKWARD); /* docs/status.md: dg with one key channel */
  }
}

/* Decays under which nothing, little and everything reaches the next rank. */
static void test_decays(void **state) {
  static const double decays[] = {-1e-3, -0.1, -5, -60};
  for (size_t i = 0; i < sizeof decays / sizeof *decays; i++) {
    exact_case c = case_trained(40 + i, 1, 61, 2, 12, 9);
    case_fill(&c, IN_G, decays[i]);
    const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = MPI_CUT_EVEN, .method = method_of(state), .forget = i % 2};
    const results got = mpi_run_exact(&c, &how);
    const oracle want = oracle_run(&c);
    expect_right_to_unit(&c, &got, &want, BACKWARD, decays[i] < -1 ? 1e-6 : 1e-4);
  }
}

/* The rules of the family: gates absent or per head; beta exactly 0 in places. */
static void test_rules(void **state) {
  for (int rule = 0; rule < 4; rule++) {
    exact_case c = case_trained(50 + (uint64_t)rule, 2, 67, 2, 10, 13);
    if (rule < 3) case_make_per_head(&c, IN_B), case_make_per_head(&c, IN_W);
    if (rule == 1) case_make_per_head(&c, IN_G);
    if (rule == 2) c.in[IN_G] = NULL;
    if (rule == 3) c.in[IN_B] = c.in[IN_W] = NULL;
    for (int64_t t = 0; rule < 3 && t < c.T; t += 3) case_row(&c, IN_B, 0, t, 1)[0] = case_row(&c, IN_W, 0, t, 1)[0] = 0;
    expect_split_right(state, &c, MPI_CUT_GROWING, rule % 2);
  }
}

/* Without h0, d_o or dh_final; and with nothing between the ranks to remember but c. */
static void test_absent(void **state) {
  for (int i = IN_H0; i <= IN_DHF; i++) {
    exact_case c = case_trained(60 + (uint64_t)i, 2, 45, 2, 8, 6);
    c.in[i] = NULL;
    const mpi_run how = {.comm = MPI_COMM_WORLD, .cut = MPI_CUT_EVEN, .method = method_of(state)};
    const results got = mpi_run_exact(&c, &how);
    const oracle want = oracle_run(&c);
    expect_right_to_unit(&c, &got, &want, BACKWARD, 1e-3);
  }
}

/* ---- That the comparison can fail ---- */

static double error_of(const exact_case *c, const results *got, const oracle *want, int output) {
  return relative_error(got->out[output], want->out[output], output_count(c, output));
}

/* Mild decay and erasure, so that M is neither 0 nor the identity nor symmetric. */
static exact_case remembering(void) {
  exact_case c = case_trained(70, 1, 96, 2, 12, 9);
  case_fill(&c, IN_G, -2e-3);
  return c;
}

/* The ranks in the wrong order: the composition of the maps is not the sequence's. */
static void test_wrong_order_is_seen(void **state) {
  int place;
  if (ranks < 4) skip(); /* the ranks between first and last are swapped */
  MPI_Comm swapped;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank == 1 ? 2 : rank == 2 ? 1 : rank, &swapped);
  MPI_Comm_rank(swapped, &place);
  const exact_case c = remembering();
  results r = results_new(&c, OUT_FORWARD);
  gdn2_forward_args args = forward_args(&c, &r);
  mpi_cut_forward(&args, mpi_window_of(MPI_CUT_EVEN, c.T, rank, ranks));
  if (place > 0) args.problem.h0.data = NULL;
  gdn2_mpi_shard shard = mpi_shard_new(swapped);
  shard.method = method_of(state);
  assert_int_equal(gdn2_mpi_forward(&args, &shard), GDN2_OK);
  const oracle want = oracle_run(&c);
  if (rank == ranks - 1) assert_true(error_of(&c, &r, &want, OUT_HF) > 1e-3);
  MPI_Comm_free(&swapped);
}

static void transpose_M(const exact_case *c, float *kept) {
  float *M = kept + c->B * c->H * c->K * c->V;
  for (int64_t h = 0; h < c->B * c->H; h++)
    for (int64_t i = 0; i < c->K; i++)
      for (int64_t j = 0; j < i; j++) {
        float *a = M + (h * c->K + i) * c->K + j, *b = M + (h * c->K + j) * c->K + i, swap = *a;
        *a = *b;
        *b = swap;
      }
}

/* M in the backward where M^T belongs. Only a rank between two others has an M. */
static void test_M_for_its_transpose_is_seen(void **state) {
  (void)state;
  if (ranks < 3) skip();
  const exact_case c = remembering();
  const mpi_run right = {.comm = MPI_COMM_WORLD, .method = GDN2_MPI_SCAN},
                wrong = {.comm = MPI_COMM_WORLD, .method = GDN2_MPI_SCAN, .between = transpose_M};
  const oracle want = oracle_run(&c);
  results got = mpi_run_exact(&c, &right);
  expect_right(&c, &got, &want, FORWARD, BACKWARD);
  got = mpi_run_exact(&c, &wrong);
  expect_right(&c, &got, &want, FORWARD, INFINITY);
  assert_true(error_of(&c, &got, &want, OUT_DV) > 1e-3);
  assert_true(error_of(&c, &got, &want, OUT_DH0) > 1e-3);
}

static void shift_state(const exact_case *c, float *kept) {
  if (rank == 1) kept[0] += 1e-3f;
  (void)c;
}

/* A thousandth in one number of the state between two ranks. */
static void test_wrong_state_is_seen(void **state) {
  if (ranks < 2) skip();
  const exact_case c = remembering();
  const mpi_run wrong = {.comm = MPI_COMM_WORLD, .method = method_of(state), .between = shift_state};
  const oracle want = oracle_run(&c);
  const results got = mpi_run_exact(&c, &wrong);
  assert_true(error_of(&c, &got, &want, OUT_DQ) > 2e-6);
}

static gdn2_mpi_method scan = GDN2_MPI_SCAN, heads = GDN2_MPI_HEADS;

#define BOTH(f)                                                                                                                  \
  cmocka_unit_test_prestate_setup_teardown(f, NULL, test_release, &scan),                                                        \
      cmocka_unit_test_prestate_setup_teardown(f, NULL, test_release, &heads)

int main(void) {
  const struct CMUnitTest tests[] = {
      BOTH(test_cuts),
      BOTH(test_few_tokens),
      BOTH(test_sizes),
      BOTH(test_decays),
      BOTH(test_rules),
      BOTH(test_absent),
      BOTH(test_wrong_order_is_seen),
      BOTH(test_wrong_state_is_seen),
      TEST(test_M_for_its_transpose_is_seen),
  };
  return mpi_main(tests, sizeof tests / sizeof *tests, &rank, &ranks);
}
