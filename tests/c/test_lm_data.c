/* Samples for training: windows of a text, and associative recall. */
#include "lm_support.h"
#include "lm/data.h"
#include <stdlib.h>

enum { COUNT = 1000, T = 50 };

static lm_data text_data(uint8_t *bytes, uint64_t seed) {
  uint32_t state = 1;
  for (int i = 0; i < COUNT; i++) bytes[i] = (uint8_t)((state = state * 1103515245u + 12345u) >> 16);
  return (lm_data){
      .task = LM_TEXT, .T = T, .seed = seed, .bytes = bytes, .count = COUNT, .training = lm_data_training(COUNT, 0.2)};
}

/* Where a window begins: fifty random bytes are found in one place. */
static int64_t place_of(const uint8_t *bytes, const int32_t *tokens) {
  for (int64_t at = 0; at + T < COUNT; at++) {
    int64_t t = 0;
    while (t < T && tokens[t] == bytes[at + t]) t++;
    if (t == T) return at;
  }
  return -1;
}

static void windows_are_of_the_training_part(void **state) {
  (void)state;
  uint8_t bytes[COUNT];
  int32_t tokens[T], targets[T];
  const lm_data d = text_data(bytes, 3);
  int64_t low = COUNT, high = 0;
  assert_int_equal(d.training, 800);
  assert_null(lm_data_fault(&d));
  for (uint64_t n = 0; n < 400; n++) {
    lm_data_sample(&d, n, tokens, targets);
    const int64_t at = place_of(bytes, tokens);
    assert_true(at >= 0 && at + T < d.training);
    for (int t = 0; t < T; t++) assert_int_equal(targets[t], bytes[at + t + 1]);
    low = at < low ? at : low, high = at > high ? at : high;
  }
  assert_true(low < 20 && high > 730); /* and from all over it */
}

static void held_out_windows_follow_each_other(void **state) {
  (void)state;
  uint8_t bytes[COUNT];
  int32_t tokens[T], targets[T];
  const lm_data d = text_data(bytes, 3);
  assert_int_equal(lm_data_held(&d, 100), 3); /* of 200 bytes, the last is a target only */
  assert_int_equal(lm_data_held(&d, 2), 2);
  for (int64_t n = 0; n < 3; n++) {
    lm_data_held_sample(&d, n, tokens, targets);
    assert_int_equal(place_of(bytes, tokens), 800 + n * T);
    assert_int_equal(targets[T - 1], bytes[800 + n * T + T]);
  }
}

static void a_sample_depends_on_seed_and_number_alone(void **state) {
  (void)state;
  uint8_t bytes[COUNT];
  int32_t one[T], two[T], targets[T];
  const lm_data d = text_data(bytes, 3), other = text_data(bytes, 4);
  int same = 0;
  for (uint64_t n = 0; n < 20; n++) {
    lm_data_sample(&d, n, one, targets);
    lm_data_sample(&d, 19 - n, two, targets);
    lm_data_sample(&d, n, two, targets);
    assert_memory_equal(one, two, sizeof one);
    lm_data_sample(&other, n, two, targets);
    same += place_of(bytes, one) == place_of(bytes, two);
  }
  assert_true(same < 3);
}

/* What recall promises, checked on the sample itself. */
static void check_recall(const int32_t *tokens, const int32_t *targets, int64_t length, int64_t pairs, int64_t vocabulary) {
  int64_t asked = 0;
  for (int64_t i = 0; i < pairs; i++) {
    const int32_t key = tokens[2 * i], value = tokens[2 * i + 1];
    assert_true(key >= 1 && key < vocabulary / 2 && value >= vocabulary / 2 && value < vocabulary);
    assert_true(targets[2 * i] == -1 && targets[2 * i + 1] == -1);
    for (int64_t j = 0; j < i; j++) assert_true(tokens[2 * j] != key);
    int64_t times = 0;
    for (int64_t t = 2 * pairs; t < length; t++)
      if (tokens[t] == key) {
        times++;
        assert_int_equal(targets[t], value);
      }
    assert_int_equal(times, 1);
  }
  for (int64_t t = 2 * pairs; t < length; t++) {
    assert_true((tokens[t] == 0) == (targets[t] < 0));
    asked += targets[t] >= 0;
  }
  assert_int_equal(asked, pairs);
}

