/* generate.c - gdn2 generate: a text from a run's checkpoint, byte after byte as they are drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli.h"
#include "lm/generate.h"
#include "lm/linear.h"
#include "lm/trainer.h"
#include "lm_options.h"

enum { PARTS = 10 };

static int library_failed(void) { return cli_failed("%s", gdn2_last_error()); }

/* The prompt as tokens; without one, or an empty one, a new line. *count > 0. To be freed. */
static int32_t *prompt_tokens(const char *prompt, int64_t *count) {
  const char *text = prompt && *prompt ? prompt : "\n";
  *count = (int64_t)strlen(text);
  int32_t *tokens = malloc((size_t)*count * sizeof *tokens);
  for (int64_t i = 0; tokens && i < *count; i++) tokens[i] = (unsigned char)text[i];
  return tokens;
}

/* The prompt byte by byte, and the logits after each to the file. */
static int read_prompt_steps(lm_reader *reader, const char *path, const int32_t *tokens, int64_t count, const real **logits) {
  const int64_t V = reader->model->params.config.vocabulary;
  real *all = malloc((size_t)(count * V) * sizeof *all);
  io_error error;
  int code = DONE;
  if (!all) return cli_failed("--logits: not enough memory");
  for (int64_t t = 0; t < count && !code; t++) {
    if (lm_reader_read(reader, tokens + t, 1, logits))
      code = library_failed();
    else
      memcpy(all + t * V, *logits, (size_t)V * sizeof *all);
  }
  const io_tensor tensor = {.name = "logits", .dtype = IO_F32, .rank = 2, .shape = {count, V}, .data = all};
  if (!code && io_write_safetensors(path, &tensor, 1, &error)) code = cli_wrong_use("--logits: %s", error.text);
  free(all);
  return code;
}

static int read_prompt(lm_reader *reader, const lm_options *o, const real **logits) {
  int64_t count;
  int32_t *tokens = prompt_tokens(o->prompt, &count);
  if (!tokens) return cli_failed("not enough memory for the prompt");
  int code = DONE;
  if (o->logits)
    code = read_prompt_steps(reader, o->logits, tokens, count, logits);
  else if (lm_reader_read(reader, tokens, count, logits))
    code = library_failed();
  if (!code && o->prompt) fputs(o->prompt, stdout);
  free(tokens);
  return code;
}

/* Whether n of count is the first to reach another tenth. */
static int at_tenth(int64_t n, int64_t count) { return n * PARTS / count != (n - 1) * PARTS / count; }

static int write_tokens(lm_reader *reader, const lm_options *o, const real *logits, double *ends) {
  const lm_sampling how = {o->temperature, o->top_k, o->top_p, (uint64_t)o->seed};
  const int64_t V = reader->model->params.config.vocabulary;
  ends[0] = cli_now();
  for (int64_t n = 0; n < o->tokens; n++) {
    const int32_t token = lm_sample(logits, V, &how, (uint64_t)n, reader->order, reader->weight);
    if (putchar(token) == EOF || fflush(stdout)) return cli_failed("the output cannot be written");
    if (lm_reader_read(reader, &token, 1, &logits)) return library_failed();
    if (at_tenth(n + 1, o->tokens)) ends[(n + 1) * PARTS / o->tokens] = cli_now();
  }
  return DONE;
}

static void print_speed(const lm_options *o, const double *ends) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fprintf(stderr, "\ntokens/s of each tenth:");
  for (int i = 0; i < PARTS; i++) fprintf(stderr, " %.0f", (double)o->tokens / (double)PARTS / (ends[i + 1] - ends[i]));
  fprintf(stderr, "; most memory %ld KiB\n", usage.ru_maxrss);
}

static int write_text(lm_model *model, const lm_options *o) {
  lm_reader reader;
  const real *logits = NULL;
  double ends[PARTS + 1] = {0};
  if (lm_reader_create(&reader, model)) return cli_failed("not enough memory for the states");
  int code = read_prompt(&reader, o, &logits);
  if (!code) code = write_tokens(&reader, o, logits, ends);
  if (!code && o->speed && o->tokens >= PARTS) print_speed(o, ends);
  lm_reader_free(&reader);
  return code;
}

static int generate(const lm_options *o) {
  const char *folder = o->given.words[0];
  lm_settings s;
  io_error error;
  if (lm_config_read(folder, &s, &error)) return cli_wrong_use("%s", error.text);
  if (s.task != LM_TEXT) return cli_wrong_use("%s: was trained on %s, not on a text", folder, lm_task_names[s.task]);
  lm_threads_set(o->threads);
  lm_model model;
  int64_t step;
  int code = lm_model_create(&model, &s.config, LM_PROMPT_PASS, 0) ? cli_failed("not enough memory for this model") : DONE;
  if (!code && lm_checkpoint_read(folder, &model, NULL, &step, &error)) code = cli_wrong_use("%s", error.text);
  if (!code) code = write_text(&model, o);
  lm_model_free(&model);
  return code;
}

int verb_generate(int count, char **arguments, int *help) {
  lm_options o;
  int code = lm_options_parse(VERB_GENERATE, count, arguments, &o, help);
  if (!code && !*help)
    code = o.given.word_count == 1 ? generate(&o) : cli_wrong_use("one folder of a run must be given: gdn2 generate DIR");
  free(o.given.words);
  return code;
}
