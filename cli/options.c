#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "inputs.h"

typedef enum option_kind { FLAG, TEXT, CHOICE, INTEGER, REAL } option_kind;

typedef struct option {
  const char *name;
  option_kind kind;
  int verbs;
  size_t offset; /* of the target in settings */
  const char *argument, *help;
  const char *const *choices; /* CHOICE: ends with NULL */
  double low, high;           /* INTEGER, REAL: the allowed range */
} option;

static const char *const semantics_names[] = {"exact", "seed", NULL};
static const char *const set_names[] = {"quick", "full", "seed", NULL};
static const char *const progress_names[] = {"auto", "on", "off", NULL};
const char *const isa_names[] = {"auto", "generic", "avx2", "avx512", "neon", NULL}; /* in the order of gdn2_isa */
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};        /* in the order of io_dtype */

#define AT(field) offsetof(settings, field)
enum { BOTH = VERB_RUN | VERB_CHECK, ALL = BOTH | VERB_INFO };
static const double INT_LIMIT = 1 << 30;

static const option table[] = {
    {"in", TEXT, BOTH, AT(in), "FILE", ".safetensors file with the inputs under the names below (dh_final for --dh-final)", NULL,
     0, 0},
    {"q", TEXT, BOTH, AT(file[IN_Q]), "FILE", "queries [B, T, H, K]; this and the following: .npy, in place of the key in --in",
     NULL, 0, 0},
    {"k", TEXT, BOTH, AT(file[IN_K]), "FILE", "keys [B, T, H, K]", NULL, 0, 0},
    {"v", TEXT, BOTH, AT(file[IN_V]), "FILE", "values [B, T, H, V]", NULL, 0, 0},
    {"g", TEXT, BOTH, AT(file[IN_G]), "FILE", "natural log of the decay [B, T, H, K]; rule gdn: [B, T, H]", NULL, 0, 0},
    {"b", TEXT, BOTH, AT(file[IN_B]), "FILE", "erase gate [B, T, H, K], rule gdn2", NULL, 0, 0},
    {"w", TEXT, BOTH, AT(file[IN_W]), "FILE", "write gate [B, T, H, V], rule gdn2", NULL, 0, 0},
    {"beta", TEXT, BOTH, AT(file[IN_BETA]), "FILE", "gate of both [B, T, H], rules kda, gdn, deltanet", NULL, 0, 0},
    {"h0", TEXT, BOTH, AT(file[IN_H0]), "FILE", "initial state [B, H, K, V]; absent: zeros", NULL, 0, 0},
    {"do", TEXT, BOTH, AT(file[IN_DO]), "FILE", "gradient of the loss by o [B, T, H, V]", NULL, 0, 0},
    {"dh-final", TEXT, BOTH, AT(file[IN_DH_FINAL]), "FILE", "gradient of the loss by the final state [B, H, K, V]", NULL, 0, 0},
    {"rule", CHOICE, BOTH, AT(rule), "NAME", "gdn2 (default), kda, gdn, deltanet or gla", rule_names, 0, 0},
    {"scale", REAL, BOTH, AT(scale), "X", "factor on q (default K^-1/2)", NULL, -INFINITY, INFINITY},
    {"backward", FLAG, BOTH, AT(backward), NULL, "also the gradients of all inputs", NULL, 0, 0},
    {"semantics", CHOICE, VERB_RUN, AT(semantics), "NAME", "exact (default) or seed: the staged pipeline with damping and clips",
     semantics_names, 0, 0},
    {"bt", INTEGER, VERB_RUN, AT(bt), "N", "seed: tokens of a chunk (default 256)", NULL, 1, INT_LIMIT},
    {"bc", INTEGER, VERB_RUN, AT(bc), "N", "seed: tokens of a block within it (default 128)", NULL, 1, INT_LIMIT},
    {"mb", INTEGER, VERB_RUN, AT(mb), "N", "seed: tokens of a block of the solve (default 16)", NULL, 1, INT_LIMIT},
    {"clip", REAL, VERB_RUN, AT(clip), "X", "seed: limit of every stage's results (default 1e4)", NULL, 0, INFINITY},
    {"wy-eps", REAL, VERB_RUN, AT(wy_eps), "X", "seed: damping of the solve, 0 <= X < 1 (default 1e-3)", NULL, 0, 1},
    {"threads", INTEGER, ALL, AT(threads), "N", "at most N threads (default 0: as OMP_NUM_THREADS says)", NULL, 0, 4096},
    {"isa", CHOICE, ALL, AT(isa), "NAME", "auto (default), generic, avx2, avx512 or neon", isa_names, 0, 0},
    {"out", TEXT, VERB_RUN, AT(out), "FILE", "where the outputs go: NAME.safetensors, or a directory for one .npy each", NULL, 0,
     0},
    {"dtype", CHOICE, VERB_RUN, AT(dtype), "NAME",
     "element type of the outputs: f32, f64 (default where all inputs are), f16 or bf16 (.safetensors only)", dtype_names, 0, 0},
    {"set", CHOICE, VERB_BENCH, AT(set), "NAME", "shapes: quick (default), full, or seed: the shapes of atomic-ops 0.1.0",
     set_names, 0, 0},
    {"op", TEXT, VERB_BENCH, AT(lists[BENCH_OP]), "LIST",
     "shapes of your own instead: forward (default), backward, train, decode, conv, conv_backward, norm, norm_backward,\n"
     "                    seed_forward, seed_backward, seed_train",
     NULL, 0, 0},
    {"rule", TEXT, VERB_BENCH, AT(lists[BENCH_RULE]), "LIST", "gdn2 (default), kda, gdn, deltanet, gla", NULL, 0, 0},
    {"dtype", TEXT, VERB_BENCH, AT(lists[BENCH_DTYPE]), "LIST",
     "element type of q, k, v, b, w, o and the states of decode: f32 (default), bf16, f16, g stays float32; or f64 of all", NULL,
     0, 0},
    {"B", TEXT, VERB_BENCH, AT(lists[BENCH_B]), "LIST", "batch rows (default 1; decode: 64)", NULL, 0, 0},
    {"T", TEXT, VERB_BENCH, AT(lists[BENCH_T]), "LIST", "tokens (default 4096; decode: 1)", NULL, 0, 0},
    {"H", TEXT, VERB_BENCH, AT(lists[BENCH_H]), "LIST", "heads (default 6; decode: 32)", NULL, 0, 0},
    {"HV", TEXT, VERB_BENCH, AT(lists[BENCH_HV]), "LIST", "heads of v, a multiple of H (default 0: as H)", NULL, 0, 0},
    {"K", TEXT, VERB_BENCH, AT(lists[BENCH_K]), "LIST", "key channels (default 128)", NULL, 0, 0},
    {"V", TEXT, VERB_BENCH, AT(lists[BENCH_V]), "LIST", "value channels (default 0: as K)", NULL, 0, 0},
    {"threads", TEXT, VERB_BENCH, AT(lists[BENCH_THREADS]), "LIST", "threads (default 0: as OMP_NUM_THREADS says)", NULL, 0, 0},
    {"isa", TEXT, VERB_BENCH, AT(lists[BENCH_ISA]), "LIST", "auto (default), generic, avx2, avx512, neon", NULL, 0, 0},
    {"repeats", INTEGER, VERB_BENCH, AT(repeats), "N", "at least N samples of each case (default 5)", NULL, 1, 4096},
    {"min-time", REAL, VERB_BENCH, AT(min_time), "X", "and at least X seconds of samples (default 1)", NULL, 0, 3600},
    {"json", FLAG, VERB_BENCH, AT(json), NULL, "a list of objects in place of the table", NULL, 0, 0},
    {"csv", FLAG, VERB_BENCH, AT(csv), NULL, "comma-separated values in place of the table", NULL, 0, 0},
    {"plot", TEXT, VERB_BENCH, AT(plot), "FILE", "also throughput against length and threads, as SVG", NULL, 0, 0},
    {"stages", FLAG, VERB_BENCH, AT(stages), NULL, "also the time of each stage, or kernel of the seed's pipeline", NULL, 0, 0},
    {"list", FLAG, VERB_BENCH, AT(list), NULL, "only the cases; nothing is measured", NULL, 0, 0},
    {"progress", CHOICE, BOTH | VERB_BENCH, AT(progress), "WHEN", "bar on stderr: auto (default: on a terminal), on or off",
     progress_names, 0, 0},
};
enum { OPTIONS = sizeof table / sizeof *table };