static void recall_asks_every_key_once(void **state) {
  (void)state;
  enum { LENGTH = 130 };
  static const int64_t pairs[] = {1, 5, 32};
  int32_t tokens[LENGTH], targets[LENGTH];
  for (int i = 0; i < 3; i++)
    for (uint64_t n = 0; n < 50; n++) {
      lm_mqar_sample(9, 1, n, LENGTH, pairs[i], 70, tokens, targets);
      check_recall(tokens, targets, LENGTH, pairs[i], 70);
    }
}

/* Place p has weight 1 / (p + 1): with one pair, the first place is taken in 1 of H(room) samples. */
static void distances_follow_the_power_law(void **state) {
  (void)state;
  enum { LENGTH = 34, ROOM = 16, SAMPLES = 20000 };
  int32_t tokens[LENGTH], targets[LENGTH];
  int64_t at[ROOM] = {0};
  double sum = 0;
  for (int p = 0; p < ROOM; p++) sum += 1.0 / (p + 1);
  for (uint64_t n = 0; n < SAMPLES; n++) {
    lm_mqar_sample(1, 2, n, LENGTH, 1, 256, tokens, targets);
    for (int p = 0; p < ROOM; p++) at[p] += targets[2 + 2 * p] >= 0;
  }
  for (int p = 0; p < ROOM; p++) {
    const double part = 1 / ((p + 1) * sum), error = sqrt(part * (1 - part) / (double)SAMPLES);
    assert_true(fabs((double)at[p] / (double)SAMPLES - part) < 4.5 * error);
  }
}

static void levels_halve(void **state) {
  (void)state;
  int64_t level[LM_MQAR_LEVELS];
  assert_int_equal(lm_mqar_levels(32, level), 4);
  assert_true(level[0] == 32 && level[1] == 16 && level[2] == 8 && level[3] == 4);
  assert_int_equal(lm_mqar_levels(3, level), 1);
  assert_int_equal(level[0], 3);
}

/* Every level appears in training, and held-out samples take turns. */
static void task_mixes_levels(void **state) {
  (void)state;
  enum { LENGTH = 64 };
  const lm_data d = {.task = LM_MQAR, .T = LENGTH, .seed = 5, .vocabulary = 64, .pairs = 16};
  int32_t tokens[LENGTH], targets[LENGTH];
  int64_t seen[3] = {0};
  assert_null(lm_data_fault(&d));
  for (uint64_t n = 0; n < 300; n++) {
    int64_t asked = 0;
    lm_data_sample(&d, n, tokens, targets);
    for (int t = 0; t < LENGTH; t++) asked += targets[t] >= 0;
    check_recall(tokens, targets, LENGTH, asked, 64);
    seen[asked == 16 ? 0 : asked == 8 ? 1 : 2]++;
  }
  for (int i = 0; i < 3; i++) assert_true(seen[i] > 70);
  for (int64_t n = 0; n < 9; n++) {
    lm_data_held_sample(&d, n, tokens, targets);
    check_recall(tokens, targets, LENGTH, 16 >> (n % 3), 64);
  }
}

static void faults_are_named(void **state) {
  (void)state;
  const lm_data short_text = {.task = LM_TEXT, .T = 50, .count = 60, .training = 40};
  const lm_data short_end = {.task = LM_TEXT, .T = 50, .count = 100, .training = 90};
  const lm_data crowded = {.task = LM_MQAR, .T = 64, .vocabulary = 256, .pairs = 17};
  const lm_data few_words = {.task = LM_MQAR, .T = 640, .vocabulary = 64, .pairs = 32};
  assert_non_null(strstr(lm_data_fault(&short_text), "training"));
  assert_non_null(strstr(lm_data_fault(&short_end), "validation"));
  assert_non_null(strstr(lm_data_fault(&crowded), "length"));
  assert_non_null(strstr(lm_data_fault(&few_words), "vocabulary"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_of_the_training_part),
      cmocka_unit_test(held_out_windows_follow_each_other),
      cmocka_unit_test(a_sample_depends_on_seed_and_number_alone),
      cmocka_unit_test(recall_asks_every_key_once),
      cmocka_unit_test(distances_follow_the_power_law),
      cmocka_unit_test(levels_halve),
      cmocka_unit_test(task_mixes_levels),
      cmocka_unit_test(faults_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
