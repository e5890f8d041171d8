/* bench_tensors.c - memory and inputs of one case. All arrays begin at a cache line, as PyTorch's and JAX's do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "engine.h"
#include "bench.h"
#include "pages.h"

static int is_seed(bench_op op) { return op >= SEED_FORWARD; }
static int has_backward(bench_op op) { return op != FORWARD && op != DECODE && op != SEED_FORWARD; }

/* ---- Numbers -------------------------------------------------------------------------------------------------------------- */

/* splitmix64 */
static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* In (0, 1). */
static float uniform(uint64_t *state) { return (float)(next(state) >> 40) * 0x1p-24f + 0x1p-25f; }

/* Nearly normal, mean 0, variance 1: a sum of four uniform numbers of 16 bits. */
static float normal(uint64_t *state) {
  uint64_t z = next(state);
  float sum = (float)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return (sum * 0x1p-16f - 2) * 1.7320508f;
}

/* Vectors of length `width`, each with norm 1. */
static void fill_unit(float *x, int64_t count, int64_t width, uint64_t *state) {
  for (int64_t row = 0; row < count; row += width) {
    float square = 0;
    for (int64_t i = row; i < row + width; i++) {
      x[i] = normal(state);
      square += x[i] * x[i];
    }
    float factor = 1 / sqrtf(square + 1e-6f);
    for (int64_t i = row; i < row + width; i++) x[i] *= factor;
  }
}

/* Like a trained layer's: unit keys and queries, decays from exp(-1e-3) to exp(-0.5), gates between 0 and 1. */
static void fill(float *x, input_id id, int64_t count, int64_t K) {
  uint64_t state = (uint64_t)id + 1;
  if (id == IN_Q || id == IN_K)
    fill_unit(x, count, K, &state);
  else if (id == IN_V || id == IN_DO)
    for (int64_t i = 0; i < count; i++) x[i] = normal(&state);
  else if (id == IN_G)
    for (int64_t i = 0; i < count; i++) x[i] = -0.5f * expf(-6.2f * uniform(&state));
  else
    for (int64_t i = 0; i < count; i++) x[i] = 0.05f + 0.9f * uniform(&state);
}

/* ---- Sizes and types ------------------------------------------------------------------------------------------------------ */

static int64_t count_of(const bench_case *c, const char *axes) {
  sizes n = c->n;
  n.HV = n.G = n.E = c->HV;
  n.N = n.B;
  return sizes_count(&n, axes);
}
static int64_t input_count(const bench_case *c, input_id id) {
  const inputs plain = inputs_plain(c->rule);
  return count_of(c, inputs_axes(&plain, id));
}
static int64_t output_count(const bench_case *c, output_id id) {
  const inputs plain = inputs_plain(c->rule);
  return count_of(c, outputs_axes(&plain, id));
}

gdn2_dtype bench_input_dtype(const bench_case *c, input_id id) {
  const int wide = (id == IN_G || id == IN_DO) && !bench_is_layer(c->op) && c->dtype != GDN2_F64;
  return wide ? GDN2_F32 : c->dtype;
}
gdn2_dtype bench_output_dtype(const bench_case *c, output_id id) {
  return id == OUT_O || bench_is_layer(c->op) || c->dtype == GDN2_F64 ? c->dtype : GDN2_F32;
}

static io_dtype stored(gdn2_dtype dtype) {
  static const io_dtype types[] = {[GDN2_F32] = IO_F32, [GDN2_BF16] = IO_BF16, [GDN2_F16] = IO_F16, [GDN2_F64] = IO_F64};
  return types[dtype];
}

/* ---- Memory --------------------------------------------------------------------------------------------------------------- */

static int takes(const bench_case *c, input_id id) {
  if (bench_is_layer(c->op)) return bench_layer_takes(c->op, id);
  return (c->rule->needs >> id & 1) || (id == IN_DO && has_backward(c->op));
}

static int gives(const bench_case *c, output_id id) {
  if (bench_is_layer(c->op)) return bench_layer_gives(c->op, id);
  if (id == OUT_O) return 1;
  if (id == OUT_H_FINAL) return c->op != DECODE;
  /* dbeta is db + dw, the caller's sum; the exact ops leave the gradient of an absent h0 out, the seed's may not. */
  if (id == OUT_DBETA || (id == OUT_DH0 && !is_seed(c->op))) return 0;
  const inputs plain = inputs_plain(c->rule);
  return has_backward(c->op) && outputs_axes(&plain, id);
}

