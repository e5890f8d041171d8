#include "api/layer.h"
#include <inttypes.h>
#include <stdio.h>

/* Numbers that a thread should have at least: about ten microseconds of them. */
#define NUMBERS_PER_THREAD 16384
/* A product of sizes stays this far below the largest integer: workspaces are a few bytes for each number. */
#define HEADROOM 4096

gdn2_status gdn2_check_total(const char *names, const int64_t *sizes, int count) {
  char text[160] = "";
  int64_t product = 1;
  int bad = 0, at = 0;
  for (int i = 0; i < count; i++) {
    bad = bad || __builtin_mul_overflow(product, sizes[i] > 0 ? sizes[i] : 1, &product) || product > INT64_MAX / HEADROOM;
    at += snprintf(text + at, sizeof text - (size_t)at, "%s%" PRId64, i ? ", " : "", sizes[i]);
  }
  if (!bad) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s are %s; together they are too large", names, text);
}

gdn2_status gdn2_check_layer_exec(const gdn2_exec *exec, int64_t numbers, int *threads, const gdn2_table **table) {
  return gdn2_check_exec(exec, numbers / NUMBERS_PER_THREAD, threads, table);
}
