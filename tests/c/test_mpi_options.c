/* Every option of the rule in sequences that are split over ranks, at drawn places; and packed sequences. In float64 against the
 * library's call on the whole, which test_double_* hold against derivatives by complex steps; in float32 against the float64
 * oracle. */
#include "test.h"

#include <math.h>

#include "gradient.h"
#include "mpi_pack.h"

#define WIDE 1e-12

static int rank, ranks;

static void must_be_ok(gdn2_status status, const char *call, const char *text) {
  if (status != GDN2_OK) fail_msg("%s: %s: %s (%s)", call, gdn2_status_name(status), gdn2_mpi_last_error(), text);
}

/* The arguments of the whole become this rank's; then both calls. */
static mpi_pack split_run(const width_case *c, uint64_t seed, gdn2_mpi_method method, bool keep, gdn2_forward_args *forward,
                          gdn2_backward_args *backward, const char *text) {
  const mpi_pack p = mpi_pack_of(c->cu, c->N, mpi_window_drawn(seed, c->T, rank, ranks), rank, ranks);
  gdn2_mpi_shard shard = mpi_shard_new(MPI_COMM_WORLD);
  mpi_pack_forward(c, &p, rank, forward);
  mpi_pack_backward(c, &p, rank, ranks, backward);
  shard.continues = p.continues;
  shard.method = method;
  must_be_ok(gdn2_mpi_kept_bytes(&forward->problem, &shard.kept_bytes), "gdn2_mpi_kept_bytes", text);
  if (keep) shard.kept = test_workspace(shard.kept_bytes);
  must_be_ok(gdn2_mpi_forward(forward, &shard), "gdn2_mpi_forward", text);
  must_be_ok(gdn2_mpi_backward(backward, &shard), "gdn2_mpi_backward", text);
  return p;
}

static void near(const char *name, double error, double bound, const char *text) {
  if (!(error <= bound)) fail_msg("%s: error %.3e above %.1e (%s)", name, error, bound, text);
  if (getenv("GDN2_TEST_VERBOSE") && rank == 0) print_message("    %-8s %9.2e\n", name, error);
}

/* The rows of a state tensor that are this rank's: sequences that begin here, or end. */
static void expect_states(const width_case *c, const mpi_pack *p, const tensor *t, bool ends, const double *got,
                          const double *want, double bound, double unit, const char *text) {
  bool *mine = calloc((size_t)c->N + 1, sizeof *mine);
  for (int64_t n = 0; n < c->N; n++) mine[n] = ends ? mpi_ends(p, c, n, rank, ranks) : mpi_begins(p, c, n, rank);
  const double error = mpi_states_error(MPI_COMM_WORLD, t, mine, got, want, unit);
  free(mine);
  near(t->name, error, bound, text);
  /* The gradient by an h0 that is not used. */
  for (int64_t i = 0; !ends && p->continues && i < t->shape[1] * t->shape[2] * t->shape[3]; i++)
    assert_true(got[p->g0 * t->shape[1] * t->shape[2] * t->shape[3] + i] == 0);
}

static void expect_parameters(const tensor *t, const double *got, const double *want, double bound, double unit,
                              const char *text) {
  const bool mine[] = {rank == 0};
  near(t->name, mpi_states_error(MPI_COMM_WORLD, t, mine, got, want, unit), bound, text);
  /* Every rank has the same bits. */
  double *first = test_doubles(tensor_count(t));
  memcpy(first, got, tensor_count(t) * sizeof *first);
  MPI_Bcast(first, (int)tensor_count(t), MPI_DOUBLE, 0, MPI_COMM_WORLD);
  assert_memory_equal(first, got, tensor_count(t) * sizeof *first);
}

/* ---- float64 ---- */

static double *loaded(const width_buffer *x) {
  double *values = test_doubles(tensor_count(&x->t));
  width_buffer_load_wide(x, values);
  return values;
}

static void expect_wide(const double_problem *x, const mpi_pack *p, const double_call *call, const double_result *want,
                        const char *text) {
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  near("o", mpi_rows_error(MPI_COMM_WORLD, &o, p->w, loaded(&call->width.o), want->o, 1e-3), WIDE, text);
  expect_states(&x->c, p, &h, true, loaded(&call->width.h_final), want->h_final, WIDE, 1e-3, text);
  for (int i = 0; i < W_INPUTS; i++) {
    if (!(call->wanted >> i & 1)) continue;
    const tensor t = double_tensor(x, i);
    double *got = loaded(&call->grad[i]);
    if (i == W_H0)
      expect_states(&x->c, p, &t, false, got, want->grad[i], WIDE, 1e-3, text);
    else if (i == W_A || i == W_DT)
      expect_parameters(&t, got, want->grad[i], WIDE, 1e-3, text);
    else
      near(t.name, mpi_rows_error(MPI_COMM_WORLD, &t, p->w, got, want->grad[i], 1e-3), WIDE, text);
    width_buffer_expect_gaps(&call->grad[i]);
  }
}

