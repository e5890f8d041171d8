#include "test.h"

#include "mpi_shard.h"

/* ---- Windows ---- */

static int64_t cut_at(mpi_cut cut, int64_t T, int rank, int ranks) {
  const int64_t r = rank, n = ranks;
  if (r == 0) return 0;
  if (r == n) return T;
  switch (cut) {
  case MPI_CUT_EVEN: return T * r / n;
  case MPI_CUT_GROWING: return T * r * (r + 1) / (n * (n + 1));
  case MPI_CUT_GAPS: return T * (r / 2) / ((n + 1) / 2);
  case MPI_CUT_ONE_EACH: return r < T ? r : T;
  default: return T;
  }
}

mpi_window mpi_window_of(mpi_cut cut, int64_t T, int rank, int ranks) {
  return (mpi_window){cut_at(cut, T, rank, ranks), cut_at(cut, T, rank + 1, ranks)};
}

mpi_window mpi_window_drawn(uint64_t seed, int64_t T, int rank, int ranks) {
  int64_t before = 0, after = T; /* drawn in order: cut r lies between cut r-1 and T, mostly near the former */
  for (int r = 1; r <= rank + 1; r++) {
    rng draw = {seed * 64 + (uint64_t)r};
    before = r == 1 ? 0 : after;
    const int64_t rest = T - before, step = rest ? (int64_t)(rng_next(&draw) % (uint64_t)(2 * rest / (ranks - r + 1) + 1)) : 0;
    after = r == ranks ? T : before + (step < rest ? step : rest);
  }
  return (mpi_window){before, after};
}

/* ---- Arguments ---- */

gdn2_mpi_shard mpi_shard_new(MPI_Comm comm) { return (gdn2_mpi_shard){.struct_size = sizeof(gdn2_mpi_shard), .comm = comm}; }

static void *moved(const void *data, gdn2_dtype dtype, int64_t stride[4], int64_t T, int64_t heads, int64_t channels,
                   int64_t from) {
  const int64_t bytes = dtype == GDN2_F64   ? 8
                        : dtype == GDN2_F32 ? 4
                                            : 2,
                contiguous[4] = {T * heads * channels, heads * channels, channels, 1};
  if (!stride[0] && !stride[1] && !stride[2] && !stride[3]) memcpy(stride, contiguous, sizeof contiguous);
  return data ? (char *)(uintptr_t)data + bytes * from * stride[1] : NULL;
}

static void cut_input(gdn2_input *x, const gdn2_problem *p, int64_t heads, int64_t channels, mpi_window w) {
  x->data = moved(x->data, x->dtype, x->stride, p->T, heads, channels, w.from);
}

static void cut_output(gdn2_output *x, const gdn2_problem *p, int64_t heads, int64_t channels, mpi_window w) {
  x->data = moved(x->data, x->dtype, x->stride, p->T, heads, channels, w.from);
}

static void cut_problem(gdn2_problem *p, mpi_window w) {
  const int64_t HV = p->HV ? p->HV : p->H;
  cut_input(&p->q, p, p->H, p->K, w);
  cut_input(&p->k, p, p->H, p->K, w);
  cut_input(&p->v, p, HV, p->V, w);
  cut_input(&p->g, p, p->g_key_heads ? p->H : HV, p->K, w);
  cut_input(&p->b, p, p->b_key_heads ? p->H : HV, p->K, w);
  cut_input(&p->w, p, HV, p->V, w);
  p->T = w.to - w.from;
}

void mpi_cut_forward(gdn2_forward_args *args, mpi_window w) {
  const gdn2_problem *p = &args->problem;
  cut_output(&args->o, p, p->HV ? p->HV : p->H, p->V, w);
  cut_problem(&args->problem, w);
}