/* ---- Nearest word --------------------------------------------------------------------------------------------------------- */

enum { LONGEST = 24 };

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

const char *options_nearest(const char *word, const char *const *words, int count) {
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

static const option *find(int verb, const char *name, size_t length) {
  for (int i = 0; i < OPTIONS; i++)
    if (table[i].verbs & verb && strlen(table[i].name) == length && !strncmp(table[i].name, name, length)) return &table[i];
  return NULL;
}

static int unknown(int verb, const char *argument, size_t length) {
  const char *names[OPTIONS];
  char word[64];
  int count = 0;
  snprintf(word, sizeof word, "%.*s", (int)(length < 60 ? length : 60), argument + 2);
  for (int i = 0; i < OPTIONS; i++)
    if (table[i].verbs & verb) names[count++] = table[i].name;
  const char *near = options_nearest(word, names, count);
  if (near) return cli_wrong_use("unknown option --%s; did you mean --%s?", word, near);
  return cli_wrong_use("unknown option --%s", word);
}

static int set_choice(const option *o, const char *text, int *target) {
  int count = 0;
  for (; o->choices[count]; count++) {
    if (strcmp(o->choices[count], text)) continue;
    *target = count;
    return DONE;
  }
  const char *near = options_nearest(text, o->choices, count);
  if (near) return cli_wrong_use("--%s %s: did you mean %s?", o->name, text, near);
  return cli_wrong_use("--%s %s: must be one of: %s", o->name, text, o->help);
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

static int set(const option *o, const char *text, settings *s) {
  void *target = (char *)s + o->offset;
  uint64_t bit = (uint64_t)1 << (o - table);
  if (s->given & bit) return cli_wrong_use("--%s is given twice", o->name);
  s->given |= bit;
  if (o->kind == FLAG) *(int *)target = 1;
  if (o->kind == TEXT) *(const char **)target = text;
  if (o->kind == TEXT && !*text) return cli_wrong_use("--%s: the name is empty", o->name);
  if (o->kind == CHOICE) return set_choice(o, text, target);
  if (o->kind == INTEGER) return set_integer(o, text, target);
  return o->kind == REAL ? set_real(o, text, target) : DONE;
}

/* *i: the index of the argument; it advances over the option's value. */
static int parse_one(int verb, int count, char **arguments, int *i, settings *s) {
  const char *argument = arguments[*i], *equals = strchr(argument, '=');
  if (strncmp(argument, "--", 2) || !argument[2])
    return cli_wrong_use("unexpected argument '%s'; options begin with --", argument);
  size_t length = (equals ? (size_t)(equals - argument) : strlen(argument)) - 2;
  const option *o = find(verb, argument + 2, length);
  if (!o) return unknown(verb, argument, length);
  if (o->kind == FLAG && equals) return cli_wrong_use("--%s takes no value", o->name);
  if (o->kind == FLAG || equals) return set(o, equals ? equals + 1 : NULL, s);
  if (*i + 1 == count) return cli_wrong_use("--%s needs a value: %s", o->name, o->argument);
  /* A name of a file may begin with dashes after =, not here: a forgotten value must not swallow the next option. */
  if (!strncmp(arguments[*i + 1], "--", 2)) return cli_wrong_use("--%s needs a value: %s", o->name, o->argument);
  return set(o, arguments[++*i], s);
}

int options_parse(int verb, int count, char **arguments, settings *s, int *help) {
  *s = (settings){.bt = 256, .bc = 128, .mb = 16, .clip = 1e4, .wy_eps = 1e-3, .repeats = 5, .min_time = 1};
  *help = 0;
  for (int i = 0; i < count; i++)
    if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) *help = 1;
  for (int i = 0; i < count && !*help; i++) {
    int code = parse_one(verb, count, arguments, &i, s);
    if (code) return code;
  }
  return DONE;
}

int options_given(const settings *s, const char *name) {
  for (int i = 0; i < OPTIONS; i++)
    if (!strcmp(table[i].name, name)) return (int)(s->given >> i & 1);
  return 0;
}

void options_print(int verb) {
  for (int i = 0; i < OPTIONS; i++) {
    if (!(table[i].verbs & verb)) continue;
    char left[40];
    snprintf(left, sizeof left, "--%s %s", table[i].name, table[i].argument ? table[i].argument : "");
    printf("  %-17s %s\n", left, table[i].help);
  }
}
