/* The convolution in shards: the outputs and gradients of one call on the whole sequence, which test_conv_* hold against float64
 * loops; the former to the bit. */
#include "test.h"

#include <math.h>

#include "mpi_pack.h"

static int rank, ranks;

enum { D = 5 };

/* The whole, on every rank. Tokens of 16 bits where half is set. */
typedef struct whole {
  int64_t B, T, W, N;
  const int64_t *cu;
  bool half, silu;
  size_t unit;
  char *x, *dy;
  float *weight, *bias, *state, *dlast; /* [D,W], [D], [N,1,D,W-1] both */
  char *y, *dx;
  float *last, *dweight, *dbias, *dstate;
} whole;

static float *floats(rng *r, size_t count) {
  float *x = test_floats(count);
  for (size_t i = 0; i < count; i++) x[i] = (float)rng_normal(r);
  return x;
}

static char *tokens(const whole *a, rng *r) {
  const size_t count = (size_t)(a->B * a->T * D);
  float *x = floats(r, count);
  for (size_t i = 0; a->half && i < count; i++) {
    const uint16_t bits = width_encode(GDN2_BF16, (double)x[i]);
    memcpy((char *)x + 2 * i, &bits, 2);
  }
  return (char *)x;
}

static size_t state_size(const whole *a) { return (size_t)(D * (a->W - 1)); }

static gdn2_conv_backward_args backward_of(const whole *a) {
  const gdn2_dtype type = a->half ? GDN2_BF16 : GDN2_F32;
  return (gdn2_conv_backward_args){.struct_size = sizeof(gdn2_conv_backward_args),
                                   .problem = {.B = a->B,
                                               .T = a->T,
                                               .D = D,
                                               .W = a->W,
                                               .x = {.data = a->x, .dtype = type},
                                               .weight = {.data = a->weight},
                                               .bias = {.data = a->bias},
                                               .state = {.data = a->state},
                                               .silu = a->silu,
                                               .cu_seqlens = a->cu,
                                               .cu_seqlens_type = GDN2_I64,
                                               .N = a->cu ? a->N : 0},
                                   .dy = {.data = a->dy, .dtype = type},
                                   .dstate_final = {.data = a->dlast},
                                   .dx = {.data = a->dx, .dtype = type},
                                   .dweight = {.data = a->dweight},
                                   .dbias = {.data = a->dbias},
                                   .dstate = {.data = a->dstate}};
}

static gdn2_conv_forward_args forward_of(const whole *a, const gdn2_conv_backward_args *b) {
  return (gdn2_conv_forward_args){.struct_size = sizeof(gdn2_conv_forward_args),
                                  .problem = b->problem,
                                  .y = {.data = a->y, .dtype = b->problem.x.dtype},
                                  .state_final = {.data = a->last}};
}

static whole whole_new(uint64_t seed, const int64_t *cu, int64_t N, int64_t W, bool half) {
  rng r = {seed};
  whole a = {.B = cu ? 1 : N, .T = 29, .W = W, .N = N, .cu = cu, .half = half, .silu = seed % 2, .unit = half ? 2 : 4};
  const size_t states = (size_t)N * state_size(&a), count = (size_t)(a.B * a.T * D);
  a.x = tokens(&a, &r), a.dy = tokens(&a, &r);
  a.weight = floats(&r, (size_t)(D * W)), a.bias = floats(&r, D);
  a.state = floats(&r, states), a.dlast = floats(&r, states);
  a.y = (char *)test_floats(count), a.dx = (char *)test_floats(count);
  a.last = test_floats(states), a.dstate = test_floats(states);
  a.dweight = test_floats((size_t)(D * W)), a.dbias = test_floats(D);
  const gdn2_conv_backward_args b = backward_of(&a);
  const gdn2_conv_forward_args f = forward_of(&a, &b);
  assert_int_equal(gdn2_conv_forward(&f), GDN2_OK);
  assert_int_equal(gdn2_conv_backward(&b), GDN2_OK);
  return a;
}

