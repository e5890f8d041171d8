/* train_report.c - what gdn2 train tells: the line while it works, and the sums at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"
#include "gdn2.h"
#include "train.h"

static double bits(double nats) { return nats / log(2); }

static const char *unit(const train_run *run) { return run->trainer.settings.task == LM_TEXT ? "bits/byte" : "bits"; }

static double tokens_of_step(const train_run *run) {
  const lm_settings *s = &run->trainer.settings;
  return (double)(s->batch * s->length * s->accumulate);
}

void train_begin(train_run *run) {
  const int when = run->o->progress;
  run->on = when == PROGRESS_ON || (when == PROGRESS_AUTO && isatty(STDERR_FILENO));
  run->started = cli_now();
}

void train_count(train_run *run, const lm_record *record) {
  run->seconds += record->seconds;
  run->flop += lm_useful_flop(&run->trainer.settings, &run->trainer.model.params);
  run->loss = run->steps++ ? run->loss + (record->loss - run->loss) / 20 : record->loss;
}

static double tokens_per_second(const train_run *run) {
  return run->seconds > 0 ? tokens_of_step(run) * (double)run->steps / run->seconds : 0;
}

static void draw_line(train_run *run, const lm_record *record) {
  const int64_t left = run->trainer.settings.steps - record->step;
  const double now = cli_now();
  if (!run->on || (run->visible && left && now - run->drawn < 0.1)) return;
  fprintf(stderr, "\r\033[Kstep %lld/%lld  loss %.4f  %.3f %s  %.0f tokens/s  %.0f s left", (long long)record->step,
          (long long)run->trainer.settings.steps, run->loss, bits(run->loss), unit(run), tokens_per_second(run),
          (now - run->started) / (double)run->steps * (double)left);
  fflush(stderr);
  run->drawn = now, run->visible = 1;
}

void train_clear(train_run *run) {
  if (run->visible) fputs("\r\033[K", stderr);
  run->visible = 0;
}

static double accuracy(const lm_score *s, int level) {
  return s->asked[level] ? (double)s->right[level] / (double)s->asked[level] : 0;
}

void train_show(train_run *run, const lm_record *record) {
  if (!isnan(record->validation) && !run->o->json) {
    train_clear(run);
    printf("step %6lld  training %.4f  held out %.4f %s", (long long)record->step, bits(run->loss), bits(record->validation),
           unit(run));
    for (int i = 0; run->trainer.settings.task == LM_MQAR && i < run->score.levels; i++)
      printf("  %lld: %.1f %%", (long long)run->score.pairs[i], 100 * accuracy(&run->score, i));
    printf("  %.0f tokens/s\n", tokens_per_second(run));
    fflush(stdout);
  }
  draw_line(run, record);
}

/* ---- The end -------------------------------------------------------------------------------------------------------------- */

typedef struct speed {
  int threads;
  double gflops, peak, fraction, rule_share;
} speed;

void train_measure_peak(train_run *run) {
  gdn2_isa isa = GDN2_ISA_GENERIC;
  if (run->peak_count == TRAIN_PEAKS || gdn2_isa_choose(GDN2_ISA_AUTO, &isa)) return;
  if (!run->peak.kernel) run->peak = peak_start(isa, gdn2_threads(run->o->threads));
  run->peaks[run->peak_count++] = peak_gflops(&run->peak);
}

static int compare(const void *x, const void *y) {
  const double *a = x, *b = y;
  return (*a > *b) - (*a < *b);
}

static double median(const double *x, int count) {
  double sorted[TRAIN_PEAKS];
  for (int i = 0; i < count; i++) sorted[i] = x[i];
  qsort(sorted, (size_t)count, sizeof *sorted, compare);
  return count ? sorted[count / 2] : 0;
}

static speed speed_of(const train_run *run) {
  speed s = {.threads = gdn2_threads(run->o->threads), .peak = median(run->peaks, run->peak_count)};
  if (!run->steps) return s;
  s.gflops = 1e-9 * run->flop / run->seconds;
  s.fraction = s.peak > 0 ? s.gflops / (s.peak * s.threads) : 0;
  s.rule_share = run->rule_seconds / run->seconds;
  return s;
}

static void print_table(const train_run *run, const speed *s) {
  const lm_settings *set = &run->trainer.settings;
  printf("%s, %lld parameters, step %lld of %lld", lm_rule_names[set->config.rule], (long long)run->trainer.model.params.numbers,
         (long long)run->trainer.step, (long long)set->steps);
  printf(": held out %.4f %s\n", bits(run->score.loss), unit(run));
  for (int i = 0; set->task == LM_MQAR && i < run->score.levels; i++)
    printf("%6lld pairs: %.2f %% of %lld answers\n", (long long)run->score.pairs[i], 100 * accuracy(&run->score, i),
           (long long)run->score.asked[i]);
  if (run->steps)
    printf("%.0f tokens/s, %d threads, %.1f useful GFLOP/s of %.1f each (%.3f of the peak), %.0f %% of the time in the rule\n",
           tokens_per_second(run), s->threads, s->gflops, s->peak, s->fraction, 100 * s->rule_share);
  printf("checkpoint %s/checkpoint.safetensors, log %s/log.csv, plot %s/loss.svg\n", run->o->out, run->o->out, run->o->out);
}

static void print_json(const train_run *run, const speed *s) {
  const lm_settings *set = &run->trainer.settings;
  printf("{\"task\": \"%s\", \"rule\": \"%s\", \"parameters\": %lld, \"step\": %lld, \"steps\": %lld", lm_task_names[set->task],
         lm_rule_names[set->config.rule], (long long)run->trainer.model.params.numbers, (long long)run->trainer.step,
         (long long)set->steps);
  printf(", \"validation_loss\": %.9g, \"validation_bits\": %.9g", run->score.loss, bits(run->score.loss));
  if (set->task == LM_MQAR) {
    printf(", \"accuracy\": {");
    for (int i = 0; i < run->score.levels; i++)
      printf("%s\"%lld\": %.6f", i ? ", " : "", (long long)run->score.pairs[i], accuracy(&run->score, i));
    printf("}");
  }
  if (run->steps)
    printf(", \"training_loss\": %.9g, \"seconds\": %.3f, \"tokens_per_s\": %.1f, \"threads\": %d, \"gflops_useful\": %.3f, "
           "\"peak_gflops\": %.3f, \"fraction\": %.4f, \"rule_share\": %.4f",
           run->loss, run->seconds, tokens_per_second(run), s->threads, s->gflops, s->peak, s->fraction, s->rule_share);
  printf("}\n");
}

int train_report(const train_run *run) {
  const speed s = speed_of(run);
  if (run->o->json)
    print_json(run, &s);
  else
    print_table(run, &s);
  return DONE;
}
