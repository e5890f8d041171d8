#include "api/check.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

gdn2_status gdn2_check_not_negative(const char *name, int64_t value) {
  if (value >= 0) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must not be negative", name, value);
}

gdn2_status gdn2_check_range(const char *name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "%s is %" PRId64 "; it must be from %" PRId64 " to %" PRId64, name, value, low, high);
}

gdn2_status gdn2_check_flag(const char *name, int value, int most) {
  if (value >= 0 && value <= most) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is %d; it must be from 0 to %d", name, value, most);
}

gdn2_status gdn2_check_finite(const char *name, double value, int f64) {
  if (f64 ? isfinite(value) : isfinite((float)value)) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is %g; it must be finite as a %s", name, value, f64 ? "float64" : "float32");
}

enum { MOST_AXES = 5 };

static int axes_of(const gdn2_expect *e) { return e->moments ? 5 : 4; }

static const char *axis_name(const gdn2_expect *e, int axis) {
  static const char *const token[] = {"batch", "time", "head", "channel"}, *const state[] = {"batch", "head", "key", "value"};
  static const char *const states[] = {"row", "moment", "head", "key", "value"};
  if (e->axes) return e->axes[axis];
  return e->moments ? states[axis] : e->state ? state[axis] : token[axis];
}

/* "2 x 3 x 4 x 5" */
typedef struct {
  char text[MOST_AXES * 24];
} size_text;

static size_text sizes_of(const gdn2_expect *e) {
  size_text x = {""};
  for (int axis = 0, at = 0; axis < axes_of(e); axis++)
    at += snprintf(x.text + at, sizeof x.text - (size_t)at, "%s%" PRId64, axis ? " x " : "", e->size[axis]);
  return x;
}

/* Strides of a contiguous tensor, where the caller gave none. */
static gdn2_status resolve_strides(const gdn2_expect *e, const int64_t *given, int64_t *stride) {
  const int axes = axes_of(e);
  int any = 0;
  memcpy(stride, given, (size_t)axes * sizeof *stride);
  for (int axis = 0; axis < axes; axis++) any |= given[axis] != 0;
  if (any) return GDN2_OK;
  stride[axes - 1] = 1;
  for (int axis = axes - 2; axis >= 0; axis--) {
    const int64_t below = e->size[axis + 1] > 0 ? e->size[axis + 1] : 1;
    if (__builtin_mul_overflow(stride[axis + 1], below, &stride[axis]))
      return gdn2_fail(GDN2_ERR_SHAPE, "%s has %s elements, more than memory can hold", e->name, sizes_of(e).text);
  }
  return GDN2_OK;
}

/* The bytes from the lowest to the highest element must be an address difference. They are none where a size is 0. */
static gdn2_status check_reach(const gdn2_expect *e, const int64_t *stride, int64_t bytes, gdn2_place *place) {
  int64_t low = 0, high = 0;
  place->low = place->end = 0;
  for (int axis = 0; axis < axes_of(e); axis++) {
    if (e->size[axis] == 0) return GDN2_OK;
    int64_t last;
    int bad = __builtin_mul_overflow(stride[axis], e->size[axis] - 1, &last);
    if (!bad) bad = last < 0 ? __builtin_add_overflow(low, last, &low) : __builtin_add_overflow(high, last, &high);
    if (bad || high > INT64_MAX / 16 || low < INT64_MIN / 16)
      return gdn2_fail(GDN2_ERR_STRIDE,
                       "%s: stride %" PRId64 " of the %s axis over %" PRId64 " elements is beyond the address space", e->name,
                       stride[axis], axis_name(e, axis), e->size[axis]);
  }
  place->low = (uintptr_t)place->data + (uintptr_t)(low * bytes);
  place->end = (uintptr_t)place->data + (uintptr_t)((high + 1) * bytes);
  return GDN2_OK;
}

static gdn2_status check_channel(const gdn2_expect *e, const int64_t *stride) {
  if (e->state || stride[3] == 1 || (e->per_head && stride[3] == 0)) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_STRIDE, "%s: the channel stride is %" PRId64 "; it must be 1%s", e->name, stride[3],
                   e->per_head ? ", or 0 for one number per head" : "");
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* No element of an output may lie where another lies: with the axes sorted by stride, each step must clear all smaller axes. A
 * sufficient condition; layouts that interleave axes in other ways are refused. */
static gdn2_status check_distinct(const gdn2_expect *e, const int64_t *stride) {
  int order[MOST_AXES], count = 0;
  for (int axis = 0; axis < axes_of(e); axis++) {
    if (e->size[axis] == 0) return GDN2_OK;
    if (e->size[axis] == 1 || (axis == 3 && e->per_head && stride[3] == 0)) continue;
    int at = count++;
    for (; at > 0 && magnitude(stride[order[at - 1]]) > magnitude(stride[axis]); at--) order[at] = order[at - 1];
    order[at] = axis;
  }
  int64_t extent = 0; /* distance from the first to the last element over the smaller axes */
  for (int i = 0; i < count; i++) {
    const int axis = order[i];
    if (magnitude(stride[axis]) <= extent)
      return gdn2_fail(GDN2_ERR_STRIDE, "%s: stride %" PRId64 " of the %s axis makes elements of this output overlap", e->name,
                       stride[axis], axis_name(e, axis));
    extent += magnitude(stride[axis]) * (e->size[axis] - 1);
  }
  return GDN2_OK;
}

