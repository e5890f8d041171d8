#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "ref.h"

/* A slice of tensors as the oracle wants them: contiguous float64 of one batch row, gates spread over their channels.
 * Sizes: [T][heads][K or V], states [heads][K][V]. */
typedef struct arrays {
  double *input[INPUTS];   /* IN_G, IN_B, IN_W are always there; IN_BETA never */
  double *output[OUTPUTS]; /* OUT_DBETA never */
} arrays;

typedef struct work {
  const engine *e;
  comparison *c;
  oracle_times *t;
} work;

/* The rows of a tensor in a slice: rows of `length` elements, [T][heads] of them for tokens or [heads] for states. */
typedef struct rows {
  int64_t steps, length;
} rows;

static rows rows_of(const sizes *n, const char *axes) {
  if (axes[1] == 'J') return (rows){1, n->K * n->V};
  return (rows){n->T, axes[3] == 'K' ? n->K : axes[3] == 'V' ? n->V : 1};
}

static int64_t row_start(const sizes *n, rows r, const slice *part, int64_t step, int64_t head) {
  return ((part->b * r.steps + step) * n->H + part->h + head) * r.length;
}

/* ---- Inputs --------------------------------------------------------------------------------------------------------------- */

/* data (NULL: `otherwise` everywhere) in the shape of `axes`, to an array whose rows have `length` elements. */
static double *gather(const inputs *x, const void *data, const char *axes, const slice *part, int64_t length, double otherwise) {
  const sizes *n = &x->n;
  rows r = rows_of(n, axes);
  double *out = malloc((size_t)(r.steps * part->H * length) * sizeof *out + 1), *to = out;
  if (!out) return NULL;
  for (int64_t t = 0; t < r.steps; t++)
    for (int64_t h = 0; h < part->H; h++, to += length) {
      int64_t from = row_start(n, r, part, t, h);
      for (int64_t i = 0; i < length; i++) to[i] = data ? inputs_number(x, data, from + (r.length == 1 ? 0 : i)) : otherwise;
    }
  return out;
}

static double *gather_input(const engine *e, input_id id, const char *wide, double otherwise, const slice *part) {
  const inputs *x = e->x;
  input_id source = (id == IN_B || id == IN_W) && x->data[IN_BETA] ? IN_BETA : id;
  return gather(x, x->data[source], inputs_axes(x, source), part, rows_of(&x->n, wide).length, otherwise);
}

static int gather_inputs(const engine *e, const slice *part, arrays *a) {
  static const struct {
    const char *wide;
    double otherwise; /* the neutral value of an absent gate */
    input_id id;
    int needed;
  } list[] = {{"BTHK", 0, IN_Q, 1},  {"BTHK", 0, IN_K, 1},  {"BTHV", 0, IN_V, 1},
              {"BTHK", 0, IN_G, 1},  {"BTHK", 0, IN_B, 1},  {"BTHV", 1, IN_W, 1},
              {"NJKV", 0, IN_H0, 0}, {"BTHV", 0, IN_DO, 0}, {"NJKV", 0, IN_DH_FINAL, 0}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i].needed && !e->x->data[list[i].id]) continue;
    a->input[list[i].id] = gather_input(e, list[i].id, list[i].wide, list[i].otherwise, part);
    if (!a->input[list[i].id]) return -1;
  }
  return 0;
}

static int allocate_outputs(const engine *e, const slice *part, arrays *a) {
  static const char *const wide[OUTPUTS] = {"BTHV", "NJKV", "BTHK", "BTHK", "BTHV", "BTHK", "BTHK", "BTHV", NULL, "NJKV"};
  for (int id = 0; id < OUTPUTS; id++) {
    if (!e->y->data[id] || !wide[id]) continue;
    rows r = rows_of(&e->x->n, wide[id]);
    a->output[id] = malloc((size_t)(r.steps * part->H * r.length) * sizeof(double) + 1);
    if (!a->output[id]) return -1;
  }
  return 0;
}

static void free_arrays(arrays *a) {
  for (int id = 0; id < INPUTS; id++) free(a->input[id]);
  for (int id = 0; id < OUTPUTS; id++) free(a->output[id]);
}

/* ---- Comparison ----------------------------------------------------------------------------------------------------------- */

