/* bench_measure.c - one case: the peak of the machine and the op in turns, so that both see the same clock rate and the same
 * neighbours; then the median of each. */
#include <stdlib.h>

#include "cli.h"
#include "bench.h"
#include "copy.h"
#include "peak.h"

enum { MOST_SAMPLES = 4096 };
/* A sample is as many runs as take this long: the clock and the switch from the peak loop then cost nothing. */
#define SAMPLE_SECONDS 2e-3
#define WARM_SECONDS 0.1

/* Floating-point operations for one token and head, in units of K V: what the mathematics needs, whatever the code does (the
 * backward with its states made anew from checkpoints). One number for all rules, so that fractions compare times. */
static double useful(bench_op op) {
  if (bench_is_layer(op)) return 0; /* bound by memory */
  if (op == FORWARD || op == DECODE || op == SEED_FORWARD) return 6;
  return op == BACKWARD || op == SEED_BACKWARD ? 16 : 22;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Seconds of one run, the mean of `runs` in a row. */
static int timed(bench_tensors *t, const bench_case *c, int runs, double *seconds) {
  double start = cli_now();
  int code = DONE;
  for (int i = 0; i < runs && !code; i++) code = bench_run(t, c);
  *seconds = (cli_now() - start) / runs;
  return code;
}

/* Pages are there, threads are started, clocks are up; *seconds of the last of the runs. */
static int warm_up(bench_tensors *t, const bench_case *c, double *seconds) {
  double start = cli_now();
  int code = DONE;
  /* The seed's backward needs what its forward leaves. */
  bench_case before = *c;
  before.op = SEED_FORWARD;
  if (c->op == SEED_BACKWARD) code = bench_run(t, &before);
  do {
    if (!code) code = timed(t, c, 1, seconds);
  } while (!code && cli_now() - start < WARM_SECONDS);
  return code;
}

typedef struct samples {
  int count;
  double seconds[MOST_SAMPLES], peak[MOST_SAMPLES];
  double memory[MOST_SAMPLES]; /* conv, norm: seconds of a copy that moves as many bytes; decode: of an update in place */
} samples;

/* What the bar shows of this case after some of it is done: the rest comes at its end. */
static void advance(progress *bar, double *shown, double part) {
  if (part > 1) part = 1;
  progress_add(bar, part - *shown);
  *shown = part;
}

static int take_samples(bench_tensors *t, const bench_case *c, const settings *s, progress *bar, samples *x) {
  double once, shown = 0;
  int code = warm_up(t, c, &once);
  if (code) return code;
  int runs = once < SAMPLE_SECONDS ? (int)(SAMPLE_SECONDS / (once + 1e-9)) + 1 : 1;
  peak p = peak_start(c->isa, c->threads);
  copy memory = {.from = NULL};
  bandwidth states = {.x = NULL};
  if (bench_is_layer(c->op)) code = copy_start(&memory, c->threads, bench_layer_bytes(c));
  if (c->op == DECODE) code = bandwidth_start(&states, c->isa, c->threads, bench_state_bytes(c));
  double start = cli_now(), elapsed = 0;
  while (!code && x->count < MOST_SAMPLES && (x->count < s->repeats || elapsed < s->min_time)) {
    x->peak[x->count] = peak_gflops(&p);
    if (memory.from) x->memory[x->count] = copy_seconds(&memory, runs);
    if (states.x) x->memory[x->count] = bandwidth_seconds(&states, runs);
    code = timed(t, c, runs, &x->seconds[x->count++]);
    elapsed = cli_now() - start;
    double by_time = elapsed / (s->min_time + 1e-9), by_count = (double)x->count / s->repeats;
    advance(bar, &shown, by_time < by_count ? by_time : by_count);
  }
  copy_end(&memory);
  bandwidth_end(&states);
  if (!code) code = bench_tensors_check(t, c);
  advance(bar, &shown, 1);
  return code;
}

static bench_result result_of(const bench_case *c, samples *x) {
  const sizes *n = &c->n;
  bench_result r = {.c = *c, .samples = x->count};
  double seconds = median(x->seconds, x->count);
  r.ms = 1e3 * seconds;
  r.tok_heads = (double)c->layers * (double)n->B * (double)n->T * (double)c->HV / seconds;
  r.gflops = 1e-9 * useful(c->op) * (double)n->K * (double)n->V * r.tok_heads;
  r.peak = median(x->peak, x->count);
  r.fraction = r.gflops / (r.peak * c->threads);
  if (!bench_is_layer(c->op) && c->op != DECODE) return r;
  r.gbs = 1e-9 * (c->op == DECODE ? 2 * (double)bench_state_bytes(c) : (double)bench_layer_bytes(c)) / seconds;
  r.of_memory = median(x->memory, x->count) / seconds;
  return r;
}

/* A few runs more, apart from the samples: taking the times of stages costs some time too. */
static int take_stages(bench_tensors *t, const bench_case *c, bench_result *r) {
  enum { RUNS = 3 };
  double seconds;
  gdn2_profile profile = {{0}};
  t->profile = &profile;
  int code = timed(t, c, RUNS, &seconds);
  t->profile = NULL;
  for (int i = 0; i < GDN2_STAGES; i++) r->stage_ms[i] = 1e-6 * (double)profile.nanoseconds[i] / (double)RUNS;
  return code;
}

int bench_measure(const bench_case *c, const settings *s, progress *bar, bench_result *r) {
  bench_tensors t;
  samples *x = calloc(1, sizeof *x);
  if (!x) return cli_failed("not enough memory");
  int code = bench_tensors_make(&t, c);
  if (!code) code = take_samples(&t, c, s, bar, x);
  if (!code) *r = result_of(c, x);
  if (!code && s->stages) code = take_stages(&t, c, r);
  bench_tensors_free(&t);
  free(x);
  return code;
}