/* Whether the method of heads is refused. */
static bool tiled(const width_case *c) { return c->map == GDN2_HEADS_TILED && c->HV != c->H; }

static void test_every_option(void **state) {
  (void)state;
  static const width_layout strange = {{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 5, 7, 1}, {1, 1, 1, 1}, TEST_AT_END};
  for (uint64_t seed = 1; seed <= 40; seed++) {
    const void *mark = test_mark();
    char text[256];
    const double_problem x = double_any(seed);
    const unsigned all = DOUBLE_O | DOUBLE_H_FINAL | double_gradients(&x);
    const double_result want = double_run(&x, all);
    for (int method = GDN2_MPI_SCAN; method <= (tiled(&x.c) ? GDN2_MPI_SCAN : GDN2_MPI_HEADS); method++) {
      double_call call = double_call_new(&x, all, seed % 2 ? &width_contiguous : &strange);
      call.width.args.exec.threads = call.backward.exec.threads = 1 + (int)(seed % 3);
      const mpi_pack p =
          split_run(&x.c, seed, (gdn2_mpi_method)method, seed % 3, &call.width.args, &call.backward, double_options(&x, text));
      expect_wide(&x, &p, &call, &want, text);
    }
    test_release_to(mark);
  }
}

/* ---- float32 and 16 bits ---- */

static double *widened(const width_buffer *x) {
  float *narrow = test_floats(tensor_count(&x->t));
  double *wide = test_doubles(tensor_count(&x->t));
  width_buffer_load(x, narrow, NULL);
  for (size_t i = 0; i < tensor_count(&x->t); i++) wide[i] = (double)narrow[i];
  return wide;
}

/* What one rounding of the oracle to the type costs. */
static double rounding(gdn2_dtype type, const tensor *t, const double *want) {
  return type == GDN2_F32 ? 0 : width_rounding_error(type, want, tensor_count(t));
}

static void expect_single(const gradient_case *x, const mpi_pack *p, const width_call *forward, const gradient_call *backward) {
  const width_truth truth = width_oracle(&x->c);
  const gradient_truth want = gradient_oracle(x);
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  const gdn2_dtype type = forward->o.dtype;
  near("o", mpi_rows_error(MPI_COMM_WORLD, &o, p->w, widened(&forward->o), truth.o, 0), 1e-6 + rounding(type, &o, truth.o), "o");
  expect_states(&x->c, p, &h, true, widened(&forward->h_final), truth.h_final, 1e-6, 0, "h_final");
  for (int i = 0; i < GRADIENTS; i++) {
    if (!gradient_has(x, i)) continue;
    const tensor t = gradient_tensor(x, i);
    const double *got = widened(&backward->out[i]), *right = want.values[i];
    assert_true(i >= D_A || root_mean_square(right, tensor_count(&t)) > 1e-4);
    if (i == D_H0)
      expect_states(&x->c, p, &t, false, got, right, 1.5e-6, 0, "dh0");
    else if (i >= D_A)
      expect_parameters(&t, got, right, 1.5e-6, want.spread[i], "sums");
    else
      near(t.name, mpi_rows_error(MPI_COMM_WORLD, &t, p->w, got, right, 0), 1.5e-6 + rounding(type, &t, right), "rows");
  }
}

static void split_and_compare(const gradient_case *x, gdn2_dtype type, uint64_t seed) {
  for (int method = GDN2_MPI_SCAN; method <= GDN2_MPI_HEADS; method++) {
    width_call forward = width_call_new(&x->c, type, &width_contiguous);
    gradient_call backward = gradient_call_new(x, type, &width_contiguous);
    const mpi_pack p = split_run(&x->c, seed, (gdn2_mpi_method)method, seed % 2, &forward.args, &backward.args, "not float64");
    expect_single(x, &p, &forward, &backward);
  }
}

static void test_types(void **state) {
  (void)state;
  for (int type = GDN2_F32; type <= GDN2_F16; type++) {
    gradient_case x = gradient_with_options(200 + (uint64_t)type, 2, 75, 11, 9, NULL, 0);
    gradient_set_type(&x, (gdn2_dtype)type);
    split_and_compare(&x, (gdn2_dtype)type, 3 + (uint64_t)type);
  }
}

/* Sequences of many lengths, one that goes through several ranks, empty ones, tokens of none. */
static void test_packed(void **state) {
  (void)state;
  static const int64_t cuts[][7] = {{0, 20, 21, 21, 60, 77, 80}, {0, 0, 75, 75, 75, 75, 75}, {0, 3, 9, 30, 31, 33, 90}};
  for (uint64_t i = 0; i < 9; i++) {
    const void *mark = test_mark();
    const gradient_case x = gradient_with_options(300 + i, 1, 90, 8, 6, cuts[i % 3], 6);
    split_and_compare(&x, GDN2_F32, i);
    test_release_to(mark);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_every_option), TEST(test_types), TEST(test_packed)};
  return mpi_main(tests, sizeof tests / sizeof *tests, &rank, &ranks);
}