void comparison_add(comparison *c, int64_t index, double computed, double reference) {
  c->count++;
  if (!isfinite(computed) || !isfinite(reference)) {
    /* The first of them is the worst of all. */
    if (!c->nonfinite++) c->worst = index, c->worst_engine = computed, c->worst_reference = reference, c->worst_error = INFINITY;
    return;
  }
  double error = fabs(computed - reference);
  c->reference2 += reference * reference;
  c->error2 += error * error;
  if (error > c->worst_error)
    c->worst = index, c->worst_engine = computed, c->worst_reference = reference, c->worst_error = error;
}

static double sum(const double *x, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += x[i];
  return s;
}

/* The oracle's element i of a row. A gate per head has one element: the sum over the channels, for beta of both its gates. */
static double reference_at(const arrays *a, const sizes *n, int id, int per_head, int64_t row, int64_t i) {
  if (id == OUT_DBETA) return sum(a->output[OUT_DB] + row * n->K, n->K) + sum(a->output[OUT_DW] + row * n->V, n->V);
  int64_t length = id == OUT_DW ? n->V : n->K;
  return per_head ? sum(a->output[id] + row * length, length) : a->output[id][i];
}

static void compare_output(const work *w, const arrays *a, int id, const slice *part) {
  const sizes *n = &w->e->x->n;
  const void *data = w->e->y->data[id];
  const char *axes = outputs_axes(w->e->x, (output_id)id);
  rows r = rows_of(n, axes);
  for (int64_t t = 0; t < r.steps; t++)
    for (int64_t h = 0; h < part->H; h++) {
      int64_t start = row_start(n, r, part, t, h), row = t * part->H + h;
      for (int64_t i = 0; i < r.length; i++)
        comparison_add(&w->c[id], start + i, inputs_number(w->e->x, data, start + i),
                       reference_at(a, n, id, !axes[3], row, row * r.length + i));
    }
}

/* ---- One slice ------------------------------------------------------------------------------------------------------------ */

static int compute(const work *w, const slice *part, arrays *a) {
  const sizes *n = &w->e->x->n;
  ref_problem p = {.B = 1, .T = n->T, .H = part->H, .K = n->K, .V = n->V, .h0 = a->input[IN_H0], .scale = w->e->scale};
  p.q = a->input[IN_Q], p.k = a->input[IN_K], p.v = a->input[IN_V];
  p.g = a->input[IN_G], p.b = a->input[IN_B], p.w = a->input[IN_W];
  double start = cli_now();
  if (ref_forward(&p, a->output[OUT_O], a->output[OUT_H_FINAL])) return -1;
  double middle = cli_now();
  w->t->forward += middle - start;
  if (!w->e->y->data[OUT_DQ]) return 0;
  ref_gradients grad = {.dq = a->output[OUT_DQ],
                        .dk = a->output[OUT_DK],
                        .dv = a->output[OUT_DV],
                        .dg = a->output[OUT_DG],
                        .db = a->output[OUT_DB],
                        .dw = a->output[OUT_DW],
                        .dh0 = a->output[OUT_DH0]};
  int failed = ref_backward(&p, a->input[IN_DO], a->input[IN_DH_FINAL], &grad);
  w->t->backward += cli_now() - middle;
  return failed;
}

static int compare_slice(void *context, const slice *part) {
  const work *w = context;
  arrays a = {{NULL}, {NULL}};
  int failed = gather_inputs(w->e, part, &a) || allocate_outputs(w->e, part, &a) || compute(w, part, &a);
  for (int id = 0; id < OUTPUTS && !failed; id++)
    if (w->e->y->data[id]) compare_output(w, &a, id, part);
  free_arrays(&a);
  return failed ? cli_failed("not enough memory for the oracle") : DONE;
}

static int compare_with_ref(const engine *e, comparison *c, oracle_times *t) {
  work w = {e, c, t};
  progress bar = progress_start(e->s->progress, "oracle", (double)e->x->n.B * (double)e->x->n.H);
  int code = slices_run(&e->x->n, e->threads, compare_slice, &w, &bar, 1);
  progress_end(&bar);
  return code;
}

/* ---- Which oracle --------------------------------------------------------------------------------------------------------- */

int oracle_is_library(const inputs *x, const settings *s) {
  return x->n.HV != x->n.H || s->varlen || s->decay || s->erase || s->write || s->qk_l2norm;
}

int oracle_compare(const engine *e, comparison *c, oracle_times *t) {
  for (int id = 0; id < OUTPUTS; id++) c[id] = (comparison){0};
  *t = (oracle_times){0, 0};
  return oracle_is_library(e->x, e->s) ? oracle_library_compare(e, c, t) : compare_with_ref(e, c, t);
}
