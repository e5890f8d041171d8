/* lm_options.h - the options of gdn2 train and gdn2 generate. */
#ifndef GDN2_CLI_LM_OPTIONS_H
#define GDN2_CLI_LM_OPTIONS_H
#include "parse.h"

enum { VERB_TRAIN = 1, VERB_GENERATE = 2 };

typedef struct lm_options {
  const char *out, *prompt, *logits;
  int steps, resume, task, pairs, vocabulary;
  int rule, gate, tied, layers, d_model, heads, head_dim, d_mlp, conv_width;
  int batch, length, accumulate, warmup, evaluate_every, evaluate_samples, save_every;
  double learning_rate, weight_decay, clip, validation;
  int seed, threads, json, progress;
  int tokens, top_k, speed;
  double temperature, top_p;
  parsed given; /* and the words: files, or the folder */
} lm_options;

/* As options_parse. o->given.words is a list to be freed, of the words that are no options. */
int lm_options_parse(int verb, int count, char **arguments, lm_options *o, int *help);
int lm_options_given(const lm_options *o, const char *name);
void lm_options_print(int verb);

/* The first option that was given and is a property of the run, which cannot change when it is resumed; NULL: none. */
const char *lm_options_fixed(const lm_options *o);

#endif
