/* A rank runs its call on one group of heads after the other. While it is at one, the rank before is at the next, and the rank
 * behind at the last: nothing is computed twice, and the states are those of one call on the whole sequence. */
#include "heads.h"
#include <string.h>

/* ---- Some heads of a call ---- */

bool gdn2_heads_possible(const gdn2_problem *p) { return p->map == GDN2_HEADS_GROUPED || gdn2_problem_heads(p) == p->H; }

/* What is cut from the tensors of a problem. */
typedef struct slice {
  const gdn2_problem *p;
  int64_t first, each, HV, N; /* each: value heads of a key head */
} slice;

static slice slice_of(const gdn2_problem *p, int64_t first) {
  const int64_t HV = gdn2_problem_heads(p);
  return (slice){p, first, p->H ? HV / p->H : 1, HV, p->cu_seqlens ? p->N : p->B};
}

static gdn2_input rows_of_keys(const slice *s, gdn2_input x) {
  const gdn2_block b = {.shape = {s->p->B, s->p->T, s->p->H, s->p->K}};
  return gdn2_block_from(&b, x, 2, s->first);
}

static gdn2_input rows_of_values(const slice *s, gdn2_input x, int64_t channels) {
  const gdn2_block b = {.shape = {s->p->B, s->p->T, s->HV, channels}};
  return gdn2_block_from(&b, x, 2, s->first * s->each);
}

static gdn2_input gate(const slice *s, gdn2_input x, int of_keys) {
  return of_keys ? rows_of_keys(s, x) : rows_of_values(s, x, s->p->K);
}

static gdn2_input parameter(const slice *s, gdn2_input x, int64_t channels) {
  const gdn2_block b = {.shape = {1, 1, s->p->g_key_heads ? s->p->H : s->HV, channels}};
  return gdn2_block_from(&b, x, 2, s->p->g_key_heads ? s->first : s->first * s->each);
}

static gdn2_input states(const slice *s, gdn2_input x) {
  const gdn2_block b = {.shape = {s->N, s->HV, s->p->K, s->p->V}};
  return gdn2_block_from(&b, x, 1, s->first * s->each);
}

/* An output is cut as an input is. */
static void cut(gdn2_output *x, gdn2_input as) { *x = gdn2_cut_as(*x, as); }

/* [row, moment, head, key, value]. */
static void cut_snapshots(const slice *s, gdn2_states *x, int64_t every) {
  const int64_t K = s->p->K, V = s->p->V, moments = every ? s->p->T / every : 0;
  const int64_t contiguous[5] = {moments * s->HV * K * V, s->HV * K * V, K * V, V, 1};
  if (!x->data) return;
  if (!x->stride[0] && !x->stride[1] && !x->stride[2] && !x->stride[3] && !x->stride[4])
    memcpy(x->stride, contiguous, sizeof contiguous);
  x->data = (char *)x->data + (int64_t)gdn2_number_bytes(x->dtype) * s->first * s->each * x->stride[2];
}

static gdn2_problem cut_problem(const slice *s, int64_t last) {
  gdn2_problem p = *s->p;
  p.q = rows_of_keys(s, p.q);
  p.k = rows_of_keys(s, p.k);
  p.v = rows_of_values(s, p.v, p.V);
  p.g = gate(s, p.g, p.g_key_heads);
  p.b = gate(s, p.b, p.b_key_heads);
  p.w = rows_of_values(s, p.w, p.V);
  p.h0 = states(s, p.h0);
  p.A_log = parameter(s, p.A_log, 1);
  p.dt_bias = parameter(s, p.dt_bias, p.K);
  p.H = last - s->first;
  p.HV = p.H * s->each;
  return p;
}

gdn2_forward_args gdn2_heads_forward(const gdn2_forward_args *args, int64_t first, int64_t last) {
  const slice s = slice_of(&args->problem, first);
  gdn2_forward_args c = *args;
  if (!c.struct_size) return c;
  cut(&c.o, rows_of_values(&s, gdn2_as_input(c.o), s.p->V));
  cut(&c.residual, rows_of_values(&s, gdn2_as_input(c.residual), s.p->V));
  cut(&c.h_final, states(&s, gdn2_as_input(c.h_final)));
  cut_snapshots(&s, &c.snapshots, c.snapshot_every);
  c.problem = cut_problem(&s, last);
  return c;
}

gdn2_backward_args gdn2_heads_backward(const gdn2_backward_args *args, int64_t first, int64_t last) {
  const slice s = slice_of(&args->problem, first);
  gdn2_backward_args c = *args;
  if (!c.struct_size) return c;
  c.d_o = rows_of_values(&s, c.d_o, s.p->V);
  c.residual = rows_of_values(&s, c.residual, s.p->V);
  c.dh_final = states(&s, c.dh_final);
  cut(&c.dq, rows_of_keys(&s, gdn2_as_input(c.dq)));
  cut(&c.dk, rows_of_keys(&s, gdn2_as_input(c.dk)));
  cut(&c.dv, rows_of_values(&s, gdn2_as_input(c.dv), s.p->V));
  cut(&c.dg, gate(&s, gdn2_as_input(c.dg), s.p->g_key_heads));
  cut(&c.db, gate(&s, gdn2_as_input(c.db), s.p->b_key_heads));
  cut(&c.dw, rows_of_values(&s, gdn2_as_input(c.dw), s.p->V));
  cut(&c.dh0, states(&s, gdn2_as_input(c.dh0)));
  cut(&c.dA_log, parameter(&s, gdn2_as_input(c.dA_log), 1));
  cut(&c.ddt_bias, parameter(&s, gdn2_as_input(c.ddt_bias), s.p->K));
  cut_snapshots(&s, &c.snapshots, c.snapshot_every);
  c.problem = cut_problem(&s, last);
  return c;
}
