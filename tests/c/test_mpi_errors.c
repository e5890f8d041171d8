/* What one rank refuses, all refuse: with its status and sentence, nothing written, and the next call works. */
#include "test.h"

#include "mpi_shard.h"

static int rank, ranks;

enum { T = 5, H = 2, K = 4, V = 3, HV = 4 };

/* A good call on every rank, raw decay, for a test to spoil on one. */
typedef struct good {
  results r;
  exact_case c;
  float *A_log, *dA_log, *ddt_bias, *kept;
  int32_t cu[2];
  gdn2_forward_args forward;
  gdn2_backward_args backward;
  gdn2_mpi_shard shard;
} good;

static good *fresh(void) {
  static good g;
  g = (good){.c = case_trained(1, 1, T, H, K, V), .cu = {0, T}, .shard = mpi_shard_new(MPI_COMM_WORLD)};
  g.r = results_new(&g.c, OUT_ALL);
  g.A_log = test_floats(HV);
  for (int i = 0; i < HV; i++) g.A_log[i] = 0.1f;
  g.dA_log = test_floats(HV);
  g.ddt_bias = test_floats(HV * K);
  g.forward = forward_args(&g.c, &g.r);
  g.backward = backward_args(&g.c, &g.r);
  g.forward.problem.decay = g.backward.problem.decay = GDN2_DECAY_SOFTPLUS;
  g.forward.problem.A_log.data = g.backward.problem.A_log.data = g.A_log;
  g.backward.dA_log.data = g.dA_log;
  if (rank > 0) g.forward.problem.h0.data = g.backward.problem.h0.data = NULL, g.backward.dh0.data = NULL;
  assert_int_equal(gdn2_mpi_kept_bytes(&g.forward.problem, &g.shard.kept_bytes), GDN2_OK);
  g.kept = test_floats(g.shard.kept_bytes / sizeof(float));
  return &g;
}

static void expect_poison(const float *x, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    if (bits != TEST_POISON) fail_msg("%s was written", name);
  }
}

static void expect_nothing_written(const good *g) {
  for (int i = 0; i < OUTPUTS; i++) expect_poison(g->r.out[i], output_count(&g->c, i), "an output");
  expect_poison(g->dA_log, HV, "dA_log");
  expect_poison(g->ddt_bias, HV * K, "ddt_bias");
  expect_poison(g->kept, g->shard.kept_bytes / sizeof(float), "kept");
}

static void expect_works(void) {
  good *g = fresh();
  if (gdn2_mpi_forward(&g->forward, &g->shard) != GDN2_OK) fail_msg("afterwards: %s", gdn2_mpi_last_error());
  if (gdn2_mpi_backward(&g->backward, &g->shard) != GDN2_OK) fail_msg("afterwards: %s", gdn2_mpi_last_error());
}

typedef void spoiler(good *g);

static void refused(spoiler *spoil, int bad, bool backward, gdn2_status wanted, const char *text) {
  char named[64];
  good *g = fresh();
  if (rank == bad) spoil(g);
  const gdn2_status status = backward ? gdn2_mpi_backward(&g->backward, &g->shard) : gdn2_mpi_forward(&g->forward, &g->shard);
  if (status != wanted) fail_msg("%s, must be %s: %s", gdn2_status_name(status), gdn2_status_name(wanted), gdn2_mpi_last_error());
  /* Where all differ from rank 0, the first of them is named. */
  snprintf(named, sizeof named, "rank %d: ", bad);
  if (!strstr(gdn2_mpi_last_error(), text)) fail_msg("\"%s\" lacks \"%s\"", gdn2_mpi_last_error(), text);
  if (!strstr(gdn2_mpi_last_error(), named)) fail_msg("\"%s\" lacks \"%s\"", gdn2_mpi_last_error(), named);
  expect_nothing_written(g);
  expect_works();
}

/* ---- What can be wrong ---- */

static void K_too_large(good *g) { g->forward.problem.K = g->backward.problem.K = 300; }
static void no_q(good *g) { g->forward.problem.q.data = g->backward.problem.q.data = NULL; }
static void o_in_q(good *g) { g->forward.o.data = (void *)(uintptr_t)g->forward.problem.q.data; }
static void dq_in_k(good *g) { g->backward.dq.data = (void *)(uintptr_t)g->backward.problem.k.data; }
static void struct_size(good *g) { g->forward.struct_size = g->backward.struct_size = 8; }
static void workspace(good *g) { g->forward.exec.workspace = g->backward.exec.workspace = test_workspace(64); }
static void isa(good *g) { g->forward.exec.isa = g->backward.exec.isa = (gdn2_isa)77; }
static void continues_two(good *g) { g->shard.continues = 2; }
static void continues_rows(good *g) { g->shard.continues = 1; }
static void method_seven(good *g) { g->shard.method = (gdn2_mpi_method)7; }