void mpi_cut_backward(gdn2_backward_args *args, mpi_window w) {
  const gdn2_problem *p = &args->problem;
  const int64_t HV = p->HV ? p->HV : p->H;
  cut_input(&args->d_o, p, HV, p->V, w);
  cut_output(&args->dq, p, p->H, p->K, w);
  cut_output(&args->dk, p, p->H, p->K, w);
  cut_output(&args->dv, p, HV, p->V, w);
  cut_output(&args->dg, p, p->g_key_heads ? p->H : HV, p->K, w);
  cut_output(&args->db, p, p->b_key_heads ? p->H : HV, p->K, w);
  cut_output(&args->dw, p, HV, p->V, w);
  cut_problem(&args->problem, w);
}

/* ---- Putting results together ---- */

/* The rank's rows; all others must be as they were, and become 0 for the sum. */
static void own_rows(const exact_case *c, int output, float *x, mpi_window w) {
  const tensor t = output_tensor(c, output);
  const int64_t row = t.shape[2] * t.shape[3];
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t s = 0; s < c->T; s++)
      for (int64_t i = 0; i < row && (s < w.from || s >= w.to); i++) {
        uint32_t bits;
        float *at = x + (b * c->T + s) * row + i;
        memcpy(&bits, at, sizeof bits);
        if (bits != TEST_POISON) fail_msg("%s: token %d was written, which is another rank's", t.name, (int)s);
        *at = 0;
      }
}

static void put_together(const exact_case *c, const results *r, mpi_window w, MPI_Comm comm) {
  int ranks;
  MPI_Comm_size(comm, &ranks);
  for (int i = 0; i < OUTPUTS; i++) {
    const int count = (int)output_count(c, i);
    if (i == OUT_HF || i == OUT_DH0) {
      MPI_Bcast(r->out[i], count, MPI_FLOAT, i == OUT_HF ? ranks - 1 : 0, comm);
      continue;
    }
    own_rows(c, i, r->out[i], w);
    MPI_Allreduce(MPI_IN_PLACE, r->out[i], count, MPI_FLOAT, MPI_SUM, comm);
  }
}

static void must_be_ok(gdn2_status status, const char *call) {
  if (status != GDN2_OK) fail_msg("%s: %s: %s", call, gdn2_status_name(status), gdn2_mpi_last_error());
}

results mpi_run_exact(const exact_case *c, const mpi_run *how) {
  int rank, ranks;
  MPI_Comm_rank(how->comm, &rank);
  MPI_Comm_size(how->comm, &ranks);
  const mpi_window w = mpi_window_of(how->cut, c->T, rank, ranks);
  results r = results_new(c, OUT_ALL);
  gdn2_mpi_shard shard = mpi_shard_new(how->comm);
  gdn2_forward_args forward = forward_args(c, &r);
  gdn2_backward_args backward = backward_args(c, &r);
  mpi_cut_forward(&forward, w);
  mpi_cut_backward(&backward, w);
  forward.exec = backward.exec = how->exec;
  if (rank > 0) forward.problem.h0.data = backward.problem.h0.data = NULL, backward.dh0.data = NULL;
  if (rank < ranks - 1) backward.dh_final.data = NULL;
  must_be_ok(gdn2_mpi_kept_bytes(&forward.problem, &shard.kept_bytes), "gdn2_mpi_kept_bytes");
  assert_int_equal(shard.kept_bytes, (size_t)(c->B * c->H * c->K * (c->K + c->V)) * sizeof(float));
  float *kept = test_floats(shard.kept_bytes / sizeof(float));
  if (!how->forget) shard.kept = kept;
  shard.method = how->method;
  must_be_ok(gdn2_mpi_forward(&forward, &shard), "gdn2_mpi_forward");
  if (how->between) how->between(c, kept);
  must_be_ok(gdn2_mpi_backward(&backward, &shard), "gdn2_mpi_backward");
  put_together(c, &r, w, how->comm);
  return r;
}

int mpi_main(const struct CMUnitTest *tests, size_t count, int *rank, int *ranks) {
  int level;
  setenv("CMOCKA_TEST_ABORT", "1", 1);
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
  const int failed = _cmocka_run_group_tests("mpi", tests, count, NULL, NULL);
  MPI_Finalize();
  return failed;
}
