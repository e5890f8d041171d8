/* cli.h - the gdn2 program: exit codes, messages, verbs. One file a verb. */
#ifndef GDN2_CLI_H
#define GDN2_CLI_H
#include "options.h"

/* Exit codes. */
enum { DONE = 0, FAILED = 1, WRONG_USE = 2 };

/* "gdn2 VERB: " and the sentence on stderr. Each error returns its exit code. */
void cli_verb(const char *verb);
int cli_wrong_use(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Seconds of a clock that only runs forward. */
double cli_now(void);

int verb_run(const settings *s);
int verb_check(const settings *s);
int verb_info(const settings *s);
int verb_bench(const settings *s);
/* Those of the language model take their own options; *help: the user asked for help, and nothing was done. */
int verb_train(int count, char **arguments, int *help);
int verb_generate(int count, char **arguments, int *help);

#endif