static void heads_tiled(good *g) {
  for (int i = 0; i < 2; i++) {
    gdn2_problem *p = i ? &g->backward.problem : &g->forward.problem;
    p->H = 1, p->HV = 2;
    p->map = GDN2_HEADS_TILED;
  }
  g->shard.method = GDN2_MPI_HEADS;
}

static void kept_small(good *g) { g->shard.kept = g->kept, g->shard.kept_bytes--; }
static void kept_alone(good *g) { g->shard.kept = g->kept; }
static void h0_inside(good *g) { g->forward.problem.h0.data = g->backward.problem.h0.data = g->c.in[IN_H0]; }
static void dh0_inside(good *g) { g->backward.dh0.data = g->r.out[OUT_DH0]; }
static void scan_alone(good *g) { g->shard.method = ranks <= 3 ? GDN2_MPI_SCAN : GDN2_MPI_HEADS; }
static void no_dA(good *g) { g->backward.dA_log.data = NULL; }
static void ddt_alone(good *g) { g->backward.ddt_bias.data = g->ddt_bias; }

static void pack(good *g) {
  for (int i = 0; i < 2; i++) {
    gdn2_problem *p = i ? &g->backward.problem : &g->forward.problem;
    p->cu_seqlens = g->cu;
    p->N = 1;
  }
}

static void another_V(good *g) {
  g->forward.problem.V = V - 1;
  g->forward.problem.w.data = NULL;
  g->forward.h_final.data = NULL;
}

static void test_arguments(void **state) {
  (void)state;
  for (int bad = 0; bad<ranks; bad += ranks> 2 ? ranks - 1 : 1)
    for (int backward = 0; backward < 2; backward++) {
      refused(K_too_large, bad, backward, GDN2_ERR_SHAPE, "K is 300");
      refused(no_q, bad, backward, GDN2_ERR_ARGUMENT, "q");
      refused(backward ? dq_in_k : o_in_q, bad, backward, GDN2_ERR_ARGUMENT, backward ? "dq" : "o");
      refused(struct_size, bad, backward, GDN2_ERR_ARGUMENT, "struct_size is 8");
      refused(workspace, bad, backward, GDN2_ERR_ARGUMENT, "exec.workspace");
      refused(isa, bad, backward, GDN2_ERR_ISA, "isa");
      refused(continues_two, bad, backward, GDN2_ERR_ARGUMENT, "shard.continues is 2");
      refused(continues_rows, bad, backward, GDN2_ERR_ARGUMENT, "shard.continues is 1");
      refused(method_seven, bad, backward, GDN2_ERR_ARGUMENT, "shard.method is 7");
      refused(heads_tiled, bad, backward, GDN2_ERR_ARGUMENT, "shard.method is GDN2_MPI_HEADS");
      refused(kept_small, bad, backward, GDN2_ERR_ARGUMENT, "shard.kept_bytes");
    }
}

static void test_places(void **state) {
  (void)state;
  for (int backward = 0; ranks > 1 && backward < 2; backward++) refused(h0_inside, 1, backward, GDN2_ERR_ARGUMENT, "h0 is given");
  if (ranks > 1) refused(dh0_inside, ranks - 1, true, GDN2_ERR_ARGUMENT, "dh0 is given");
}

/* Good calls that do not fit together. */
static void test_differences(void **state) {
  (void)state;
  if (ranks < 2) skip();
  refused(another_V, 1, false, GDN2_ERR_SHAPE, "V is 2");
  refused(pack, 1, false, GDN2_ERR_SHAPE, "cu_seqlens");
  refused(pack, 1, true, GDN2_ERR_SHAPE, "cu_seqlens");
  refused(kept_alone, 1, true, GDN2_ERR_SHAPE, "kept");
  refused(scan_alone, 1, true, GDN2_ERR_SHAPE, "the method");
  refused(no_dA, 1, true, GDN2_ERR_SHAPE, "dA_log");
  refused(ddt_alone, 1, true, GDN2_ERR_SHAPE, "ddt_bias");
}

/* One calls forward, the others backward. */
static void test_different_functions(void **state) {
  (void)state;
  if (ranks < 2) skip();
  good *g = fresh();
  const gdn2_status status = rank == 1 ? gdn2_mpi_backward(&g->backward, &g->shard) : gdn2_mpi_forward(&g->forward, &g->shard);
  assert_int_equal(status, GDN2_ERR_SHAPE);
  assert_non_null(strstr(gdn2_mpi_last_error(), "rank 1: the function"));
  expect_nothing_written(g);
  expect_works();
}

