#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "cli.h"
#include "tensor_file.h"

static const char *current = "";

void cli_verb(const char *verb) { current = verb; }

static void say(const char *kind, const char *format, va_list args) {
  char text[1024];
  vsnprintf(text, sizeof text, format, args);
  io_make_printable(text);
  fflush(stdout);
  fprintf(stderr, "gdn2%s%s: %s%s\n", *current ? " " : "", current, kind, text);
}

int cli_wrong_use(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say("", format, args);
  va_end(args);
  return WRONG_USE;
}

int cli_failed(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say("", format, args);
  va_end(args);
  return FAILED;
}

void cli_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say("note: ", format, args);
  va_end(args);
}

double cli_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