/* ---- The shard ---- */

static void must_be_ok(gdn2_status status, const char *call) {
  if (status != GDN2_OK) fail_msg("%s: %s: %s", call, gdn2_status_name(status), gdn2_mpi_last_error());
}

static void move(const whole *a, const void **data, int64_t stride[4], int64_t from) {
  const int64_t of_whole[4] = {a->T * D, D, D, 1};
  memcpy(stride, of_whole, sizeof of_whole);
  *data = (const char *)*data + (size_t)(from * D) * a->unit;
}

/* Rows of a token tensor [B,T,1,D]. */
static void expect_rows(const whole *a, const char *name, mpi_window w, const char *got, const char *want) {
  const size_t row = D * a->unit;
  for (int64_t b = 0; b < a->B; b++)
    for (int64_t t = w.from; t < w.to; t++)
      if (memcmp(got + (size_t)(b * a->T + t) * row, want + (size_t)(b * a->T + t) * row, row) != 0)
        fail_msg("%s: token %d of %d ranks does not have the bits of the whole", name, (int)t, ranks);
}

static void expect_sums(const char *name, float *part, const float *want, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, part, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double error = 0, size = 0;
  for (size_t i = 0; i < count; i++) {
    const double e = (double)part[i] - (double)want[i];
    error += e * e;
    size += (double)want[i] * (double)want[i];
  }
  if (!(size > 1e-4) || !(error <= 1e-12 * size)) fail_msg("%s: error %.3e", name, sqrt(error / size));
}

/* From the arguments of the whole to those of the shard; then as a user would call. */
static void split_and_compare(const whole *a, mpi_window w) {
  const width_case sequences = {.cu = a->cu, .N = a->N};
  const mpi_pack p = mpi_pack_of(a->cu, a->N, w, rank, ranks);
  const size_t size = state_size(a), states = (size_t)p.N * size;
  whole own = *a;
  float *state = test_floats(states), *dlast = test_floats(states), *behind = test_floats(states);
  own.y = (char *)test_floats((size_t)(a->B * a->T * D)), own.dx = (char *)test_floats((size_t)(a->B * a->T * D));
  own.last = test_floats(states), own.dstate = test_floats(states);
  own.dweight = test_floats((size_t)(D * a->W)), own.dbias = test_floats(D);
  for (int64_t n = 0; n < p.N; n++)
    for (size_t i = 0; i < size; i++)
      dlast[(size_t)n * size + i] = mpi_ends(&p, &sequences, p.g0 + n, rank, ranks) ? a->dlast[(size_t)(p.g0 + n) * size + i] : 0;
  gdn2_conv_backward_args b = backward_of(&own);
  gdn2_conv_forward_args f = forward_of(&own, &b);
  const void *y = f.y.data, *dx = b.dx.data;
  move(a, &b.problem.x.data, b.problem.x.stride, w.from);
  move(a, &b.dy.data, b.dy.stride, w.from);
  move(a, &y, f.y.stride, w.from), f.y.data = (void *)(uintptr_t)y;
  move(a, &dx, b.dx.stride, w.from), b.dx.data = (void *)(uintptr_t)dx;
  b.problem.T = w.to - w.from;
  if (a->cu) b.problem.N = p.N, b.problem.cu_seqlens = p.cu;
  b.problem.state.data = a->state + (size_t)p.g0 * size;
  if (!a->cu && rank > 0) b.problem.state.data = NULL;
  b.dstate_final.data = dlast;
  gdn2_mpi_shard shard = mpi_shard_new(MPI_COMM_WORLD);
  shard.continues = p.continues;
  must_be_ok(gdn2_mpi_conv_state(&b.problem, &shard, state), "gdn2_mpi_conv_state");
  b.problem.state.data = state;
  f.problem = b.problem;
  assert_int_equal(gdn2_conv_forward(&f), GDN2_OK);
  expect_rows(a, "y", w, own.y, a->y);
  must_be_ok(gdn2_mpi_conv_dstate_final(&b, &shard, behind), "gdn2_mpi_conv_dstate_final");
  b.dstate_final.data = behind;
  assert_int_equal(gdn2_conv_backward(&b), GDN2_OK);
  expect_rows(a, "dx", w, own.dx, a->dx);
  expect_sums("dweight", own.dweight, a->dweight, (size_t)(D * a->W));
  expect_sums("dbias", own.dbias, a->dbias, D);
  for (int64_t n = 0; n < p.N; n++) {
    const size_t here = (size_t)n * size, there = (size_t)(p.g0 + n) * size;
    if (mpi_ends(&p, &sequences, p.g0 + n, rank, ranks))
      assert_memory_equal(own.last + here, a->last + there, size * sizeof(float));
    if (mpi_begins(&p, &sequences, p.g0 + n, rank))
      assert_memory_equal(own.dstate + here, a->dstate + there, size * sizeof(float));
  }
}

