/* generate.h - a text from a model, token after token, in memory that does not grow. */
#ifndef GDN2_LM_GENERATE_H
#define GDN2_LM_GENERATE_H
#include "lm/model.h"

typedef struct lm_sampling {
  double temperature; /* divides the logits; 0: the largest is taken */
  int64_t top_k;      /* only the k largest; 0: all */
  double top_p;       /* only the largest that together have this probability; 1: all */
  uint64_t seed;
} lm_sampling;

/* The next token by logits[V]. position: the number of the draw, which with the seed fixes it. order[V] is room. */
int32_t lm_sample(const real *logits, int64_t V, const lm_sampling *how, uint64_t position, int32_t *order, double *weight);

/* Tokens of a pass over the prompt. */
#define LM_PROMPT_PASS 128

/* A model that reads one sequence. Created with lm_model_create(.., LM_PROMPT_PASS, 0) and values. */
typedef struct lm_reader {
  lm_model *model;
  lm_state state;
  int32_t *order; /* [V] */
  double *weight; /* [V] */
} lm_reader;

int lm_reader_create(lm_reader *reader, lm_model *model);
void lm_reader_free(lm_reader *reader);

/* Reads tokens[count], count > 0; *logits[V] are those after the last. */
gdn2_status lm_reader_read(lm_reader *reader, const int32_t *tokens, int64_t count, const real **logits);

#endif