static gdn2_seed_config config_of(void) {
  gdn2_seed_config config = {0};
  gdn2_seed_config_preset(GDN2_SEED_DEFAULT, &config);
  return config;
}

/* Floats of the residuals: scores [B, H, NC, bt, bt], chunks [B, H, NC, bt, K or V], states [B, H, NC, K, V]. */
typedef struct residual_sizes {
  size_t score, key, value, state, gate;
} residual_sizes;

static residual_sizes residual_sizes_of(const sizes *n) {
  int64_t bt = config_of().bt, chunks = n->B * n->H * ((n->T + bt - 1) / bt);
  return (residual_sizes){(size_t)(chunks * bt * bt), (size_t)(chunks * bt * n->K), (size_t)(chunks * bt * n->V),
                          (size_t)(chunks * n->K * n->V), (size_t)(chunks * n->K)};
}

static int make_residuals(gdn2_seed_residuals *r, const sizes *n) {
  const residual_sizes z = residual_sizes_of(n);
  const struct {
    float **at;
    size_t count;
  } parts[] = {{&r->Aqk, z.score}, {&r->Akk, z.score}, {&r->A, z.score},      {&r->h_pre_all, z.state}, {&r->v_new_all, z.value},
               {&r->u, z.value},   {&r->kg, z.key},    {&r->w_pseudo, z.key}, {&r->qg, z.key},          {&r->gc_last, z.gate}};
  int whole = 1;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    whole &= !!(*parts[i].at = pages_allocate(sizeof(float) * parts[i].count));
  return whole;
}

static void free_residuals(gdn2_seed_residuals *r) {
  float *parts[] = {r->Aqk, r->Akk, r->A, r->h_pre_all, r->v_new_all, r->u, r->w_pseudo, r->kg, r->qg, r->gc_last};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Floats of the states that the forward of a training step keeps. */
static size_t snapshot_count(const bench_case *c) {
  return (size_t)(c->n.B * (c->n.T / BENCH_SNAPSHOT_EVERY) * c->HV * c->n.K * c->n.V);
}
static size_t residual_count(const bench_case *c) { return (size_t)(c->n.B * c->n.T * c->HV * c->n.V); }

static int make_kept(bench_tensors *t, const bench_case *c) {
  if (c->op != TRAIN || c->dtype == GDN2_F64) return 1;
  if (c->dtype != GDN2_F32 && !(t->residual = pages_allocate(sizeof(float) * residual_count(c)))) return 0;
  return snapshot_count(c) == 0 || (t->snapshots = pages_allocate(sizeof(float) * snapshot_count(c)));
}

/* In floating point: the sizes may be absurd. */
static double bytes_needed(const bench_case *c) {
  double tokens = (double)c->n.B * (double)c->n.T * (double)c->HV, wide = (double)(c->n.K > c->n.V ? c->n.K : c->n.V),
         numbers = 0;
  for (int id = 0; id < INPUTS; id++) numbers += takes(c, (input_id)id) * tokens * wide;
  for (int id = 0; id < OUTPUTS; id++) numbers += gives(c, (output_id)id) * tokens * wide;
  if (c->op == TRAIN)
    numbers += tokens / (double)BENCH_SNAPSHOT_EVERY * (double)(c->n.K * c->n.V) + (c->dtype != GDN2_F32) * tokens * wide;
  if (c->op == DECODE) numbers += 2 * (double)c->layers * (double)c->n.B * (double)c->HV * (double)c->n.K * (double)c->n.V;
  if (is_seed(c->op)) numbers += tokens * (3 * config_of().bt + 6 * wide);
  return (c->dtype == GDN2_F64 ? sizeof(double) : sizeof(float)) * numbers;
}

static int check_memory(const bench_case *c) {
  double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE), needed = bytes_needed(c);
  if (needed <= 0.8 * machine) return DONE;
  return cli_failed("B=%lld T=%lld H=%lld needs %.1f GiB, and the machine has %.1f GiB", (long long)c->n.B, (long long)c->n.T,
                    (long long)c->n.H, 0x1p-30 * needed, 0x1p-30 * machine);
}

