/* parse.h - options by a table that serves parsing and help; the tables are options.c and lm_options.c. */
#ifndef GDN2_CLI_PARSE_H
#define GDN2_CLI_PARSE_H
#include <stddef.h>
#include <stdint.h>

typedef enum option_kind { FLAG, TEXT, CHOICE, INTEGER, REAL } option_kind;

typedef struct option {
  const char *name;
  option_kind kind;
  int verbs;
  size_t offset; /* of the target in the settings: int, double or const char * */
  const char *argument, *help;
  const char *const *choices; /* CHOICE: ends with NULL */
  double low, high;           /* INTEGER, REAL: the allowed range */
} option;

/* At most 64 options. Words that are not options go to words, if there is such a list. */
typedef struct option_table {
  const option *at;
  int count;
} option_table;

typedef struct parsed {
  void *settings;
  uint64_t given; /* a bit for each option of the table */
  const char **words;
  int word_count;
} parsed;

/* Fills p from the arguments after the verb; p->words has room for all of them, or is NULL. 0, or the exit code with the
 * sentence printed. *help: the user asked for help. */
int parse_arguments(const option_table *table, int verb, int count, char **arguments, parsed *p, int *help);

int parse_given(const option_table *table, const parsed *p, const char *name);

/* The list of a verb's options, on stdout. */
void parse_print(const option_table *table, int verb);

/* The entry of words[count] that is nearest to word, or NULL if none is near. */
const char *parse_nearest(const char *word, const char *const *words, int count);

#endif
