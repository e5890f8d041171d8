/* What a shard is for the ranks behind it, S -> M S + c: equations (M1) and (M5) of docs/math.md. c is the final state of the
 * shard from zeros, or from h0 where a sequence begins; M, of the same keys and gates, the final state from the identity without
 * values. The first rank and the last need no M; a shard in which a sequence begins has none. */
#include "split.h"
#include <stdlib.h>
#include <string.h>

static bool has_M(const gdn2_split *s) { return s->in && s->out && s->through; }

/* ---- Memory ---- */

static void *take_matrices(gdn2_split *s) {
  return gdn2_split_take(s, (size_t)(s->scan.heads * s->scan.K * s->scan.K) * gdn2_number_bytes(s->scan.dtype));
}

/* One rank needs nothing, and two no M: the first knows its state, and so does the second when it has got it. */
static void take_scan(gdn2_split *s) {
  gdn2_map *const maps[] = {&s->scan.own, &s->scan.before, &s->scan.sent, &s->scan.received};
  if (s->group.ranks == 1) return;
  for (int i = 0; i < 4; i++) maps[i]->c = gdn2_split_take(s, gdn2_block_bytes(&s->states));
  if (s->group.ranks == 2) return;
  for (int i = 1; i < 4; i++) maps[i]->M = take_matrices(s);
  s->scan.own.left = take_matrices(s);
  s->scan.before.left = take_matrices(s);
}

/* The identity, as a state with strides 0, and a row of values without any. */
static void take_constants(gdn2_split *s) {
  const size_t K = (size_t)s->scan.K, unit = gdn2_number_bytes(s->scan.dtype);
  char *identity = gdn2_split_take(s, K * K * unit), *zeros = gdn2_split_take(s, K * unit);
  if (s->no_memory) return;
  memset(identity, 0, K * K * unit);
  memset(zeros, 0, K * unit);
  for (size_t i = 0; i < K; i++)
    if (s->scan.dtype == GDN2_F64)
      ((double *)(void *)identity)[i * K + i] = 1;
    else
      ((float *)(void *)identity)[i * K + i] = 1;
  s->identity = identity;
  s->zeros = zeros;
}

/* ---- The calls ---- */

/* Of all sequences where their states go through; else of the last one, which alone goes on. */
static gdn2_problem summarised(const gdn2_split *s) {
  gdn2_problem p = s->through ? s->problem : gdn2_problem_sequence(&s->problem, s->N - 1);
  if (has_M(s)) p.h0 = (gdn2_input){.data = NULL};
  return p;
}

static gdn2_forward_args call(const gdn2_split *s, gdn2_problem p, void *h_final) {
  return (gdn2_forward_args){.struct_size = sizeof(gdn2_forward_args),
                             .problem = p,
                             .h_final = {.data = h_final, .dtype = s->states.dtype},
                             .exec = s->exec};
}

static gdn2_problem without_values(const gdn2_split *s, gdn2_problem p) {
  p.V = p.K;
  p.v = (gdn2_input){.data = s->zeros, .dtype = s->states.dtype, .stride = {0, 0, 0, 1}};
  p.w = (gdn2_input){.data = NULL};
  p.write = GDN2_GATE_GIVEN;
  p.h0 = (gdn2_input){.data = s->identity, .dtype = s->states.dtype, .stride = {0, 0, p.K, 1}};
  return p;
}

void gdn2_split_prepare(gdn2_split *s, const gdn2_mpi_shard *shard) {
  const int64_t *n = s->states.shape;
  const bool scan = s->method == GDN2_MPI_SCAN;
  s->scan = (gdn2_scan){.group = &s->group, .heads = n[0] * n[1], .K = n[2], .V = n[3], .dtype = s->states.dtype};
  if (scan) take_scan(s);
  if (scan && has_M(s)) take_constants(s);
  const size_t bytes = gdn2_block_bytes(&s->states);
  s->arrived = shard->kept ? shard->kept : s->in ? gdn2_split_take(s, bytes) : NULL;
  s->M = shard->kept ? (char *)shard->kept + bytes : scan && has_M(s) ? take_matrices(s) : NULL;
  if (s->no_memory || s->group.ranks == 1) return;
  if (s->out) s->c_call = call(s, summarised(s), s->scan.own.c);
  if (!scan) return;
  if (has_M(s)) s->M_call = call(s, without_values(s, summarised(s)), s->M);
  s->scan.exec = s->exec;
  const gdn2_forward_args products[] = {
      gdn2_scan_product(&s->scan, s->scan.before.c, s->scan.before.c, s->scan.K, NULL, s->scan.sent.c),
      gdn2_scan_product(&s->scan, s->scan.before.c, s->scan.before.c, s->scan.V, s->scan.own.c, s->scan.sent.c)};
  for (int i = 0; i < 2; i++) gdn2_split_reserve_forward(s, products + i);
  gdn2_split_reserve_forward(s, &s->c_call);
  gdn2_split_reserve_forward(s, &s->M_call);
}

void *gdn2_split_take_all(gdn2_split *s, bool needed) {
  gdn2_block all = s->states;
  all.shape[0] = s->N;
  return needed && s->N > s->states.shape[0] ? gdn2_split_take(s, gdn2_block_bytes(&all)) : NULL;
}

/* ---- The scan ---- */

gdn2_status gdn2_split_scan(gdn2_split *s) {
  if (has_M(s)) {
    s->scan.own.M = s->M;
    gdn2_scan_transpose(&s->scan, s->M, s->scan.own.left);
  }
  const gdn2_status status = gdn2_scan_run(&s->scan);
  if (status == GDN2_OK && s->in) memcpy(s->arrived, s->scan.before.c, gdn2_block_bytes(&s->states));
  return status;
}

gdn2_problem gdn2_split_arrived(const gdn2_split *s, void *all) {
  gdn2_problem p = s->problem;
  if (!s->in) return p;
  void *h0 = s->arrived;
  if (all) {
    gdn2_block every = s->states;
    every.shape[0] = s->N;
    gdn2_block_get(&every, &p.h0, 0, all);
    memcpy(all, s->arrived, gdn2_block_bytes(&s->states));
    h0 = all;
  }
  p.h0 = (gdn2_input){.data = h0, .dtype = s->states.dtype};
  return p;
}
