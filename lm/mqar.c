/* mqar.c - samples of multi-query associative recall. */
#include "lm/data.h"
#include "lm/random.h"

int lm_mqar_levels(int64_t pairs, int64_t levels[LM_MQAR_LEVELS]) {
  int count = 0;
  for (int64_t n = pairs; count == 0 || (n >= 4 && count < LM_MQAR_LEVELS); n /= 2) levels[count++] = n;
  return count;
}

/* The random numbers of one sample, one after the other. */
typedef struct draws {
  uint64_t seed, stream, next;
} draws;

static int32_t draw_from(draws *d, int64_t low, int64_t count) {
  return (int32_t)(low + (int64_t)(lm_random_bits(d->seed, d->stream, d->next++) % (uint64_t)count));
}

/* `pairs` different numbers from low .. high-1, to every second place of out: Floyd's method, in which number i is drawn from
 * all but the last pairs - i - 1, and the last of those takes the place of one that is there already. */
static void choose(int32_t *out, int64_t pairs, int64_t low, int64_t high, draws *d) {
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t count = high - low - pairs + i + 1;
    int32_t pick = draw_from(d, low, count);
    for (int64_t j = 0; j < i; j++)
      if (out[2 * j] == pick) pick = (int32_t)(low + count - 1);
    out[2 * i] = pick;
  }
}

/* One of the free places 0 .. room-1, place p with weight 1 / (p + 1); free: no target stands at 2 p. */
static int64_t free_place(const int32_t *targets, int64_t room, draws *d) {
  double sum = 0;
  for (int64_t p = 0; p < room; p++) sum += targets[2 * p] < 0 ? 1 / (double)(p + 1) : 0;
  double left = lm_random_uniform(d->seed, d->stream, d->next++) * sum;
  int64_t last = 0;
  for (int64_t p = 0; p < room; p++) {
    if (targets[2 * p] >= 0) continue;
    last = p;
    left -= 1 / (double)(p + 1);
    if (left < 0) break;
  }
  return last;
}

void lm_mqar_sample(uint64_t seed, uint64_t stream, uint64_t index, int64_t T, int64_t pairs, int64_t vocabulary, int32_t *tokens,
                    int32_t *targets) {
  draws d = {seed, lm_random_bits(seed, stream, index), 0};
  for (int64_t t = 0; t < T; t++) tokens[t] = 0, targets[t] = -1;
  choose(tokens, pairs, 1, vocabulary / 2, &d);
  for (int64_t i = 0; i < pairs; i++) tokens[2 * i + 1] = draw_from(&d, vocabulary / 2, vocabulary - vocabulary / 2);
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t at = 2 * pairs + 2 * free_place(targets + 2 * pairs, (T - 2 * pairs) / 2, &d);
    tokens[at] = tokens[2 * i];
    targets[at] = tokens[2 * i + 1];
  }
}
