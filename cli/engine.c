#include "engine.h"

#include <math.h>

#include "cli.h"

int engine_code(gdn2_status status) {
  if (status == GDN2_OK) return DONE;
  return status == GDN2_ERR_MEMORY ? cli_failed("%s", gdn2_last_error()) : cli_wrong_use("%s", gdn2_last_error());
}

int engine_start(engine *e, const inputs *x, outputs *y, const settings *s) {
  *e = (engine){.x = x, .y = y, .s = s, .scale = options_given(s, "scale") ? s->scale : 1 / sqrt((double)x->n.K)};
  e->threads = gdn2_threads(s->threads);
  return engine_code(gdn2_isa_choose((gdn2_isa)s->isa, &e->isa));
}

double engine_work(const engine *e) {
  return (double)e->x->n.B * (double)e->x->n.H * (e->y->data[OUT_DQ] ? 1 + BACKWARD_WEIGHT : 1);
}

/* ---- Views of a slice ----------------------------------------------------------------------------------------------------- */

/* Where a slice of a contiguous tensor begins, and the strides of its axes. */
typedef struct view {
  int64_t start, stride[4];
} view;

/* A slice has part->H of n->H key heads and as great a part of the value heads behind them. */
static view view_of(const sizes *n, const char *axes, const slice *part) {
  int64_t shape[MAX_AXES], head = n->H ? part->h : 0, all = n->H ? n->H : 1;
  int rank = sizes_shape(n, axes, shape);
  if (axes[0] == 'G') { /* a parameter, [G] or [G][K] */
    int64_t row = rank == 2 ? n->K : 1;
    return (view){head * n->G / all * row, {n->G * row, n->G * row, row, rank == 2 ? 1 : 0}};
  }
  if (axes[1] == 'J') { /* a state */
    int64_t state = n->K * n->V;
    return (view){(part->b * n->HV + head * n->HV / all) * state, {n->HV * state, state, n->V, 1}};
  }
  int64_t D = rank == 4 ? shape[3] : 1, row = shape[2] * D; /* rank 3: one number for all channels */
  return (view){part->b * n->T * row + head * shape[2] / all * D, {n->T * row, row, D, rank == 4 ? 1 : 0}};
}

static gdn2_dtype type_of(const engine *e) { return e->x->f64 ? GDN2_F64 : GDN2_F32; }

static gdn2_input input_of(const engine *e, input_id id, const slice *part) {
  const char *data = e->x->data[id];
  view v = view_of(&e->x->n, inputs_axes(e->x, id), part);
  if (!data) return (gdn2_input){0};
  return (gdn2_input){
      data + v.start * (int64_t)inputs_element(e->x), type_of(e), {v.stride[0], v.stride[1], v.stride[2], v.stride[3]}};
}

static gdn2_output output_of(const engine *e, output_id id, const slice *part) {
  char *data = e->y->data[id];
  if (!data) return (gdn2_output){0};
  view v = view_of(&e->x->n, outputs_axes(e->x, id), part);
  return (gdn2_output){
      data + v.start * (int64_t)inputs_element(e->x), type_of(e), {v.stride[0], v.stride[1], v.stride[2], v.stride[3]}};
}

/* What the library finishes. */
static void finish_of(const engine *e, const slice *part, gdn2_problem *p) {
  p->decay = (gdn2_decay)e->s->decay;
  p->A_log = input_of(e, IN_A_LOG, part);
  p->dt_bias = input_of(e, IN_DT_BIAS, part);
  p->lower_bound = e->s->lower_bound;
  p->erase = (gdn2_gate)e->s->erase;
  p->write = (gdn2_gate)e->s->write;
  p->qk_l2norm = e->s->qk_l2norm;
}

