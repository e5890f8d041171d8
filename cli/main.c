/* main.c - gdn2 VERB OPTIONS: finds the verb, parses its options, and gives help. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#ifdef GDN2_WITH_LM
#include "surroundings.h"
#include "lm_options.h"
#endif
#include "parse.h"
#include "gdn2.h"
#include "tensor_file.h"

static const struct verb {
  const char *name;
  int bit;
  int (*run)(const settings *s);
  const char *line, *text;
  /* A verb of the language model parses its own options. */
  int (*run_lm)(int count, char **arguments, int *help);
  const char *words; /* what it takes besides options */
} verbs[] = {
    {"run", VERB_RUN, verb_run, "tensors from files -> outputs, final state, gradients",
     "Reads q, k, v and the gates of a rule from .npy files or from one .safetensors file, computes o and h_final\n"
     "and, with --backward, the gradients dq dk dv dg db dw dh0 (dbeta where the rule has beta), and writes them to --out.\n",
     NULL, ""},
    {"check", VERB_CHECK, verb_check, "the same tensors through the engine and a float64 reference; a table of errors",
     "Compares o, h_final and the gradients with the float64 recurrence: of an oracle that shares no code with the library, or,\n"
     "with grouped heads, --varlen, --decay, --erase, --write or --qk-l2norm, of the library's own float64 path. The gradients\n"
     "are compared with --backward, or when do or dh_final is given; when neither is, both are made from fixed seeds. Fails "
     "when\n"
     "a relative error is above 1e-6 (o, h_final) or 2e-6 (gradients).\n",
     NULL, ""},
    {"bench", VERB_BENCH, verb_bench, "how fast, beside the measured peak of the machine",
     "Measures operations on inputs like a trained layer's, in turns with a loop of multiply-adds in registers. Options that "
     "take a\n"
     "LIST take several values with commas between them, and every combination is a case. With --set, --threads and --isa take "
     "the\n"
     "place of those of the set; cases that the machine cannot run are left out.\n",
     NULL, ""},
#ifdef GDN2_WITH_LM
    {"train", VERB_TRAIN, NULL, "a language model learns the bytes of your files, or a recall task",
     "gdn2 train FILE... --out DIR, or gdn2 train --task mqar --out DIR. A new run makes the folder; with --resume and the same\n"
     "files it goes on where its checkpoint stands. Ctrl-C saves and stops.\n",
     verb_train, "[FILE...] "},
    {"generate", VERB_GENERATE, NULL, "a text from a model that gdn2 train made",
     "gdn2 generate DIR: bytes on stdout, as they are drawn.\n", verb_generate, "DIR "},
#endif
    {"info", VERB_INFO, verb_info, "version, processor, instruction set, threads, limits", "", NULL, ""},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static void print_usage(FILE *out) {
  fputs("usage: gdn2 VERB [OPTIONS]\n\n", out);
  for (int i = 0; i < VERBS; i++) fprintf(out, "  %-8s %s\n", verbs[i].name, verbs[i].line);
  fputs("  help     this text, or with a verb its options\n\n"
        "Options are --name VALUE or --name=VALUE. Exit codes: 0 done, 1 failed, 2 wrong use or bad input.\n",
        out);
}

static const struct verb *find(const char *name) {
  for (int i = 0; i < VERBS; i++)
    if (!strcmp(verbs[i].name, name)) return &verbs[i];
  return NULL;
}

static int unknown_verb(const char *name) {
  const char *names[VERBS];
  for (int i = 0; i < VERBS; i++) names[i] = verbs[i].name;
  const char *near = parse_nearest(name, names, VERBS);
  if (near) return cli_wrong_use("unknown verb '%s'; did you mean %s?", name, near);
  return cli_wrong_use("unknown verb '%s'; see gdn2 help", name);
}

static int print_help(const struct verb *verb) {
  printf("usage: gdn2 %s %s[OPTIONS]\n\n%s%s\n%s", verb->name, verb->words, verb->line, *verb->text ? "\n" : "", verb->text);
  printf("\n");
#ifdef GDN2_WITH_LM
  if (verb->run_lm) {
    lm_options_print(verb->bit);
    return DONE;
  }
#endif
  options_print(verb->bit);
  return DONE;
}

static int help(int count, char **arguments) {
  if (!count) {
    print_usage(stdout);
    return DONE;
  }
  if (count > 1) return cli_wrong_use("help takes one verb, not '%s' too", arguments[1]);
  const struct verb *verb = find(arguments[0]);
  return verb ? print_help(verb) : unknown_verb(arguments[0]);
}

static int dispatch(const struct verb *verb, int count, char **arguments) {
  settings s;
  int wants_help = 0;
  cli_verb(verb->name);
  int code =
      verb->run_lm ? verb->run_lm(count, arguments, &wants_help) : options_parse(verb->bit, count, arguments, &s, &wants_help);
  if (!code && wants_help) return print_help(verb);
  return code || verb->run_lm ? code : verb->run(&s);
}

static int start(int count, char **arguments) {
  if (!count) {
    print_usage(stderr);
    return WRONG_USE;
  }
  const char *name = arguments[0];
  if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h")) return help(count - 1, arguments + 1);
  if (!strcmp(name, "--version")) {
    printf("gdn2 %s\n", gdn2_version());
    return DONE;
  }
  const struct verb *verb = find(name);
  return verb ? dispatch(verb, count - 1, arguments + 1) : unknown_verb(name);
}

int main(int argc, char **argv) {
#ifdef GDN2_WITH_LM
  if (argc > 1 && (!strcmp(argv[1], "train") || !strcmp(argv[1], "generate"))) surroundings_set(argv);
#endif
  io_clean_up_on_signals();
  int code = start(argc - 1, argv + 1);
  /* A table that did not reach its file is a failure. */
  if ((fflush(stdout) || ferror(stdout)) && code == DONE) code = cli_failed("the output cannot be written");
  return code;
}
