/* options.h - the options of every verb, in one table that serves parsing and help. */
#ifndef GDN2_CLI_OPTIONS_H
#define GDN2_CLI_OPTIONS_H
#include <stdint.h>

/* Which verbs take an option. */
enum { VERB_RUN = 1, VERB_CHECK = 2, VERB_INFO = 4, VERB_BENCH = 8 };

/* The inputs of run and check. Each has an option --NAME FILE.npy and a key in the file of --in. */
typedef enum input_id {
  IN_Q,
  IN_K,
  IN_V,
  IN_G,
  IN_B,
  IN_W,
  IN_BETA,
  IN_H0,
  IN_A_LOG,
  IN_DT_BIAS,
  IN_DO,
  IN_DH_FINAL,
  IN_CU_SEQLENS,
  INPUTS
} input_id;

enum { SEMANTICS_EXACT, SEMANTICS_SEED };
enum { PROGRESS_AUTO, PROGRESS_ON, PROGRESS_OFF };

/* What bench combines: each has an option that takes a list with commas. */
typedef enum bench_list {
  BENCH_OP,
  BENCH_RULE,
  BENCH_DTYPE,
  BENCH_B,
  BENCH_T,
  BENCH_H,
  BENCH_HV,
  BENCH_K,
  BENCH_V,
  BENCH_THREADS,
  BENCH_ISA,
  BENCH_LISTS
} bench_list;

extern const char *const isa_names[]; /* in the order of gdn2_isa; ends with NULL */

typedef struct settings {
  const char *in, *out;
  const char *file[INPUTS];
  int rule;      /* an index of rules[] */
  int semantics; /* SEMANTICS_ */
  int backward, threads, progress;
  int isa;   /* gdn2_isa */
  int dtype; /* io_dtype */
  double scale, clip, wy_eps;
  int decay, erase, write, map; /* gdn2_decay, gdn2_gate (twice), gdn2_head_map */
  int qk_l2norm, varlen;
  double lower_bound;
  int bt, bc, mb;
  int set;                        /* an index of the sets of bench */
  const char *lists[BENCH_LISTS]; /* as given; NULL: absent */
  int layers, layout;             /* of decode; layout: an index of kv, vk */
  int repeats, json, csv, list, stages;
  double min_time;
  const char *plot;
  uint64_t given; /* a bit for each option of the table */
} settings;

/* Fills *s from the arguments after the verb. 0, or the exit code with the sentence printed. *help: the user asked for help. */
int options_parse(int verb, int count, char **arguments, settings *s, int *help);

/* Whether the option --name was given. */
int options_given(const settings *s, const char *name);

/* The list of a verb's options, on stdout. */
void options_print(int verb);

#endif