static gdn2_status check_dtype(gdn2_dtype dtype, const gdn2_expect *e) {
  const char *lead = e->lead ? e->lead : "q";
  if (e->f64 && dtype != GDN2_F64)
    return gdn2_fail(GDN2_ERR_DTYPE, "%s: dtype is %d; it must be GDN2_F64 (3), as that of %s is", e->name, (int)dtype, lead);
  if (e->f64 || dtype == GDN2_F32 || (!e->only_f32 && (dtype == GDN2_BF16 || dtype == GDN2_F16))) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_DTYPE, "%s: dtype is %d; it must be GDN2_F32 (0)%s%s%s%s", e->name, (int)dtype,
                   e->only_f32 ? "" : ", GDN2_BF16 (1) or GDN2_F16 (2)", dtype == GDN2_F64 ? "; GDN2_F64 (3) only where " : "",
                   dtype == GDN2_F64 ? lead : "", dtype == GDN2_F64 ? " is GDN2_F64" : "");
}

/* A tensor that is there: checked, its strides resolved, and put to the places of the call. */
static gdn2_status check_present(const void *data, gdn2_dtype dtype, const int64_t *given, const gdn2_expect *e, int written,
                                 gdn2_places *places, int64_t *stride) {
  gdn2_status status = check_dtype(dtype, e);
  if (status != GDN2_OK) return status;
  const int size = (int)gdn2_dtype_size(dtype);
  if ((uintptr_t)data % (uintptr_t)size)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "%s: data is %p; it must be aligned to its element size, %d", e->name, data, size);
  gdn2_place *place = &places->at[places->count];
  place->name = e->name;
  place->in_place = e->in_place;
  place->data = data;
  place->dtype = dtype;
  place->written = written;
  place->axes = axes_of(e);
  memcpy(place->size, e->size, sizeof place->size);
  status = resolve_strides(e, given, stride);
  memcpy(place->stride, stride, 4 * sizeof *stride);
  place->stride[4] = e->moments ? stride[4] : 0;
  if (status == GDN2_OK) status = check_channel(e, stride);
  if (status == GDN2_OK) status = check_reach(e, stride, size, place);
  if (status == GDN2_OK && written) status = check_distinct(e, stride);
  return status == GDN2_OK ? gdn2_places_add(places) : status;
}

static gdn2_status absent(const gdn2_expect *e) {
  int64_t count = 1;
  for (int axis = 0; axis < axes_of(e); axis++) count = e->size[axis] == 0 ? 0 : count;
  if (!e->required || count == 0) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s: data is NULL; it must point to %s elements", e->name, sizes_of(e).text);
}

gdn2_status gdn2_check_input(const gdn2_input *tensor, const gdn2_expect *expect, gdn2_places *places, gdn2_view *view) {
  *view = (gdn2_view){.data = NULL};
  if (!tensor->data) return absent(expect);
  view->data = tensor->data;
  view->dtype = tensor->dtype;
  return check_present(tensor->data, tensor->dtype, tensor->stride, expect, 0, places, view->stride);
}

gdn2_status gdn2_check_output(const gdn2_output *tensor, const gdn2_expect *expect, gdn2_places *places, gdn2_view_out *view) {
  *view = (gdn2_view_out){.data = NULL};
  if (!tensor->data) return absent(expect);
  view->data = tensor->data;
  view->dtype = tensor->dtype;
  return check_present(tensor->data, tensor->dtype, tensor->stride, expect, 1, places, view->stride);
}

gdn2_status gdn2_check_inputs(const gdn2_input_check *list, int count, gdn2_places *places) {
  gdn2_status status = GDN2_OK;
  for (int i = 0; i < count && status == GDN2_OK; i++)
    status = gdn2_check_input(list[i].tensor, &list[i].expect, places, list[i].view);
  return status;
}

gdn2_status gdn2_check_outputs(const gdn2_output_check *list, int count, gdn2_places *places) {
  gdn2_status status = GDN2_OK;
  for (int i = 0; i < count && status == GDN2_OK; i++)
    status = gdn2_check_output(list[i].tensor, &list[i].expect, places, list[i].view);
  return status;
}

gdn2_status gdn2_check_states(const gdn2_states *tensor, const gdn2_expect *expect, int written, gdn2_places *places,
                              gdn2_states_view *view) {
  *view = (gdn2_states_view){.data = NULL};
  if (!tensor->data) return absent(expect);
  view->data = tensor->data;
  view->dtype = tensor->dtype;
  return check_present(tensor->data, tensor->dtype, tensor->stride, expect, written, places, view->stride);
}
