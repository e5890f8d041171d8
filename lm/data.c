#include "lm/data.h"
#include "lm/random.h"
#include <stddef.h>

const char *const lm_task_names[] = {"text", "mqar", NULL};

/* Random streams, apart from those of the parameters. */
#define STREAM_TRAINING UINT64_C(0x100000000)
#define STREAM_LEVEL UINT64_C(0x100000001)
#define STREAM_HELD UINT64_C(0x100000002)

const char *lm_data_fault(const lm_data *d) {
  if (d->task == LM_TEXT) {
    if (d->training < d->T + 1)
      return "the part of the text for training is shorter than one sample: shorten --length or give more text";
    if (d->count - d->training < d->T + 1)
      return "the part of the text for validation is shorter than one sample: shorten --length, raise --validation or give more "
             "text";
    return NULL;
  }
  if (d->pairs < 1 || 4 * d->pairs > d->T)
    return "the length must be at least four times the pairs: pairs, and as much room to ask";
  if (d->pairs > d->vocabulary / 2 - 1) return "the pairs must be fewer than half of the vocabulary: every key is another";
  return NULL;
}

int64_t lm_data_training(int64_t count, double validation) { return count - (int64_t)((double)count * validation); }

/* tokens are T bytes from `at`, and the target of each is the next byte. */
static void window(const lm_data *d, int64_t at, int32_t *tokens, int32_t *targets) {
  for (int64_t t = 0; t < d->T; t++) {
    tokens[t] = d->bytes[at + t];
    targets[t] = d->bytes[at + t + 1];
  }
}

void lm_data_sample(const lm_data *d, uint64_t index, int32_t *tokens, int32_t *targets) {
  if (d->task == LM_TEXT) {
    const uint64_t places = (uint64_t)(d->training - d->T);
    window(d, (int64_t)(lm_random_bits(d->seed, STREAM_TRAINING, index) % places), tokens, targets);
    return;
  }
  int64_t level[LM_MQAR_LEVELS];
  const int levels = lm_mqar_levels(d->pairs, level);
  const uint64_t which = lm_random_bits(d->seed, STREAM_LEVEL, index) % (uint64_t)levels;
  lm_mqar_sample(d->seed, STREAM_TRAINING, index, d->T, level[which], d->vocabulary, tokens, targets);
}

int64_t lm_data_held(const lm_data *d, int64_t most) {
  if (d->task == LM_MQAR) return most;
  const int64_t whole = (d->count - d->training - 1) / d->T;
  return whole < most ? whole : most;
}

void lm_data_held_sample(const lm_data *d, int64_t index, int32_t *tokens, int32_t *targets) {
  if (d->task == LM_TEXT) {
    window(d, d->training + index * d->T, tokens, targets);
    return;
  }
  int64_t level[LM_MQAR_LEVELS];
  const int levels = lm_mqar_levels(d->pairs, level);
  lm_mqar_sample(d->seed, STREAM_HELD, (uint64_t)index, d->T, level[index % levels], d->vocabulary, tokens, targets);
}

/* FNV-1a, 64 bits. */
uint64_t lm_data_fingerprint(const uint8_t *bytes, int64_t count) {
  uint64_t sum = UINT64_C(0xCBF29CE484222325);
  for (int64_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001B3);
  return sum;
}
