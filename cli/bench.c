/* bench.c - gdn2 bench: how fast, and which part of the machine's peak. */
#include <stdlib.h>

#include "cli.h"
#include "bench.h"

static int check_use(const bench_cases *cases, const settings *s) {
  io_error error;
  if (s->json && s->csv) return cli_wrong_use("--json and --csv: one of them");
  if (s->list && (s->json || s->csv)) return cli_wrong_use("--list is a table; it takes neither --json nor --csv");
  if (s->csv && s->stages) return cli_wrong_use("--csv has no columns for --stages; use --json, or the table");
  if (!s->plot) return DONE;
  if (!bench_plot_possible(cases))
    return cli_wrong_use("--plot: no case comes with two lengths or two numbers of threads, for example --T 256,1024,4096");
  return io_check_writable(s->plot, &error) ? cli_wrong_use("--plot: %s", error.text) : DONE;
}

static int measure_all(const bench_cases *cases, const settings *s, bench_result *results) {
  progress bar = progress_start(s->progress, "bench", cases->count);
  int code = DONE;
  for (int i = 0; i < cases->count && !code; i++) code = bench_measure(&cases->at[i], s, &bar, &results[i]);
  progress_end(&bar);
  return code;
}

static int report(const bench_result *results, int count, const settings *s) {
  if (s->json)
    bench_print_json(results, count, s->stages);
  else if (s->csv)
    bench_print_csv(results, count);
  else
    bench_print_table(results, count);
  if (s->stages && !s->json) bench_print_stages(results, count);
  return s->plot ? bench_plot_write(s->plot, results, count) : DONE;
}

static int bench(bench_cases *cases, bench_result *results, const settings *s) {
  int code = bench_cases_list(cases, s);
  if (!code) code = check_use(cases, s);
  if (!code && s->list) {
    bench_print_cases(cases);
    return DONE;
  }
  if (!code) code = measure_all(cases, s, results);
  return code ? code : report(results, cases->count, s);
}

int verb_bench(const settings *s) {
  bench_cases *cases = calloc(1, sizeof *cases);
  bench_result *results = calloc(BENCH_MOST_CASES, sizeof *results);
  int code = cases && results ? bench(cases, results, s) : cli_failed("not enough memory");
  free(cases);
  free(results);
  return code;
}
