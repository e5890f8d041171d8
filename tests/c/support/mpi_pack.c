#include "test.h"

#include <math.h>

#include "mpi_pack.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

mpi_pack mpi_pack_of(const int64_t *cu, int64_t N, mpi_window w, int rank, int ranks) {
  mpi_pack p = {.w = w, .g0 = -1};
  if (!cu) return (mpi_pack){.w = w, .N = N};
  for (int64_t n = 0; n < N; n++) {
    const bool rest = cu[n] < w.from && w.from < cu[n + 1];
    const bool begins = cu[n] >= w.from && (cu[n] < w.to || rank == ranks - 1);
    if (!rest && !begins) continue;
    if (p.g0 < 0) p.g0 = n, p.continues = rest, p.cu[0] = rest ? 0 : cu[n] - w.from;
    p.N++;
    p.cu[p.N] = smaller(cu[n + 1], w.to) - w.from;
  }
  if (p.g0 < 0) p.g0 = 0;
  return p;
}

bool mpi_begins(const mpi_pack *p, const width_case *c, int64_t n, int rank) {
  if (!c->cu) return rank == 0;
  return n >= p->g0 + p->continues && n < p->g0 + p->N;
}

bool mpi_ends(const mpi_pack *p, const width_case *c, int64_t n, int rank, int ranks) {
  if (!c->cu) return rank == ranks - 1;
  return n >= p->g0 && n < p->g0 + p->N && c->cu[n + 1] <= p->w.to;
}

/* ---- Arguments ---- */

static void *row_of(const void *data, gdn2_dtype dtype, const int64_t stride[4], int64_t row) {
  return data ? (char *)(uintptr_t)data + (dtype == GDN2_F64 ? 8 : 4) * row * stride[0] : NULL;
}

static void *offsets(const mpi_pack *p, gdn2_index type) {
  const size_t count = (size_t)p->N + 1;
  int64_t *wide = (int64_t *)(void *)test_doubles(count);
  int32_t *narrow = (int32_t *)(void *)test_floats(count);
  for (size_t n = 0; n < count; n++) wide[n] = p->cu[n], narrow[n] = (int32_t)p->cu[n];
  return type == GDN2_I64 ? (void *)wide : narrow;
}

static void pack_problem(const width_case *c, const mpi_pack *p, int rank, gdn2_problem *q) {
  if (!c->cu) {
    if (rank > 0) q->h0.data = NULL;
    return;
  }
  q->h0.data = row_of(q->h0.data, q->h0.dtype, q->h0.stride, p->g0);
  q->N = p->N;
  q->cu_seqlens = offsets(p, q->cu_seqlens_type);
}

void mpi_pack_forward(const width_case *c, const mpi_pack *p, int rank, gdn2_forward_args *args) {
  mpi_cut_forward(args, p->w);
  pack_problem(c, p, rank, &args->problem);
  if (c->cu) args->h_final.data = row_of(args->h_final.data, args->h_final.dtype, args->h_final.stride, p->g0);
}

/* dh_final of the sequences that end here; 0 for one that goes on. */
static gdn2_input own_gradients(const width_case *c, const mpi_pack *p, gdn2_input x, int rank, int ranks) {
  const int64_t state = c->HV * c->K * c->V;
  const size_t unit = x.dtype == GDN2_F64 ? 8 : 4;
  char *own = (char *)test_doubles((size_t)(p->N * state));
  memset(own, 0, (size_t)(p->N * state) * 8);
  for (int64_t n = 0; n < p->N; n++)
    for (int64_t i = 0; i < state && mpi_ends(p, c, p->g0 + n, rank, ranks); i++) {
      const int64_t at[4] = {p->g0 + n, i / (c->K * c->V), i / c->V % c->K, i % c->V};
      int64_t from = 0;
      for (int axis = 0; axis < 4; axis++) from += at[axis] * x.stride[axis];
      memcpy(own + (size_t)(n * state + i) * unit, (const char *)x.data + from * (int64_t)unit, unit);
    }
  return (gdn2_input){.data = own, .dtype = x.dtype};
}

void mpi_pack_backward(const width_case *c, const mpi_pack *p, int rank, int ranks, gdn2_backward_args *args) {
  mpi_cut_backward(args, p->w);
  pack_problem(c, p, rank, &args->problem);
  if (args->dh_final.data) args->dh_final = own_gradients(c, p, args->dh_final, rank, ranks);
  if (c->cu) args->dh0.data = row_of(args->dh0.data, args->dh0.dtype, args->dh0.stride, p->g0);
  if (!c->cu && rank > 0) args->dh0.data = NULL;
}

/* ---- Judgement ---- */

static double judged(MPI_Comm comm, const tensor *t, double squares, const double *want, double unit) {
  const double size = fmax(root_mean_square(want, tensor_count(t)), unit) * sqrt((double)tensor_count(t));
  MPI_Allreduce(MPI_IN_PLACE, &squares, 1, MPI_DOUBLE, MPI_SUM, comm);
  return tensor_count(t) ? sqrt(squares) / size : 0;
}

double mpi_rows_error(MPI_Comm comm, const tensor *t, mpi_window w, const double *got, const double *want, double unit) {
  const int64_t row = t->shape[2] * t->shape[3];
  double squares = 0;
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t i = (b * t->shape[1] + w.from) * row; i < (b * t->shape[1] + w.to) * row; i++)
      squares += (got[i] - want[i]) * (got[i] - want[i]);
  return judged(comm, t, squares, want, unit);
}

double mpi_states_error(MPI_Comm comm, const tensor *t, const bool *mine, const double *got, const double *want, double unit) {
  const int64_t state = t->shape[1] * t->shape[2] * t->shape[3];
  double squares = 0;
  for (int64_t i = 0; i < t->shape[0] * state; i++)
    if (mine[i / state]) squares += (got[i] - want[i]) * (got[i] - want[i]);
  return judged(comm, t, squares, want, unit);
}