static void test_rows(void **state) {
  (void)state;
  for (int64_t W = 2; W <= 4; W++)
    for (int cut = 0; cut < MPI_CUTS; cut++) {
      const whole a = whole_new((uint64_t)(10 * W + cut), NULL, 2, W, cut % 3 == 2);
      split_and_compare(&a, mpi_window_of((mpi_cut)cut, a.T, rank, ranks));
    }
}

static void test_packed(void **state) {
  (void)state;
  static const int64_t cuts[][6] = {{0, 7, 8, 8, 20, 27}, {0, 0, 29, 29, 29, 29}, {0, 1, 2, 3, 5, 29}};
  for (uint64_t i = 0; i < 18; i++) {
    const whole a = whole_new(100 + i, cuts[i % 3], 5, 2 + (int64_t)(i / 3 % 3), i % 4 == 3);
    split_and_compare(&a, mpi_window_drawn(i, a.T, rank, ranks));
  }
}

/* A rank that is given a state which is not its own. */
static void test_refusals(void **state) {
  (void)state;
  const whole a = whole_new(200, NULL, 2, 3, false);
  float *to = test_floats(2 * state_size(&a));
  const gdn2_mpi_shard shard = mpi_shard_new(MPI_COMM_WORLD);
  gdn2_conv_backward_args b = backward_of(&a);
  if (ranks > 1) {
    assert_int_equal(gdn2_mpi_conv_state(&b.problem, &shard, to), GDN2_ERR_ARGUMENT);
    assert_non_null(strstr(gdn2_mpi_last_error(), "rank 1: state is given"));
  }
  if (rank > 0) b.problem.state.data = NULL;
  if (rank == ranks - 1) b.problem.W = 7;
  assert_int_equal(gdn2_mpi_conv_dstate_final(&b, &shard, to), GDN2_ERR_SHAPE);
  assert_non_null(strstr(gdn2_mpi_last_error(), "W is 7"));
  b.problem.W = 3;
  if (rank == ranks - 1) b.problem.D = D - 1;
  if (ranks > 1) {
    assert_int_equal(gdn2_mpi_conv_state(&b.problem, &shard, to), GDN2_ERR_SHAPE);
    assert_non_null(strstr(gdn2_mpi_last_error(), "D is 4"));
  }
  b.problem.D = D;
  assert_int_equal(gdn2_mpi_conv_state(rank == 0 ? NULL : &b.problem, &shard, to), GDN2_ERR_ARGUMENT);
  assert_int_equal(gdn2_mpi_conv_state(&b.problem, &shard, rank == 0 ? NULL : to), GDN2_ERR_ARGUMENT);
  for (size_t i = 0; i < 2 * state_size(&a); i++) {
    uint32_t bits;
    memcpy(&bits, to + i, sizeof bits);
    assert_int_equal(bits, TEST_POISON);
  }
  must_be_ok(gdn2_mpi_conv_state(&b.problem, &shard, to), "gdn2_mpi_conv_state");
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_rows), TEST(test_packed), TEST(test_refusals)};
  return mpi_main(tests, sizeof tests / sizeof *tests, &rank, &ranks);
}
