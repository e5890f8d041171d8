#include "api/layer.h"
#include <inttypes.h>
#include <stdio.h>

/* Numbers that a thread should have at least: about ten microseconds of them. */
#define NUMBERS_PER_THREAD 16384
/* A product of sizes stays this far below the largest integer: workspaces are a few bytes for each number. */
#define HEADROOM 4096

gdn2_status gdn2_check_not_negative(const char *name, int64_t value) {
  if (value >= 0) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must not be negative", name, value);
}

gdn2_status gdn2_check_range(const char *name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must be from %" PRId64 " to %" PRId64, name, value, low, high);
}

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
  if (exec->threads < 0) return gdn2_fail(GDN2_ERR_ARGUMENT, "exec.threads is %d; it must not be negative", exec->threads);
  const int wanted = gdn2_threads(exec->threads);
  const int64_t useful = numbers / NUMBERS_PER_THREAD;
  *threads = useful < 1 ? 1 : useful < wanted ? (int)useful : wanted;
  return gdn2_table_choose(exec->isa, table);
}

/* float64 is for all tensors of a call. */
static gdn2_status check_wide(gdn2_dtype x_dtype, const char *name, const void *data, gdn2_dtype dtype) {
  if (!data || dtype != GDN2_F64 || x_dtype == GDN2_F64) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_DTYPE, "%s: dtype is GDN2_F64 (3), and that of x is %d; GDN2_F64 must be that of both", name,
                   (int)x_dtype);
}

gdn2_status gdn2_check_layer_inputs(gdn2_dtype x_dtype, const gdn2_layer_input *list, int count) {
  gdn2_status status = GDN2_OK;
  for (int i = 0; i < count && status == GDN2_OK; i++) {
    gdn2_expect expect = list[i].expect;
    expect.only_f64 = x_dtype == GDN2_F64;
    status = check_wide(x_dtype, expect.name, list[i].tensor->data, list[i].tensor->dtype);
    if (status == GDN2_OK) status = gdn2_check_input(list[i].tensor, &expect, list[i].view);
  }
  return status;
}

gdn2_status gdn2_check_layer_outputs(gdn2_dtype x_dtype, const gdn2_layer_output *list, int count) {
  gdn2_status status = GDN2_OK;
  for (int i = 0; i < count && status == GDN2_OK; i++) {
    gdn2_expect expect = list[i].expect;
    expect.only_f64 = x_dtype == GDN2_F64;
    status = check_wide(x_dtype, expect.name, list[i].tensor->data, list[i].tensor->dtype);
    if (status == GDN2_OK) status = gdn2_check_output(list[i].tensor, &expect, list[i].view);
  }
  return status;
}
