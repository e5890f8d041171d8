/* train.c - gdn2 train: options and text, then the loop of steps, with what is looked at and saved on the way. */
#include "train.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "lm/linear.h"
#include "options.h"

/* ---- Ctrl-C --------------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int number) {
  (void)number;
  stop_asked = 1;
}

/* The first signal stops after the step; the second ends the process in the usual way. */
static void stop_on_signals(void) {
  struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

/* ---- Settings ------------------------------------------------------------------------------------------------------------- */

static void settings_of(const lm_options *o, lm_settings *s) {
  *s = (lm_settings){.steps = o->steps,
                     .warmup = lm_options_given(o, "warmup") ? o->warmup : (o->steps + 19) / 20,
                     .batch = o->batch,
                     .length = o->length,
                     .accumulate = o->accumulate,
                     .learning_rate = o->learning_rate,
                     .weight_decay = o->weight_decay,
                     .clip = o->clip,
                     .validation = o->validation,
                     .seed = (uint64_t)o->seed,
                     .task = o->task,
                     .pairs = o->task == LM_MQAR ? o->pairs : 0};
  s->config = (lm_config){.vocabulary = o->task == LM_MQAR ? o->vocabulary : LM_BYTES,
                          .layers = o->layers,
                          .d_model = o->d_model,
                          .heads = o->heads ? o->heads : (o->d_model + o->head_dim - 1) / o->head_dim,
                          .head_dim = o->head_dim,
                          .d_mlp = o->d_mlp ? o->d_mlp : (8 * o->d_model / 3 + 31) / 32 * 32,
                          .conv_width = o->conv_width,
                          .rule = o->rule,
                          .gate = o->gate,
                          .tied = o->tied};
}

/* The settings of the run in --out, and its text is the one that is given. */
static int resume_settings(const lm_options *o, const train_text *text, lm_settings *s) {
  io_error error;
  const char *fixed = lm_options_fixed(o);
  if (fixed) return cli_wrong_use("--%s: with --resume it is that of the run; leave it out", fixed);
  if (lm_config_read(o->out, s, &error)) return cli_wrong_use("--out: %s", error.text);
  if (s->task == LM_TEXT && (s->text_bytes != text->count || s->text_fingerprint != text->fingerprint))
    return cli_wrong_use("%s: the run was started with another text (%lld bytes, these are %lld)", o->out,
                         (long long)s->text_bytes, (long long)text->count);
  if (lm_options_given(o, "steps")) s->steps = o->steps;
  return DONE;
}

static int check(const lm_settings *s, const train_text *text) {
  const char *fault = lm_config_fault(&s->config);
  if (fault) return cli_wrong_use("%s", fault);
  const lm_data data = {.task = s->task,
                        .T = s->length,
                        .count = text->count,
                        .training = lm_data_training(text->count, s->validation),
                        .vocabulary = s->config.vocabulary,
                        .pairs = s->pairs};
  fault = lm_data_fault(&data);
  if (fault) return cli_wrong_use("%s", fault);
  if (s->batch * s->length > INT64_C(1) << 24) return cli_wrong_use("--batch times --length must be at most 2^24 tokens");
  return DONE;
}

/* ---- Text ----------------------------------------------------------------------------------------------------------------- */

static int read_text(const lm_options *o, train_text *text) {
  lm_text_error error;
  int64_t size = 0;
  for (int i = 0; i < o->given.word_count; i++) {
    struct stat status;
    if (stat(o->given.words[i], &status)) return cli_wrong_use("%s: cannot be opened: %s", o->given.words[i], strerror(errno));
    if (!S_ISREG(status.st_mode)) return cli_wrong_use("%s: is not a regular file", o->given.words[i]);
    size += status.st_size;
  }
  text->bytes = malloc((size_t)size + 1);
  if (!text->bytes) return cli_failed("not enough memory for a text of %lld bytes", (long long)size);
  text->count = lm_text_read(text->bytes, size + 1, o->given.words, o->given.word_count, &error);
  if (text->count < 0) return cli_wrong_use("%s", error.text);
  text->fingerprint = lm_data_fingerprint(text->bytes, text->count);
  return DONE;
}

/* ---- The run -------------------------------------------------------------------------------------------------------------- */

static int save(train_run *run) {
  io_error error;
  const lm_trainer *r = &run->trainer;
  if (lm_checkpoint_write(run->o->out, &r->model, &r->optimiser, r->step, &error)) return cli_failed("%s", error.text);
  run->saved = r->step;
  return DONE;
}

/* A new run exists once its config does, which is therefore written last. */
static int start(train_run *run) {
  io_error error;
  const char *folder = run->o->out;
  struct stat status;
  if (mkdir(folder, 0777) && errno != EEXIST) return cli_wrong_use("--out %s: cannot be made: %s", folder, strerror(errno));
  if (!stat(folder, &status) && !S_ISDIR(status.st_mode)) return cli_wrong_use("--out %s: is not a folder", folder);
  int code = DONE;
  if (run->o->resume) {
    if (lm_checkpoint_read(folder, &run->trainer.model, &run->trainer.optimiser, &run->trainer.step, &error))
      return cli_wrong_use("%s", error.text);
    run->saved = run->trainer.step;
  } else {
    code = save(run);
  }
  if (!code && lm_config_write(folder, &run->trainer.settings, &error)) code = cli_failed("%s", error.text);
  if (!code && lm_log_open(&run->log, folder, run->trainer.step, &error)) code = cli_failed("%s", error.text);
  return code;
}

static int library_failed(void) { return cli_failed("%s", gdn2_last_error()); }

static int evaluate(train_run *run, lm_record *record) {
  if (lm_trainer_evaluate(&run->trainer, run->o->evaluate_samples, &run->score)) return library_failed();
  if (record) record->validation = run->score.loss;
  return DONE;
}

/* Steps from one measurement of the machine's peak to the next. */
enum { PEAK_EVERY = 10 };

static int one_step(train_run *run) {
  io_error error;
  lm_record record;
  double start = cli_now(), rule = run->trainer.model.rule_seconds;
  if (lm_trainer_step(&run->trainer, &record)) return library_failed();
  record.seconds = cli_now() - start;
  run->rule_seconds += run->trainer.model.rule_seconds - rule;
  train_count(run, &record);
  if (!isfinite(record.gradient_norm))
    return cli_failed("step %lld: the gradient is not finite; a lower --learning-rate may help. %s holds step %lld",
                      (long long)record.step, run->o->out, (long long)run->saved);
  const int last = record.step == run->trainer.settings.steps;
  if (run->steps % PEAK_EVERY == 1) train_measure_peak(run);
  const int look = last || record.step % run->o->evaluate_every == 0;
  int code = look ? evaluate(run, &record) : DONE;
  if (!code && lm_log_add(&run->log, &record, &error)) code = cli_failed("%s", error.text);
  if (!code && (last || record.step % run->o->save_every == 0)) code = save(run);
  if (!code) train_show(run, &record);
  return code;
}

static int plot(train_run *run) {
  io_error error;
  char title[128];
  const lm_settings *s = &run->trainer.settings;
  snprintf(title, sizeof title, "%s, %lld layers of width %lld, %s", lm_rule_names[s->config.rule], (long long)s->config.layers,
           (long long)s->config.d_model, lm_task_names[s->task]);
  return lm_plot_write(&run->log, run->o->out, title, &error) ? cli_failed("%s", error.text) : DONE;
}

static int loop(train_run *run) {
  int code = DONE;
  stop_on_signals();
  train_begin(run);
  while (!code && !stop_asked && run->trainer.step < run->trainer.settings.steps) code = one_step(run);
  train_clear(run);
  if (code) return code;
  if (stop_asked) cli_note("stopped after step %lld; --resume goes on", (long long)run->trainer.step);
  if (run->saved != run->trainer.step) code = save(run);
  if (!code && !run->score.levels) code = evaluate(run, NULL);
  if (!code) code = plot(run);
  return code ? code : train_report(run);
}

static int train(const lm_options *o, train_text *text) {
  lm_settings s;
  int code = o->given.word_count ? read_text(o, text) : DONE;
  if (code) return code;
  settings_of(o, &s);
  if (o->resume) code = resume_settings(o, text, &s);
  if (!code && s.task == LM_TEXT && !text->count)
    code = cli_wrong_use("a text to learn must be given: gdn2 train FILE... --out DIR");
  if (!code && s.task == LM_MQAR && text->count) code = cli_wrong_use("--task mqar takes no files");
  if (!code && !o->resume && lm_config_exists(o->out))
    code = cli_wrong_use("--out %s: holds a run already; --resume goes on with it", o->out);
  s.text_bytes = text->count, s.text_fingerprint = text->fingerprint;
  if (!code) code = check(&s, text);
  if (code) return code;
  lm_threads_set(o->threads);
  train_run *run = calloc(1, sizeof *run);
  if (!run || lm_trainer_create(&run->trainer, &s, text->bytes)) {
    free(run);
    return cli_failed("not enough memory for this model and batch");
  }
  run->o = o;
  code = start(run);
  if (!code) code = loop(run);
  lm_log_close(&run->log);
  lm_trainer_free(&run->trainer);
  free(run);
  return code;
}

int verb_train(int count, char **arguments, int *help) {
  lm_options o;
  train_text text = {.bytes = NULL};
  int code = lm_options_parse(VERB_TRAIN, count, arguments, &o, help);
  if (!code && !*help) code = o.out ? train(&o, &text) : cli_wrong_use("--out DIR must be given");
  free(text.bytes);
  free(o.given.words);
  return code;
}
