/* run.c - gdn2 run: tensors from files -> outputs, final state, gradients. */
#include <stdio.h>

#include "cli.h"
#include "engine.h"

static const char *const seed_options[] = {"bt", "bc", "mb", "clip", "wy-eps"};

static const char *const raw_options[] = {"decay", "lower-bound", "erase", "write", "qk-l2norm", "map", "varlen"};

static int check_use(const settings *s) {
  int seed = s->semantics == SEMANTICS_SEED;
  for (size_t i = 0; i < sizeof seed_options / sizeof *seed_options; i++)
    if (!seed && options_given(s, seed_options[i])) return cli_wrong_use("--%s needs --semantics seed", seed_options[i]);
  if (seed && s->rule) return cli_wrong_use("--semantics seed has the rule gdn2 only, not %s", rules[s->rule].name);
  for (size_t i = 0; i < sizeof raw_options / sizeof *raw_options; i++)
    if (seed && options_given(s, raw_options[i])) return cli_wrong_use("--semantics seed does not take --%s", raw_options[i]);
  return DONE;
}

static int check_gradients(const inputs *x, const settings *s) {
  if (!s->backward || x->source[IN_DO].file || x->source[IN_DH_FINAL].file) return DONE;
  return cli_wrong_use("--backward needs the gradient of an output: --do, --dh-final, or the keys do, dh_final in --in");
}

typedef struct times {
  double forward, backward;
} times;

static int compute(engine *e, times *t) {
  int seed = e->s->semantics == SEMANTICS_SEED;
  progress bar = progress_start(e->s->progress, "run", engine_work(e));
  double start = cli_now();
  int code = seed ? seed_forward(e, &bar) : engine_forward(e, &bar);
  double middle = cli_now();
  if (!code && e->s->backward) code = seed ? seed_backward(e, &bar) : engine_backward(e, &bar);
  *t = (times){middle - start, cli_now() - middle};
  progress_end(&bar);
  return code;
}

static void print_summary(const engine *e, const times *t) {
  const sizes *n = &e->x->n;
  const settings *s = e->s;
  printf("rule %s, %s, B=%lld T=%lld H=%lld HV=%lld K=%lld V=%lld, scale %.6g%s\n", e->x->rule->name,
         s->semantics ? "seed" : "exact", (long long)n->B, (long long)n->T, (long long)n->H, (long long)n->HV, (long long)n->K,
         (long long)n->V, e->scale, e->x->f64 ? ", float64" : "");
  if (s->semantics) printf("bt %d, bc %d, mb %d, clip %g, wy_eps %g\n", s->bt, s->bc, s->mb, s->clip, s->wy_eps);
  printf("isa %s, threads %d: forward %.3f ms", gdn2_isa_name(e->isa), e->threads, 1e3 * t->forward);
  if (s->backward) printf(", backward %.3f ms", 1e3 * t->backward);
  printf("\n%s:", s->out);
  for (int id = 0; id < OUTPUTS; id++)
    if (e->y->data[id]) printf(" %s", outputs_name((output_id)id));
  printf("\n");
}

static int run(inputs *x, outputs *y, const settings *s) {
  engine e;
  times t;
  int code = check_use(s);
  if (!code) code = inputs_open(x, s, s->backward);
  if (!code) code = check_gradients(x, s);
  if (!code) code = engine_start(&e, x, y, s);
  if (!code && s->semantics) code = seed_check(&e);
  if (!code) code = outputs_allocate(y, x, s->backward);
  if (!code) code = outputs_check_destination(y, s);
  if (!code) code = inputs_read(x);
  if (!code) code = compute(&e, &t);
  if (!code) code = outputs_write(y, x, s);
  if (!code) print_summary(&e, &t);
  return code;
}

int verb_run(const settings *s) {
  inputs x = {0};
  outputs y = {{NULL}};
  int code = run(&x, &y, s);
  inputs_free(&x);
  outputs_free(&y);
  return code;
}
