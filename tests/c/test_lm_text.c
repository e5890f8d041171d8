/* Reading texts: order, limit, and the sentence for every file that cannot be used. */
#include "lm_support.h"
#include "lm/text.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct folder {
  char path[64], one[80], two[80], empty[80];
} folder;

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
  folder *f = calloc(1, sizeof *f);
  if (!f) return -1;
  strcpy(f->path, "lm_text_XXXXXX");
  if (!mkdtemp(f->path)) return -1;
  snprintf(f->one, sizeof f->one, "%s/one", f->path);
  snprintf(f->two, sizeof f->two, "%s/two", f->path);
  snprintf(f->empty, sizeof f->empty, "%s/empty", f->path);
  write_text(f->one, "first "), write_text(f->two, "second"), write_text(f->empty, "");
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  folder *f = *state;
  unlink(f->one), unlink(f->two), unlink(f->empty);
  int bad = rmdir(f->path);
  free(f);
  return bad;
}

static void texts_follow_each_other(void **state) {
  folder *f = *state;
  const char *paths[] = {f->one, f->empty, f->two};
  uint8_t bytes[64];
  lm_text_error error;
  assert_int_equal(lm_text_read(bytes, 64, paths, 3, &error), 12);
  assert_memory_equal(bytes, "first second", 12);
}

static void no_more_than_asked_for(void **state) {
  folder *f = *state;
  const char *paths[] = {f->one, f->two};
  for (int64_t capacity = 1; capacity <= 12; capacity++) {
    uint8_t bytes[16];
    lm_text_error error;
    memset(bytes, '#', sizeof bytes);
    assert_int_equal(lm_text_read(bytes, capacity, paths, 2, &error), capacity);
    assert_memory_equal(bytes, "first second", (size_t)capacity);
    assert_int_equal(bytes[capacity], '#');
  }
}

static void assert_refused(const char *const *paths, int count, const char *file, const char *why) {
  uint8_t bytes[8];
  lm_text_error error = {""};
  assert_int_equal(lm_text_read(bytes, 8, paths, count, &error), -1);
  if (!strstr(error.text, file) || !strstr(error.text, why)) fail_msg("\"%s\" does not say %s, %s", error.text, file, why);
}

static void unusable_files_are_named(void **state) {
  folder *f = *state;
  char missing[96];
  snprintf(missing, sizeof missing, "%s/missing", f->path);
  assert_refused((const char *const[]){missing}, 1, missing, "No such file");
  assert_refused((const char *const[]){f->one, f->two, missing}, 3, missing, "No such file");
  assert_refused((const char *const[]){f->path}, 1, f->path, "directory");
  assert_refused((const char *const[]){f->empty}, 1, f->empty, "empty");
  assert_refused((const char *const[]){f->empty, f->empty}, 2, f->empty, "empty");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(texts_follow_each_other, set_up, tear_down),
      cmocka_unit_test_setup_teardown(no_more_than_asked_for, set_up, tear_down),
      cmocka_unit_test_setup_teardown(unusable_files_are_named, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
