/* The seed's functions: an output that shares a number with any other array of the call is refused, with a sentence that names
 * both, and nothing is written; arrays that only touch each other are taken. */
#include "seed_functions.h"
#include "test.h"

/* A place for each array, none near another. */
static float memory[SEED_MOST_ARRAYS][2 * SEED_LARGEST_ARRAY], before[SEED_MOST_ARRAYS][2 * SEED_LARGEST_ARRAY];

static void fresh(float **array) {
  for (int n = 0; n < SEED_MOST_ARRAYS; n++) {
    for (int i = 0; i < 2 * SEED_LARGEST_ARRAY; i++) memory[n][i] = -(float)(i % 13 + n) / 64;
    array[n] = memory[n] + SEED_LARGEST_ARRAY / 2;
  }
}

static void refused(const seed_function *f, float *const *array, int x, int y) {
  char words[80];
  memcpy(before, memory, sizeof memory);
  const gdn2_status status = f->run(&seed_small_call, array);
  snprintf(words, sizeof words, "it overlaps %s at", f->arrays[x < y ? x : y].name);
  if (status != GDN2_ERR_ARGUMENT || !strstr(gdn2_last_error(), words))
    fail_msg("%s, %s on %s: %d, \"%s\"", f->name, f->arrays[x].name, f->arrays[y].name, (int)status, gdn2_last_error());
  if (strncmp(gdn2_last_error(), f->arrays[x < y ? y : x].name, strlen(f->arrays[x < y ? y : x].name)) != 0)
    fail_msg("%s: \"%s\" does not begin with %s", f->name, gdn2_last_error(), f->arrays[x < y ? y : x].name);
  assert_memory_equal(before, memory, sizeof memory);
}

static void taken(const seed_function *f, float *const *array, int x, int y) {
  const gdn2_status status = f->run(&seed_small_call, array);
  if (status != GDN2_OK) fail_msg("%s, %s beside %s: \"%s\"", f->name, f->arrays[x].name, f->arrays[y].name, gdn2_last_error());
}

/* x moved to where it has the last number of y, the first one, all, and to where it lies right behind and right before. */
static void pair(const seed_function *f, int x, int y) {
  float *array[SEED_MOST_ARRAYS];
  const ptrdiff_t of_x = (ptrdiff_t)f->arrays[x].count, of_y = (ptrdiff_t)f->arrays[y].count;
  const ptrdiff_t together[] = {0, of_y - 1, 1 - of_x}, apart[] = {of_y, -of_x};
  for (int i = 0; i < 3; i++) {
    fresh(array);
    array[x] = array[y] + together[i];
    refused(f, array, x, y);
  }
  for (int i = 0; i < 2; i++) {
    fresh(array);
    array[x] = array[y] + apart[i];
    taken(f, array, x, y);
  }
}

static void test_every_pair(void **state) {
  (void)state;
  for (size_t n = 0; n < seed_function_count; n++) {
    const seed_function *f = &seed_functions[n];
    for (int x = 0; f->arrays[x].name; x++)
      for (int y = 0; f->arrays[y].name; y++)
        if (x != y && f->arrays[x].written) pair(f, x, y);
  }
}

/* Inputs may be one array. */
static void test_one_input_for_all(void **state) {
  (void)state;
  for (size_t n = 0; n < seed_function_count; n++) {
    const seed_function *f = &seed_functions[n];
    float *array[SEED_MOST_ARRAYS];
    fresh(array);
    for (int x = 1; f->arrays[x].name; x++)
      if (!f->arrays[x].written) array[x] = array[0];
    taken(f, array, 0, 0);
  }
}

/* Nothing lies where there are no numbers. */
static void test_empty(void **state) {
  (void)state;
  gdn2_seed_call none = seed_small_call;
  none.B = 0;
  for (size_t n = 0; n < seed_function_count; n++) {
    float *array[SEED_MOST_ARRAYS];
    fresh(array);
    for (int x = 1; x < SEED_MOST_ARRAYS; x++) array[x] = array[0];
    assert_int_equal(seed_functions[n].run(&none, array), GDN2_OK);
  }
}

/* The clip works in place, and nowhere in between. */
static void test_clips(void **state) {
  (void)state;
  gdn2_status (*const clips[])(const gdn2_seed_config *, int64_t, const float *,
                               float *) = {gdn2_seed_sanitize, gdn2_seed_sanitize_h0, gdn2_seed_clip_acc};
  float x[20] = {0};
  for (int i = 0; i < 3; i++) {
    for (int shift = -5; shift <= 5; shift++) {
      const bool right = shift == 0 || shift == 5 || shift == -5;
      assert_int_equal(clips[i](NULL, 5, x + 8, x + 8 + shift), right ? GDN2_OK : GDN2_ERR_ARGUMENT);
      if (!right && !strstr(gdn2_last_error(), "overlaps x at")) fail_msg("\"%s\"", gdn2_last_error());
    }
    assert_int_equal(clips[i](NULL, 0, x + 8, x + 9), GDN2_OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_every_pair), TEST(test_one_input_for_all), TEST(test_empty), TEST(test_clips)};
  return TEST_RUN(tests);
}
