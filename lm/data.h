/* data.h - what a model is trained on: windows of a text, or the associative recall task.
 *
 * Every sample is a function of the seed and of its number alone, so that a run that was stopped goes on with the samples it
 * would have had. */
#ifndef GDN2_LM_DATA_H
#define GDN2_LM_DATA_H
#include "lm/text.h"
#include <stdint.h>

typedef enum lm_task { LM_TEXT, LM_MQAR } lm_task;
extern const char *const lm_task_names[]; /* "text", "mqar"; ends with NULL */

/* Tokens of a text. */
#define LM_BYTES 256

typedef struct lm_data {
  int task; /* lm_task */
  int64_t T;
  uint64_t seed;
  /* Text: the bytes, of which the last are for validation. */
  const uint8_t *bytes;
  int64_t count, training;
  /* MQAR: tokens, most key-value pairs of a sample. */
  int64_t vocabulary, pairs;
} lm_data;

/* NULL if samples of T tokens can be made, else a sentence that names the size at fault. */
const char *lm_data_fault(const lm_data *data);

/* Bytes of a text of `count` that are for training, with this part for validation. */
int64_t lm_data_training(int64_t count, double validation);

/* Sample number `index` for training: tokens[T], targets[T], -1 where nothing is asked. */
void lm_data_sample(const lm_data *data, uint64_t index, int32_t *tokens, int32_t *targets);

/* The samples for validation: lm_data_held of them, at most `most`. Those of a text follow each other in its last part. */
int64_t lm_data_held(const lm_data *data, int64_t most);
void lm_data_held_sample(const lm_data *data, int64_t index, int32_t *tokens, int32_t *targets);

/* Multi-query associative recall (Arora et al. 2023, arXiv:2312.04927). The sample begins with `pairs` keys, each followed by its
 * value; then every key is asked once, at distances drawn from a power law, and the target there is its value. Keys are different
 * from each other and below vocabulary / 2, values are not below it; between the queries stands token 0. seed, stream and index
 * name the random numbers. */
void lm_mqar_sample(uint64_t seed, uint64_t stream, uint64_t index, int64_t T, int64_t pairs, int64_t vocabulary, int32_t *tokens,
                    int32_t *targets);

/* The numbers of pairs that a task with at most `pairs` mixes: pairs, pairs / 2, ... down to 4, at most LM_MQAR_LEVELS of them.
 * Returns how many; level 0 is the most. */
#define LM_MQAR_LEVELS 6
int lm_mqar_levels(int64_t pairs, int64_t levels[LM_MQAR_LEVELS]);

/* A number that two texts have in common only by chance. */
uint64_t lm_data_fingerprint(const uint8_t *bytes, int64_t count);

#endif