static gdn2_problem problem_of(const engine *e, const slice *part) {
  const sizes *n = &e->x->n;
  int beta = e->x->data[IN_BETA] != NULL;
  gdn2_problem p = {.B = part->B, .T = n->T, .H = part->H, .K = n->K, .V = n->V, .scale = &e->scale};
  p.q = input_of(e, IN_Q, part);
  p.k = input_of(e, IN_K, part);
  p.v = input_of(e, IN_V, part);
  p.g = input_of(e, IN_G, part);
  p.b = input_of(e, beta ? IN_BETA : IN_B, part);
  p.w = input_of(e, beta ? IN_BETA : IN_W, part);
  p.h0 = input_of(e, IN_H0, part);
  p.HV = n->H ? n->HV / n->H * part->H : 0;
  p.map = (gdn2_head_map)e->s->map;
  p.g_key_heads = n->G != n->HV;
  p.b_key_heads = n->E != n->HV;
  p.cu_seqlens = e->x->data[IN_CU_SEQLENS];
  p.cu_seqlens_type = GDN2_I64;
  p.N = p.cu_seqlens ? n->N : 0;
  finish_of(e, part, &p);
  return p;
}

static gdn2_exec exec_of(const engine *e) { return (gdn2_exec){.threads = e->s->threads, .isa = e->isa}; }

/* ---- The exact rule ------------------------------------------------------------------------------------------------------- */

static int forward_slice(void *context, const slice *part) {
  const engine *e = context;
  gdn2_forward_args args = {.struct_size = sizeof args, .problem = problem_of(e, part), .exec = exec_of(e)};
  args.o = output_of(e, OUT_O, part);
  args.h_final = output_of(e, OUT_H_FINAL, part);
  return engine_code(gdn2_forward(&args));
}

static int backward_slice(void *context, const slice *part) {
  const engine *e = context;
  gdn2_backward_args args = {.struct_size = sizeof args, .problem = problem_of(e, part), .exec = exec_of(e)};
  args.d_o = input_of(e, IN_DO, part);
  args.dh_final = input_of(e, IN_DH_FINAL, part);
  args.dq = output_of(e, OUT_DQ, part);
  args.dk = output_of(e, OUT_DK, part);
  args.dv = output_of(e, OUT_DV, part);
  args.dg = output_of(e, OUT_DG, part);
  args.db = output_of(e, OUT_DB, part);
  args.dw = output_of(e, OUT_DW, part);
  args.dh0 = output_of(e, OUT_DH0, part);
  args.dA_log = output_of(e, OUT_DA_LOG, part);
  args.ddt_bias = output_of(e, OUT_DDT_BIAS, part);
  return engine_code(gdn2_backward(&args));
}

/* Without a bar the work is one call; with it, as many heads at a time as there are threads. The bits are the same. One call also
 * where a slice is no part of the whole: the map tiled, and gradients by A_log and dt_bias, which are sums over the batch. */
static int64_t heads_at_a_time(const engine *e, const progress *bar) {
  int tiled = e->s->map && e->x->n.HV != e->x->n.H;
  return bar->on && !tiled && !e->s->decay ? e->threads : 0;
}

int engine_forward(engine *e, progress *bar) { return slices_run(&e->x->n, heads_at_a_time(e, bar), forward_slice, e, bar, 1); }

/* dbeta = db + dw */
static void add_betas(engine *e) {
  void *const *y = e->y->data;
  int64_t count = y[OUT_DBETA] ? sizes_count(&e->x->n, "BTJ") : 0;
  for (int64_t i = 0; i < count; i++)
    if (e->x->f64)
      ((double *)y[OUT_DBETA])[i] = ((double *)y[OUT_DB])[i] + ((double *)y[OUT_DW])[i];
    else
      ((float *)y[OUT_DBETA])[i] = ((float *)y[OUT_DB])[i] + ((float *)y[OUT_DW])[i];
}

int engine_backward(engine *e, progress *bar) {
  int code = slices_run(&e->x->n, heads_at_a_time(e, bar), backward_slice, e, bar, BACKWARD_WEIGHT);
  add_betas(e);
  return code;
}
