#include "view.h"

#include "test.h"

typedef void visit(const view *x, float *element, size_t i, void *context);

/* Every element of the tensor in its own order: i counts them. */
static void each(const view *x, visit *f, void *context) {
  size_t i = 0;
  for (int64_t a = 0; a < x->t.shape[0]; a++)
    for (int64_t b = 0; b < x->t.shape[1]; b++)
      for (int64_t c = 0; c < x->t.shape[2]; c++)
        for (int64_t d = 0; d < x->t.shape[3]; d++)
          f(x, x->first + a * x->stride[0] + b * x->stride[1] + c * x->stride[2] + d * x->stride[3], i++, context);
}

view view_new(const tensor *t, const int64_t stride[4]) {
  view x = {.t = *t};
  int64_t low = 0, high = 0;
  for (int i = 0; i < 4; i++) {
    const int64_t reach = (t->shape[i] - 1) * stride[i];
    x.stride[i] = stride[i];
    if (reach < 0) low += reach;
    if (reach > 0) high += reach;
  }
  x.span = (size_t)(high - low + 1);
  x.base = test_floats(x.span);
  x.first = x.base - low;
  return x;
}

static void store(const view *x, float *element, size_t i, void *context) {
  (void)x;
  *element = ((const float *)context)[i];
}

static void load(const view *x, float *element, size_t i, void *context) {
  (void)x;
  ((float *)context)[i] = *element;
}

static void mark(const view *x, float *element, size_t i, void *context) {
  (void)i;
  ((unsigned char *)context)[element - x->base] = 1;
}

void view_store(const view *x, const float *contiguous) {
  float *copy = test_floats(tensor_count(&x->t));
  memcpy(copy, contiguous, tensor_count(&x->t) * sizeof *copy);
  each(x, store, copy);
}

void view_load(const view *x, float *contiguous) { each(x, load, contiguous); }

void view_expect_gaps(const view *x) {
  unsigned char *used = calloc(x->span, 1);
  if (!used) fail_msg("out of memory");
  each(x, mark, used);
  for (size_t i = 0; i < x->span; i++) {
    uint32_t bits;
    memcpy(&bits, x->base + i, sizeof bits);
    if (used[i] || bits == TEST_POISON) continue;
    free(used);
    fail_msg("%s: element %zu of the buffer is not addressed, but was written", x->t.name, i);
  }
  free(used);
}

gdn2_input view_input(const view *x) {
  return (gdn2_input){x->first, GDN2_F32, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}

gdn2_output view_output(const view *x) {
  return (gdn2_output){x->first, GDN2_F32, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}

void view_strides(const tensor *t, const int order[4], const int64_t padding[4], const int sign[4], int64_t stride[4]) {
  int64_t step = 1;
  for (int place = 3; place >= 0; place--) {
    const int axis = order[place];
    stride[axis] = sign[axis] * step;
    step = step * t->shape[axis] + padding[place];
  }
}
