#include "api/overlap.h"
#include <string.h>

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* No gaps between the lowest and the highest element: each axis steps over exactly those that are packed below it. */
static int is_dense(const gdn2_place *x) {
  unsigned left = 0;
  for (int axis = 0; axis < x->axes; axis++)
    if (x->size[axis] > 1 && x->stride[axis] != 0) left |= 1u << axis;
  for (int64_t packed = 1; left;) {
    int next = -1;
    for (int axis = 0; axis < x->axes; axis++)
      if ((left >> axis & 1) && magnitude(x->stride[axis]) == packed) next = axis;
    if (next < 0) return 0;
    packed *= x->size[next];
    left &= ~(1u << next);
  }
  return 1;
}

/* The first and the lowest element of y, which is another one where a stride is negative: is one of them an element of x? */
static int holds(const gdn2_place *x, const gdn2_place *y) {
  const uintptr_t first = (uintptr_t)y->data;
  const int within = (first >= x->low && first < x->end) || (y->low >= x->low && y->low < x->end);
  return within && is_dense(x);
}

static int may_be(const gdn2_place *x, const gdn2_place *y) {
  for (int i = 0; i < 2; i++)
    if (x->in_place[i] && strcmp(x->in_place[i], y->name) == 0) return 1;
  return 0;
}

static int same_layout(const gdn2_place *x, const gdn2_place *y) {
  int same = x->dtype == y->dtype && x->axes == y->axes;
  for (int axis = 0; same && axis < x->axes; axis++)
    same = x->size[axis] < 2 || y->size[axis] < 2 || x->stride[axis] == y->stride[axis];
  return same;
}

/* x comes after y, their bytes may meet, and one of them is written. */
static gdn2_status check_pair(const gdn2_place *x, const gdn2_place *y) {
  const int one_start = x->data == y->data;
  if (one_start && may_be(x, y)) {
    if (same_layout(x, y)) return GDN2_OK;
    return gdn2_fail(GDN2_ERR_STRIDE, "%s begins where %s does; its dtype and strides must then be the same", x->name, y->name);
  }
  if (!one_start && !holds(x, y) && !holds(y, x)) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s: data is %p, and it overlaps %s at %p; an output must not overlap another tensor",
                   x->name, x->data, y->name, y->data);
}

gdn2_status gdn2_places_add(gdn2_places *places) {
  const gdn2_place *place = &places->at[places->count];
  if (places->query || place->low == place->end) return GDN2_OK;
  for (int i = 0; i < places->count; i++) {
    const gdn2_place *other = &places->at[i];
    if (!(place->written || other->written) || place->low >= other->end || other->low >= place->end) continue;
    const gdn2_status status = check_pair(place, other);
    if (status != GDN2_OK) return status;
  }
  places->count++;
  return GDN2_OK;
}

gdn2_status gdn2_places_add_bytes(gdn2_places *places, const char *name, const void *data, size_t bytes, int written) {
  static const char *const never[2] = {NULL, NULL};
  const uintptr_t low = (uintptr_t)data;
  if (!data || bytes == 0) return GDN2_OK;
  gdn2_place *place = &places->at[places->count];
  /* Without axes it has no gaps. */
  *place = (gdn2_place){.name = name, .in_place = never, .data = data, .written = written, .low = low, .end = low + bytes};
  return gdn2_places_add(places);
}