static void test_continuing_nothing(void **state) {
  (void)state;
  if (ranks < 2) skip();
  good *g = fresh();
  pack(g);
  g->forward.problem.h0.data = NULL;
  if (rank == 0) g->forward.problem.N = 0;
  g->shard.continues = rank == 1;
  assert_int_equal(gdn2_mpi_forward(&g->forward, &g->shard), GDN2_ERR_SHAPE);
  assert_non_null(strstr(gdn2_mpi_last_error(), "rank 1: continues is 1, but rank 0 has no sequence"));
  expect_nothing_written(g);
  expect_works();
}

/* What cannot be told to anybody fails on the spot. */
static void test_shard(void **state) {
  (void)state;
  good *g = fresh();
  size_t bytes;
  assert_int_equal(gdn2_mpi_forward(&g->forward, NULL), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_mpi_last_error(), "shard is NULL"));
  assert_int_equal(gdn2_mpi_backward(&g->backward, NULL), GDN2_ERR_ARGUMENT);
  g->shard.comm = MPI_COMM_NULL;
  assert_int_equal(gdn2_mpi_forward(&g->forward, &g->shard), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_mpi_last_error(), "MPI_COMM_NULL"));
  g->shard.struct_size = 3;
  assert_int_equal(gdn2_mpi_backward(&g->backward, &g->shard), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_mpi_last_error(), "struct_size is 3"));
  g->shard = mpi_shard_new(MPI_COMM_SELF);
  assert_int_equal(gdn2_mpi_forward(NULL, &g->shard), GDN2_ERR_ARGUMENT);
  assert_int_equal(gdn2_mpi_backward(NULL, &g->shard), GDN2_ERR_ARGUMENT);
  assert_int_equal(gdn2_mpi_kept_bytes(NULL, &bytes), GDN2_ERR_ARGUMENT);
  assert_int_equal(gdn2_mpi_kept_bytes(&g->forward.problem, NULL), GDN2_ERR_ARGUMENT);
  expect_nothing_written(g);
  expect_works();
}

static void test_intercommunicator(void **state) {
  (void)state;
  if (ranks < 2) skip();
  MPI_Comm half, inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0, 1, &inter);
  good *g = fresh();
  g->shard.comm = inter;
  assert_int_equal(gdn2_mpi_forward(&g->forward, &g->shard), GDN2_ERR_ARGUMENT);
  assert_non_null(strstr(gdn2_mpi_last_error(), "intercommunicator"));
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/* ---- The caller's communicator ---- */

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
  (void)comm;
  (void)code;
  handled++;
}

static void test_error_handler(void **state) {
  (void)state;
  MPI_Errhandler mine, now;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(handler, &mine);
  MPI_Comm_set_errhandler(comm, mine);
  good *g = fresh();
  g->shard.comm = comm;
  assert_int_equal(gdn2_mpi_forward(&g->forward, &g->shard), GDN2_OK);
  if (rank == 0) K_too_large(g);
  assert_int_equal(gdn2_mpi_backward(&g->backward, &g->shard), GDN2_ERR_SHAPE);
  MPI_Comm_get_errhandler(comm, &now);
  assert_true(now == mine);
  assert_int_equal(handled, 0);
  MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER); /* it is still the one that is called */
  assert_int_equal(handled, 1);
  MPI_Errhandler_free(&now);
  MPI_Errhandler_free(&mine);
  MPI_Comm_free(&comm);
}

/* Messages of the caller's that are on their way, with the tags of this library's. */
static void test_messages_of_the_caller(void **state) {
  (void)state;
  MPI_Request requests[2];
  MPI_Status unused[2];
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, sent = 100 + rank;
  int got = -1;
  MPI_Isend(&sent, 1, MPI_INT, right, 0, MPI_COMM_WORLD, requests);
  expect_works();
  MPI_Irecv(&got, 1, MPI_INT, left, 0, MPI_COMM_WORLD, requests + 1);
  MPI_Waitall(2, requests, unused);
  assert_int_equal(got, 100 + left);
}

static int without_mpi(void) {
  const gdn2_forward_args forward = {.struct_size = sizeof forward};
  const gdn2_mpi_shard shard = {.struct_size = sizeof shard, .comm = MPI_COMM_SELF};
  return gdn2_mpi_forward(&forward, &shard) == GDN2_ERR_MPI && strstr(gdn2_mpi_last_error(), "MPI") ? 0 : 1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_arguments),
      TEST(test_places),
      TEST(test_differences),
      TEST(test_different_functions),
      TEST(test_continuing_nothing),
      TEST(test_shard),
      TEST(test_intercommunicator),
      TEST(test_error_handler),
      TEST(test_messages_of_the_caller),
  };
  if (*gdn2_mpi_last_error()) return 1;
  const int before = without_mpi();
  const int failed = mpi_main(tests, sizeof tests / sizeof *tests, &rank, &ranks);
  return before + failed + without_mpi();
}
