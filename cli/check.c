/* check.c - gdn2 check: the same tensors through the engine and through the float64 oracle, and a table of the differences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "oracle.h"

static const double BOUND_OUTPUT = 1e-6, BOUND_GRADIENT = 2e-6, BOUND_F64 = 1e-13; /* relative L2 error */

/* ---- Output gradients that nobody gave ------------------------------------------------------------------------------------ */

/* splitmix64: a fixed sequence of numbers in (-1, 1). */
static double random_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (double)((z ^ z >> 31) >> 40) * 0x1p-23 - 1.0 + 0x1p-24;
}

static void *random_tensor(const inputs *x, const char *axes, uint64_t seed) {
  int64_t count = sizes_count(&x->n, axes);
  void *data = malloc((size_t)count * inputs_element(x) + 1);
  for (int64_t i = 0; data && i < count; i++)
    if (x->f64)
      ((double *)data)[i] = random_next(&seed);
    else
      ((float *)data)[i] = (float)random_next(&seed);
  return data;
}

static int make_gradients(inputs *x) {
  if (x->data[IN_DO] || x->data[IN_DH_FINAL]) return DONE;
  x->data[IN_DO] = random_tensor(x, "BTJV", 1);
  x->data[IN_DH_FINAL] = random_tensor(x, "NJKV", 2);
  if (!x->data[IN_DO] || !x->data[IN_DH_FINAL]) return cli_failed("not enough memory for the gradients of the outputs");
  printf("no do or dh_final is given: both are random numbers in (-1, 1) from fixed seeds\n");
  return DONE;
}

/* ---- The table ------------------------------------------------------------------------------------------------------------ */

/* Tokens of the longest sequence. */
static int64_t longest(const inputs *x) {
  const int64_t *cu = x->data[IN_CU_SEQLENS];
  int64_t most = cu ? 0 : x->n.T;
  for (int64_t i = 0; cu && i < x->n.N; i++)
    if (cu[i + 1] - cu[i] > most) most = cu[i + 1] - cu[i];
  return most;
}

/* Outputs that are exactly zero by their equations. */
static int zero_is_right(const inputs *x, int id) {
  int64_t T = longest(x);
  if (T == 0 && id == OUT_H_FINAL) return !x->data[IN_H0];
  if (T == 0) return id != OUT_DH0 || !x->data[IN_DH_FINAL];
  if (id == OUT_DQ) return !x->data[IN_DO];
  int of_decay = id == OUT_DG || id == OUT_DA_LOG || id == OUT_DDT_BIAS;
  return (of_decay || id == OUT_DB) && T == 1 && !x->data[IN_H0]; /* there is no state to decay or to erase */
}

static double relative_error(const comparison *c) {
  if (c->nonfinite) return NAN;
  return c->error2 == 0 ? 0 : sqrt(c->error2) / sqrt(c->reference2);
}

static double bound_of(const inputs *x, int id) {
  return x->f64 ? BOUND_F64 : id == OUT_O || id == OUT_H_FINAL ? BOUND_OUTPUT : BOUND_GRADIENT;
}

/* What is wrong with a comparison, or NULL. */
static const char *fault(const inputs *x, int id, const comparison *c) {
  if (c->nonfinite) return "not finite";
  if (c->count && c->reference2 == 0 && !zero_is_right(x, id)) return "reference is all zeros";
  return relative_error(c) <= bound_of(x, id) ? NULL : "above the bound";
}

static void print_index(const inputs *x, int id, int64_t flat) {
  int64_t shape[MAX_AXES], index[MAX_AXES];
  int rank = sizes_shape(&x->n, outputs_axes(x, (output_id)id), shape);
  for (int i = rank - 1; i >= 0; flat /= shape[i--]) index[i] = flat % shape[i];
  for (int i = 0; i < rank; i++) printf(i ? ", %lld" : "[%lld", (long long)index[i]);
  printf("]");
}

static int print_row(const inputs *x, int id, const comparison *c) {
  const char *what = fault(x, id, c), *good = !c->count            ? "empty"
                                              : c->reference2 == 0 ? "yes (exactly zero, as it must be)"
                                                                   : "yes";
  printf("%-8s  %13.4e  %14.2e  %13.2e  %7.0e  %s\n", outputs_name((output_id)id), sqrt(c->reference2), relative_error(c),
         c->worst_error, bound_of(x, id), what ? what : good);
  return what != NULL;
}