/* The numbers are made in float32 and then stored in the case's type. */
static void *make_input(const bench_case *c, input_id id) {
  int64_t count = input_count(c, id);
  io_dtype dtype = stored(bench_input_dtype(c, id));
  float *x = pages_allocate(sizeof *x * (size_t)count);
  if (x) fill(x, id, count, c->n.K);
  if (!x || dtype == IO_F32) return x;
  void *narrow = pages_allocate(io_dtype_bytes(dtype) * (size_t)count);
  if (narrow) io_from_f32(dtype, x, narrow, count);
  free(x);
  return narrow;
}

static void *make_output(const bench_case *c, output_id id) {
  return pages_allocate(io_dtype_bytes(stored(bench_output_dtype(c, id))) * (size_t)output_count(c, id));
}

size_t bench_state_bytes(const bench_case *c) {
  return (size_t)(c->layers * c->n.B * c->HV * c->n.K * c->n.V) * io_dtype_bytes(stored(c->dtype));
}

/* The same numbers over and over: there may be gigabytes of them. */
static void *make_states(const bench_case *c) {
  enum { BLOCK = 1024 };
  float x[BLOCK];
  uint64_t random = 1;
  size_t bytes = bench_state_bytes(c), block = BLOCK * io_dtype_bytes(stored(c->dtype));
  char *state = pages_allocate(bytes), narrow[sizeof x];
  for (int i = 0; i < BLOCK; i++) x[i] = 0.1f * normal(&random);
  io_from_f32(stored(c->dtype), x, narrow, BLOCK);
  for (size_t at = 0; state && at < bytes; at += block) memcpy(state + at, narrow, bytes - at < block ? bytes - at : block);
  return state;
}

static int make_arrays(bench_tensors *t, const bench_case *c) {
  if (c->op == DECODE && !(t->state = make_states(c))) return 0;
  if (!make_kept(t, c)) return 0;
  for (int id = 0; id < INPUTS; id++)
    if (takes(c, (input_id)id) && !(t->x[id] = make_input(c, (input_id)id))) return 0;
  for (int id = 0; id < OUTPUTS; id++)
    if (gives(c, (output_id)id) && !(t->y[id] = make_output(c, (output_id)id))) return 0;
  if (bench_is_layer(c->op) && !bench_layer_make(t, c)) return 0;
  return !is_seed(c->op) || make_residuals(&t->residuals, &c->n);
}

int bench_tensors_make(bench_tensors *t, const bench_case *c) {
  *t = (bench_tensors){.state = NULL};
  t->forward = t->backward = (gdn2_exec){.threads = c->threads, .isa = c->isa};
  int code = check_memory(c);
  if (!code && !make_arrays(t, c)) code = cli_failed("not enough memory");
  return code;
}

void bench_tensors_free(bench_tensors *t) {
  for (int id = 0; id < INPUTS; id++) free(t->x[id]);
  for (int id = 0; id < OUTPUTS; id++) free(t->y[id]);
  free(t->weight);
  free(t->dweight);
  free(t->state);
  free(t->snapshots);
  free(t->residual);
  free_residuals(&t->residuals);
  free(t->forward.workspace);
  free(t->backward.workspace);
}

/* ---- The results ---------------------------------------------------------------------------------------------------------- */

/* Sum of the magnitudes of one output. */
static double magnitude(const bench_tensors *t, const bench_case *c, output_id id) {
  float block[1024];
  io_dtype dtype = stored(bench_output_dtype(c, id));
  double sum = 0;
  for (int64_t first = 0, count = output_count(c, id); first < count; first += 1024) {
    int64_t n = count - first < 1024 ? count - first : 1024;
    io_to_f32(dtype, (const char *)t->y[id] + (size_t)first * io_dtype_bytes(dtype), block, n);
    for (int64_t i = 0; i < n; i++) sum += fabs((double)block[i]);
  }
  return sum;
}

int bench_tensors_check(const bench_tensors *t, const bench_case *c) {
  output_id id = t->y[OUT_DQ] ? OUT_DQ : t->y[OUT_O] ? OUT_O : OUT_DV;
  double sum = magnitude(t, c, id);
  return isfinite(sum) && sum > 0 ? DONE : cli_failed("%s is not finite, or all zeros", outputs_name(id));
}
