/* Element types by arithmetic on double, and buffers of them. */
#include <float.h>
#include <math.h>

#include "test.h"
#include "view.h"
#include "width.h"

/* What an element that was not written holds: a NaN of either 16-bit type. */
#define MARK_16 0x7fa5u

typedef struct format {
  const char *name;
  int digits, least; /* of the significand, in bits; exponent of the smallest normal number */
  double largest;
} format;

static format format_of(gdn2_dtype dtype) {
  static const format all[] = {
      [GDN2_F32] = {"float32", 24, -126, FLT_MAX},
      [GDN2_BF16] = {"bfloat16", 8, -126, 255.0 / 128 * 0x1p127},
      [GDN2_F16] = {"float16", 11, -14, 65504},
      [GDN2_F64] = {"float64", 53, -1022, DBL_MAX},
  };
  return all[dtype];
}

const char *width_dtype_name(gdn2_dtype dtype) { return format_of(dtype).name; }

/* The exponent whose unit in the last place x is rounded to. */
static int exponent_of(const format *f, double x) {
  int e;
  frexp(x, &e);
  return e - 1 > f->least ? e - 1 : f->least;
}

double width_round(gdn2_dtype dtype, double x) {
  const format f = format_of(dtype);
  if (!isfinite(x) || x == 0) return x;
  const double unit = ldexp(1, exponent_of(&f, x) - (f.digits - 1)), y = nearbyint(x / unit) * unit;
  return fabs(y) > f.largest ? copysign(INFINITY, x) : copysign(y, x);
}

uint16_t width_encode(gdn2_dtype dtype, double x) {
  const format f = format_of(dtype);
  const double y = width_round(dtype, x);
  const unsigned sign = signbit(y) ? 0x8000u : 0, ones = 0x7fffu >> (f.digits - 1) << (f.digits - 1);
  if (isnan(y)) return (uint16_t)(sign | ones | 1u << (f.digits - 2));
  if (isinf(y)) return (uint16_t)(sign | ones);
  if (y == 0) return (uint16_t)sign;
  /* The leading bit of a normal significand adds one to the exponent field. */
  const int e = exponent_of(&f, y);
  const unsigned significand = (unsigned)(fabs(y) / ldexp(1, e - (f.digits - 1)));
  return (uint16_t)(sign | (((unsigned)(e - f.least) << (f.digits - 1)) + significand));
}

double width_decode(gdn2_dtype dtype, uint16_t bits) {
  const format f = format_of(dtype);
  const unsigned field = (bits & 0x7fffu) >> (f.digits - 1), rest = bits & ((1u << (f.digits - 1)) - 1);
  const double sign = bits & 0x8000u ? -1 : 1;
  if (field == 0x7fffu >> (f.digits - 1)) return rest ? NAN : sign * INFINITY;
  if (field == 0) return sign * ldexp(rest, f.least - (f.digits - 1));
  return sign * ldexp(rest + (1u << (f.digits - 1)), (int)field - 1 + f.least - (f.digits - 1));
}

/* ---- Buffers ---- */

const width_layout width_contiguous = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_END};

static bool is_half(gdn2_dtype dtype) { return dtype == GDN2_BF16 || dtype == GDN2_F16; }
static size_t size_of(gdn2_dtype dtype) { return dtype == GDN2_F64 ? 8 : dtype == GDN2_F32 ? 4 : 2; }

/* The bytes of the mark of one element. */
static const void *mark_of(gdn2_dtype dtype) {
  static const uint32_t words[] = {TEST_POISON, TEST_POISON};
  static const uint16_t half = MARK_16;
  return is_half(dtype) ? (const void *)&half : words;
}

static void mark_all(const width_buffer *x) {
  for (size_t i = 0; i < x->span; i++) memcpy(x->low + i * size_of(x->dtype), mark_of(x->dtype), size_of(x->dtype));
}

static bool is_marked(const width_buffer *x, size_t i) {
  return memcmp(x->low + i * size_of(x->dtype), mark_of(x->dtype), size_of(x->dtype)) == 0;
}

