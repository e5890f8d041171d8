/* Buffers of any element type, and what is expected of them. */
#include <ctype.h>
#include <float.h>
#include <math.h>

#include "layer.h"
#include "test.h"
#include "view.h"
#include "width.h"

static size_t size_of(gdn2_dtype dtype) { return dtype == GDN2_F64 ? 8 : dtype == GDN2_F32 ? 4 : 2; }

double layer_round(gdn2_dtype dtype, double x) { return dtype == GDN2_F64 ? x : width_round(dtype, x); }

static const slab_layout contiguous_layout = {{0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}};

static void *memory(size_t bytes, gdn2_dtype dtype, char **low) {
  const size_t words = (bytes + 3) / 4;
  if (dtype == GDN2_F64) return *low = (char *)test_doubles(bytes / 8);
  char *base = (char *)test_floats(words);
  memset(base, 0xff, words * 4);
  *low = base + (words * 4 - bytes);
  return base;
}

slab slab_new(tensor t, gdn2_dtype dtype, const slab_layout *layout) {
  slab x = {.t = t, .dtype = dtype, .dense = !layout};
  int64_t low = 0, high = 0;
  if (!layout) layout = &contiguous_layout;
  view_strides(&t, layout->order, layout->padding, layout->sign, x.stride);
  for (int i = 0; i < 4; i++) {
    const int64_t reach = (t.shape[i] - 1) * x.stride[i];
    if (t.shape[i] > 0) *(reach < 0 ? &low : &high) += reach;
  }
  const bool empty = tensor_count(&t) == 0;
  x.span = empty ? 0 : (size_t)(high - low + 1);
  x.base = memory(x.span * size_of(dtype), dtype, &x.low);
  x.first = x.low - (empty ? 0 : low) * (int64_t)size_of(dtype);
  return x;
}

/* The address of element i, counted in the tensor's own order. */
static char *place_of(const slab *x, size_t i) {
  int64_t rest = (int64_t)i, at = 0;
  if (x->dense) return x->first + i * size_of(x->dtype);
  for (int axis = 3; axis >= 0; axis--) {
    at += rest % x->t.shape[axis] * x->stride[axis];
    rest /= x->t.shape[axis];
  }
  return x->first + at * (int64_t)size_of(x->dtype);
}

void slab_put(const slab *x, const double *contiguous) {
  for (size_t i = 0; i < tensor_count(&x->t); i++) {
    const float single = (float)contiguous[i];
    const uint16_t half = size_of(x->dtype) == 2 ? width_encode(x->dtype, contiguous[i]) : 0;
    const void *from = x->dtype == GDN2_F64 ? (const void *)&contiguous[i] : x->dtype == GDN2_F32 ? (const void *)&single : &half;
    memcpy(place_of(x, i), from, size_of(x->dtype));
  }
}

double *slab_get(const slab *x) {
  const size_t count = tensor_count(&x->t);
  double *to = test_doubles(count);
  for (size_t i = 0; i < count; i++) {
    float single = 0;
    uint16_t half = 0;
    void *into = x->dtype == GDN2_F64 ? (void *)&to[i] : x->dtype == GDN2_F32 ? (void *)&single : &half;
    memcpy(into, place_of(x, i), size_of(x->dtype));
    if (x->dtype == GDN2_F32) to[i] = (double)single;
    if (size_of(x->dtype) == 2) to[i] = width_decode(x->dtype, half);
  }
  return to;
}

static bool is_marked(const char *at, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)at[i] != 0xff) return false;
  return true;
}

static void expect_marks(const slab *x, bool addressed_too) {
  const size_t size = size_of(x->dtype);
  unsigned char *used = calloc(x->span + 1, 1);
  if (!used) fail_msg("out of memory");
  for (size_t i = 0; !addressed_too && i < tensor_count(&x->t); i++) used[(size_t)(place_of(x, i) - x->low) / size] = 1;
  size_t written = x->span;
  for (size_t i = 0; i < x->span && written == x->span; i++)
    if (!used[i] && !is_marked(x->low + i * size, size)) written = i;
  free(used);
  if (written < x->span) fail_msg("%s: element %zu of the buffer was written", x->t.name, written);
}

void slab_expect_gaps(const slab *x) { expect_marks(x, false); }
void slab_expect_untouched(const slab *x) { expect_marks(x, true); }

gdn2_input slab_input(const slab *x) {
  return (gdn2_input){x->first, x->dtype, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}
gdn2_output slab_output(const slab *x) {
  return (gdn2_output){x->first, x->dtype, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}

double *layer_normal(rng *r, gdn2_dtype dtype, size_t count, double deviation) {
  double *x = test_doubles(count);
  for (size_t i = 0; i < count; i++) x[i] = layer_round(dtype, deviation * rng_normal(r));
  return x;
}

/* ---- Judgement ---- */

double layer_error(const double *got, const double *want, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(want[i])) fail_msg("the reference is not finite at element %zu", i);
    if (!isfinite(got[i])) return INFINITY;
    sum += (got[i] - want[i]) * (got[i] - want[i]);
  }
  return sqrt(sum / (double)(count ? count : 1)) / root_mean_square(want, count);
}

double layer_bound(gdn2_dtype dtype) { return dtype == GDN2_F64 ? 2e-15 : 1e-6; }

void layer_expect_close(tensor t, gdn2_dtype dtype, const double *got, const double *want, double bound) {
  const size_t count = tensor_count(&t);
  double *rounded = test_doubles(count);
  if (count == 0) return;
  for (size_t i = 0; i < count; i++) rounded[i] = layer_round(dtype, want[i]);
  const double size = root_mean_square(want, count), error = layer_error(got, want, count);
  const double rounding = layer_error(rounded, want, count);
  if (size < 1e-4) fail_msg("%s: the reference is small (%.3e): nothing is shown", t.name, size);
  if (getenv("GDN2_TEST_VERBOSE")) print_message("    %-8s %9.2e (rounding %8.1e)\n", t.name, error, rounding);
  if (!(error <= rounding + bound))
    fail_msg("%s: error %.3e; rounding once costs %.3e, and %.1e is allowed above it", t.name, error, rounding, bound);
}

void layer_expect_equal(tensor t, const double *got, const double *want) {
  for (size_t i = 0; i < tensor_count(&t); i++)
    if (memcmp(&got[i], &want[i], sizeof *got) != 0)
      fail_msg("%s: element %zu is %.17g, must be %.17g", t.name, i, got[i], want[i]);
}

/* Does the sentence hold the name as a word of its own? */
static bool names(const char *sentence, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = strstr(sentence, name); at; at = strstr(at + 1, name)) {
    const bool starts = at == sentence || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    const bool ends = !(isalnum((unsigned char)at[length]) || at[length] == '_');
    if (starts && ends) return true;
  }
  return false;
}

void layer_expect_sentence(gdn2_status got, gdn2_status want, const char *name) {
  if (got != want) fail_msg("wrong %s: %s, must be %s", name, gdn2_status_name(got), gdn2_status_name(want));
  if (!names(gdn2_last_error(), name)) fail_msg("the sentence does not name %s: \"%s\"", name, gdn2_last_error());
  if (strlen(gdn2_last_error()) < strlen(name) + 10) fail_msg("the sentence says too little: \"%s\"", gdn2_last_error());
}
