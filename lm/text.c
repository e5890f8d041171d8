#include "text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int64_t fail(lm_text_error *error, const char *path, const char *what, const char *why) {
  snprintf(error->text, sizeof error->text, "%s: %s%s", path, what, why);
  return -1;
}

static int64_t read_file(uint8_t *bytes, int64_t capacity, const char *path, lm_text_error *error) {
  FILE *file = fopen(path, "rb");
  if (!file) return fail(error, path, "the text cannot be opened: ", strerror(errno));
  errno = 0;
  size_t got = fread(bytes, 1, (size_t)capacity, file);
  int bad = ferror(file), why = errno;
  fclose(file);
  if (bad) return fail(error, path, "the text cannot be read: ", strerror(why));
  return (int64_t)got;
}

int64_t lm_text_read(uint8_t *bytes, int64_t capacity, const char *const *paths, int count, lm_text_error *error) {
  int64_t total = 0;
  for (int i = 0; i < count; i++) {
    int64_t got = read_file(bytes + total, capacity - total, paths[i], error);
    if (got < 0) return -1;
    total += got;
  }
  if (total == 0)
    return fail(error, paths[0], count == 1 ? "the text is empty" : "the texts are all empty, from this one on", "");
  return total;
}