width_buffer width_buffer_new(tensor t, gdn2_dtype dtype, const width_layout *layout, bool is_state, bool per_head) {
  width_buffer x = {.t = t, .dtype = dtype};
  int64_t low = 0, high = 0;
  view_strides(&t, is_state ? layout->state_order : layout->token_order, layout->padding, layout->sign, x.stride);
  if (per_head) x.stride[3] = 0;
  for (int i = 0; i < 4; i++) {
    const int64_t reach = (t.shape[i] - 1) * x.stride[i];
    if (t.shape[i] > 0) *(reach < 0 ? &low : &high) += reach;
  }
  x.span = tensor_count(&t) ? (size_t)(high - low + 1) : 0;
  const size_t bytes = x.span * size_of(dtype), words = (bytes + 3) / 4;
  test_set_place(layout->place);
  x.base = test_floats(words);
  test_set_place(TEST_AT_END);
  x.low = (char *)x.base + (layout->place == TEST_AT_END ? words * 4 - bytes : 0);
  x.first = x.low - (tensor_count(&t) ? low : 0) * (int64_t)size_of(dtype);
  mark_all(&x);
  return x;
}

/* The place of element i, counted in the tensor's own order, behind the lowest. */
static size_t place_of(const width_buffer *x, size_t i) {
  int64_t rest = (int64_t)i, at = (x->first - x->low) / (int64_t)size_of(x->dtype);
  for (int axis = 3; axis >= 0; axis--) {
    at += rest % x->t.shape[axis] * x->stride[axis];
    rest /= x->t.shape[axis];
  }
  return (size_t)at;
}

void width_buffer_store(const width_buffer *x, const double *contiguous) {
  for (size_t i = 0; i < tensor_count(&x->t); i++) {
    const float single = (float)contiguous[i];
    const uint16_t half = is_half(x->dtype) ? width_encode(x->dtype, contiguous[i]) : 0;
    const void *const bytes[] = {&single, &half, &half, &contiguous[i]};
    memcpy(x->low + place_of(x, i) * size_of(x->dtype), bytes[x->dtype], size_of(x->dtype));
  }
}

void width_buffer_load_wide(const width_buffer *x, double *contiguous) {
  assert_int_equal(x->dtype, GDN2_F64);
  for (size_t i = 0; i < tensor_count(&x->t); i++) memcpy(contiguous + i, x->low + 8 * place_of(x, i), 8);
}

void width_buffer_load(const width_buffer *x, float *contiguous, uint16_t *bits) {
  for (size_t i = 0; i < tensor_count(&x->t); i++) {
    const char *at = x->low + place_of(x, i) * size_of(x->dtype);
    uint16_t half;
    if (x->dtype == GDN2_F32) {
      memcpy(contiguous + i, at, 4);
      continue;
    }
    memcpy(&half, at, 2);
    contiguous[i] = (float)width_decode(x->dtype, half);
    if (bits) bits[i] = half;
  }
}

/* Elements that are not addressed hold the mark; `addressed` ones too, if they are to. */
static void expect_marks(const width_buffer *x, bool addressed_too) {
  unsigned char *used = calloc(x->span + 1, 1);
  if (!used) fail_msg("out of memory");
  for (size_t i = 0; !addressed_too && i < tensor_count(&x->t); i++) used[place_of(x, i)] = 1;
  size_t written = x->span;
  for (size_t i = 0; i < x->span && written == x->span; i++)
    if (!used[i] && !is_marked(x, i)) written = i;
  free(used);
  if (written < x->span) fail_msg("%s: element %zu of the buffer was written", x->t.name, written);
  /* Half a word may be left over before the lowest element. */
  const uint32_t poison = TEST_POISON;
  if (memcmp(x->base, &poison, (size_t)(x->low - (char *)x->base)) != 0)
    fail_msg("%s: written before its first element", x->t.name);
}

void width_buffer_expect_gaps(const width_buffer *x) { expect_marks(x, false); }
void width_buffer_expect_untouched(const width_buffer *x) { expect_marks(x, true); }

gdn2_input width_input(const width_buffer *x) {
  return (gdn2_input){x->first, x->dtype, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}

gdn2_output width_output(const width_buffer *x) {
  return (gdn2_output){x->first, x->dtype, {x->stride[0], x->stride[1], x->stride[2], x->stride[3]}};
}
