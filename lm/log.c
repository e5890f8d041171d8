/* log.c - the log of a run: a line per step, comma-separated. Losses are printed so that reading gives back the same bits. */
#include "lm/trainer.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "log.csv"
static const char header[] = "step,loss,validation_loss,learning_rate,gradient_norm,seconds\n";

static int fail(io_error *error, const char *what, const char *why) {
  snprintf(error->text, sizeof error->text, "%s: %s", what, why);
  return -1;
}

static int keep(lm_log *log, const lm_record *record) {
  if (log->count == log->size) {
    const int64_t size = 2 * log->size + 1024;
    lm_record *bigger = realloc(log->at, (size_t)size * sizeof *bigger);
    if (!bigger) return -1;
    log->at = bigger, log->size = size;
  }
  log->at[log->count++] = *record;
  return 0;
}

/* A field of a line; an empty one is NaN. Returns what follows its comma, or NULL if it is no number. */
static const char *field(const char *text, double *value) {
  char *end;
  *value = NAN;
  if (*text == ',') return text + 1;
  *value = strtod(text, &end);
  return end != text && (*end == ',' || *end == '\n') ? end + 1 : NULL;
}

static int parse(const char *line, lm_record *r) {
  double step;
  const char *at = field(line, &step);
  double *fields[] = {&r->loss, &r->validation, &r->learning_rate, &r->gradient_norm, &r->seconds};
  for (size_t i = 0; at && i < sizeof fields / sizeof *fields; i++) at = field(at, fields[i]);
  r->step = at && step >= 0 && step <= 0x1p24 ? (int64_t)step : -1;
  return r->step < 0 ? -1 : 0;
}

/* The lines up to `step`. A line that was cut short by the end of a process is where the log ends. */
static int load(lm_log *log, const char *path, int64_t step, io_error *error) {
  char line[256];
  FILE *file = step > 0 ? fopen(path, "r") : NULL;
  int failed = 0;
  lm_record record;
  if (file && fgets(line, sizeof line, file))
    while (!failed && fgets(line, sizeof line, file) && !parse(line, &record) && record.step <= step) failed = keep(log, &record);
  if (file) fclose(file);
  return failed ? fail(error, path, "not enough memory") : 0;
}

static int print(FILE *file, const lm_record *r) {
  int n = fprintf(file, "%lld,%.17g,", (long long)r->step, r->loss);
  if (n >= 0 && !isnan(r->validation)) n = fprintf(file, "%.17g", r->validation);
  if (n >= 0) n = fprintf(file, ",%.9g,%.9g,%.6f\n", r->learning_rate, r->gradient_norm, r->seconds);
  return n < 0 ? -1 : 0;
}

/* Written anew as a whole, so that nothing is lost if the process ends here. */
static int rewrite(const lm_log *log, const char *path, io_error *error) {
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  if (!out) return fail(error, path, "not enough memory");
  int failed = fputs(header, out) < 0;
  for (int64_t i = 0; i < log->count && !failed; i++) failed = print(out, &log->at[i]);
  if ((failed | fclose(out)) != 0)
    failed = fail(error, path, "not enough memory");
  else
    failed = io_write_bytes(path, text, length, error);
  free(text);
  return failed;
}

int lm_log_open(lm_log *log, const char *folder, int64_t step, io_error *error) {
  *log = (lm_log){.file = NULL};
  char *path = lm_path(folder, FILE_NAME, error);
  int failed = !path || load(log, path, step, error) || rewrite(log, path, error);
  if (!failed) {
    log->file = fopen(path, "a");
    if (!log->file) failed = fail(error, path, strerror(errno));
  }
  free(path);
  if (failed) lm_log_close(log);
  return failed ? -1 : 0;
}

int lm_log_add(lm_log *log, const lm_record *record, io_error *error) {
  if (keep(log, record)) return fail(error, FILE_NAME, "not enough memory");
  return print(log->file, record) || fflush(log->file) ? fail(error, FILE_NAME, strerror(errno)) : 0;
}

void lm_log_close(lm_log *log) {
  if (log->file) fclose(log->file);
  free(log->at);
  *log = (lm_log){.file = NULL};
}