static void print_worst(const inputs *x, int id, const comparison *c) {
  printf("%s: worst element ", outputs_name((output_id)id));
  print_index(x, id, c->worst);
  printf(": engine %.9g, reference %.9g", c->worst_engine, c->worst_reference);
  if (c->nonfinite) printf("; %lld elements are not finite in one or both", (long long)c->nonfinite);
  printf("\n");
}

/* Prints the table; returns how many tensors fail. */
static int print_table(const engine *e, const comparison *c) {
  int failures = 0;
  printf("%-8s  %13s  %14s  %13s  %7s  %s\n", "tensor", "|reference|", "relative error", "max abs error", "bound", "ok");
  for (int id = 0; id < OUTPUTS; id++)
    if (e->y->data[id]) failures += print_row(e->x, id, &c[id]);
  for (int id = 0; id < OUTPUTS; id++)
    if (e->y->data[id] && c[id].count && fault(e->x, id, &c[id])) print_worst(e->x, id, &c[id]);
  return failures;
}

/* ---- The verb ------------------------------------------------------------------------------------------------------------- */

static int measure(engine *e, int gradients, oracle_times *t) {
  progress bar = progress_start(e->s->progress, "engine", engine_work(e));
  double start = cli_now();
  int code = engine_forward(e, &bar);
  double middle = cli_now();
  if (!code && gradients) code = engine_backward(e, &bar);
  *t = (oracle_times){middle - start, cli_now() - middle};
  progress_end(&bar);
  return code;
}

static void print_times(const engine *e, int gradients, const oracle_times *engine_time, const oracle_times *oracle_time) {
  printf("engine (isa %s, threads %d): forward %.3f ms", gdn2_isa_name(e->isa), e->threads, 1e3 * engine_time->forward);
  if (gradients) printf(", backward %.3f ms", 1e3 * engine_time->backward);
  printf("\nreference (float64, token by token): forward %.3f ms", 1e3 * oracle_time->forward);
  if (gradients) printf(", backward %.3f ms", 1e3 * oracle_time->backward);
  printf("\n");
}

static void print_head(const engine *e) {
  const sizes *n = &e->x->n;
  printf("rule %s, B=%lld T=%lld H=%lld HV=%lld K=%lld V=%lld, ", e->x->rule->name, (long long)n->B, (long long)n->T,
         (long long)n->H, (long long)n->HV, (long long)n->K, (long long)n->V);
  if (e->s->varlen) printf("%lld sequences, ", (long long)n->N);
  printf("scale %.6g%s%s\n", e->scale, e->x->data[IN_H0] ? ", with h0" : "", e->x->f64 ? ", float64" : "");
  printf("reference: %s\n", oracle_is_library(e->x, e->s) ? "the library's float64 path, for the options of this call"
                                                          : "the float64 oracle, which shares no code with the library");
  fflush(stdout);
}

static int compare_and_print(engine *e, int gradients) {
  comparison c[OUTPUTS];
  oracle_times engine_time, oracle_time;
  print_head(e);
  int code = measure(e, gradients, &engine_time);
  if (!code) code = oracle_compare(e, c, &oracle_time);
  if (code) return code;
  int failures = print_table(e, c);
  print_times(e, gradients, &engine_time, &oracle_time);
  return failures ? cli_failed("%d of the tensors above fail", failures) : DONE;
}

static int check(inputs *x, outputs *y, const settings *s) {
  engine e;
  int code = inputs_open(x, s, 1);
  if (!code && x->f64 && oracle_is_library(x, s)) {
    x->f64 = 0;
    cli_note("the inputs are float64 and are rounded to float32: the float64 path is what the engine is compared with");
  }
  int gradients = s->backward || x->source[IN_DO].file || x->source[IN_DH_FINAL].file;
  if (!code) code = engine_start(&e, x, y, s);
  if (!code) code = inputs_read(x);
  if (!code && gradients) code = make_gradients(x);
  if (!code) code = outputs_allocate(y, x, gradients);
  return code ? code : compare_and_print(&e, gradients);
}

int verb_check(const settings *s) {
  inputs x = {0};
  outputs y = {{NULL}};
  int code = check(&x, &y, s);
  inputs_free(&x);
  outputs_free(&y);
  return code;
}
