#include "parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* ---- Nearest word --------------------------------------------------------------------------------------------------------- */

enum { LONGEST = 24, MOST = 64 };

/* Insertions, deletions and replacements that turn a into b. */
static int distance(const char *a, const char *b) {
  int row[LONGEST + 1], n = (int)strlen(b);
  if (n > LONGEST || strlen(a) > LONGEST) return LONGEST;
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; *a; a++, i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int above = row[j], least = diagonal + (*a != b[j - 1]);
      if (above + 1 < least) least = above + 1;
      if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
      row[j] = least;
      diagonal = above;
    }
  }
  return row[n];
}

const char *parse_nearest(const char *word, const char *const *words, int count) {
  const char *best = NULL;
  int least = 3;
  for (int i = 0; i < count; i++) {
    int d = distance(word, words[i]);
    if (d >= least || d >= (int)strlen(words[i])) continue;
    least = d;
    best = words[i];
  }
  return best;
}

/* ---- Parsing -------------------------------------------------------------------------------------------------------------- */

static const option *find(const option_table *table, int verb, const char *name, size_t length) {
  for (int i = 0; i < table->count; i++) {
    const option *o = &table->at[i];
    if (o->verbs & verb && strlen(o->name) == length && !strncmp(o->name, name, length)) return o;
  }
  return NULL;
}

static int unknown(const option_table *table, int verb, const char *argument, size_t length) {
  const char *names[MOST];
  char word[64];
  int count = 0;
  snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), argument + 2);
  for (int i = 0; i < table->count && count < MOST; i++)
    if (table->at[i].verbs & verb) names[count++] = table->at[i].name;
  const char *near = parse_nearest(word, names, count);
  if (near) return cli_wrong_use("unknown option --%s; did you mean --%s?", word, near);
  return cli_wrong_use("unknown option --%s", word);
}

static int unknown_choice(const option *o, const char *text) {
  char names[160] = "";
  for (int i = 0, at = 0; o->choices[i] && at < (int)sizeof names; i++)
    at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? ", " : "", o->choices[i]);
  return cli_wrong_use("--%s %s: must be one of: %s", o->name, text, names);
}

static int set_choice(const option *o, const char *text, int *target) {
  int count = 0;
  for (; o->choices[count]; count++) {
    if (strcmp(o->choices[count], text)) continue;
    *target = count;
    return DONE;
  }
  const char *near = parse_nearest(text, o->choices, count);
  if (near) return cli_wrong_use("--%s %s: did you mean %s?", o->name, text, near);
  return unknown_choice(o, text);
}

static int set_integer(const option *o, const char *text, int *target) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || (double)value < o->low || (double)value > o->high)
    return cli_wrong_use("--%s '%s': must be a whole number from %.0f to %.0f", o->name, text, o->low, o->high);
  *target = (int)value;
  return DONE;
}

static int set_real(const option *o, const char *text, double *target) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end || !isfinite(value)) return cli_wrong_use("--%s '%s': must be a finite number", o->name, text);
  if (value < o->low || value > o->high) return cli_wrong_use("--%s %s: must be from %g to %g", o->name, text, o->low, o->high);
  *target = value;
  return DONE;
}

static int is_name(const option *o) { return !strcmp(o->argument, "FILE") || !strcmp(o->argument, "DIR"); }

static int set(const option_table *table, const option *o, const char *text, parsed *p) {
  void *target = (char *)p->settings + o->offset;
  uint64_t bit = (uint64_t)1 << (o - table->at);
  if (p->given & bit) return cli_wrong_use("--%s is given twice", o->name);
  p->given |= bit;
  if (o->kind == FLAG) *(int *)target = 1;
  if (o->kind == TEXT) *(const char **)target = text;
  if (o->kind == TEXT && !*text && is_name(o)) return cli_wrong_use("--%s: the name is empty", o->name);
  if (o->kind == CHOICE) return set_choice(o, text, target);
  if (o->kind == INTEGER) return set_integer(o, text, target);
  return o->kind == REAL ? set_real(o, text, target) : DONE;
}

/* *i: the index of the argument; it advances over the option's value. */
static int parse_one(const option_table *table, int verb, int count, char **arguments, int *i, parsed *p) {
  const char *argument = arguments[*i], *equals = strchr(argument, '=');
  if (p->words && strncmp(argument, "--", 2)) {
    p->words[p->word_count++] = argument;
    return DONE;
  }
  if (strncmp(argument, "--", 2) || !argument[2])
    return cli_wrong_use("unexpected argument '%s'; options begin with --", argument);
  size_t length = (equals ? (size_t)(equals - argument) : strlen(argument)) - 2;
  const option *o = find(table, verb, argument + 2, length);
  if (!o) return unknown(table, verb, argument, length);
  if (o->kind == FLAG && equals) return cli_wrong_use("--%s takes no value", o->name);
  if (o->kind == FLAG || equals) return set(table, o, equals ? equals + 1 : NULL, p);
  if (*i + 1 == count) return cli_wrong_use("--%s needs a value: %s", o->name, o->argument);
  /* A name of a file may begin with dashes after =, not here: a forgotten value must not swallow the next option. */
  if (!strncmp(arguments[*i + 1], "--", 2)) return cli_wrong_use("--%s needs a value: %s", o->name, o->argument);
  return set(table, o, arguments[++*i], p);
}

/* Words after -- are no options, whatever they begin with. */
static void take_rest(int count, char **arguments, parsed *p) {
  for (int i = 0; i < count; i++) p->words[p->word_count++] = arguments[i];
}

int parse_arguments(const option_table *table, int verb, int count, char **arguments, parsed *p, int *help) {
  *help = 0;
  int end = 0;
  while (end < count && !(p->words && !strcmp(arguments[end], "--"))) end++;
  for (int i = 0; i < end; i++)
    if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) *help = 1;
  for (int i = 0; i < end && !*help; i++) {
    int code = parse_one(table, verb, end, arguments, &i, p);
    if (code) return code;
  }
  if (end < count) take_rest(count - end - 1, arguments + end + 1, p);
  return DONE;
}

int parse_given(const option_table *table, const parsed *p, const char *name) {
  for (int i = 0; i < table->count; i++)
    if (!strcmp(table->at[i].name, name)) return (int)(p->given >> i & 1);
  return 0;
}

void parse_print(const option_table *table, int verb) {
  for (int i = 0; i < table->count; i++) {
    const option *o = &table->at[i];
    if (!(o->verbs & verb)) continue;
    char left[40];
    snprintf(left, sizeof left, "--%s %s", o->name, o->argument ? o->argument : "");
    printf("  %-21s %s\n", left, o->help);
  }
}
