/* Large outputs are written past the caches, where rows are whole cache lines: the same bits as where they are not. */
#include "memory.h"
#include "random.h"
#include "test.h"

/* Beyond what is written through the caches, in every type. 528: whole cache lines of float32, and no whole number of steps. */
enum { LARGE = 33 << 20, D_F32 = 528, D_BF16 = 544, GUARD = 128, FILL = 0x5a };

typedef struct problem {
  gdn2_dtype dtype;
  int64_t T, D;
  size_t bytes; /* of a tensor */
  gdn2_input x, z, dy, weight, bias;
} problem;

typedef struct output {
  char *room, *at; /* GUARD bytes before and behind */
} output;

static output output_new(const problem *p, size_t offset) {
  output o = {.room = aligned_alloc(64, p->bytes + 2 * GUARD)};
  assert_non_null(o.room);
  memset(o.room, FILL, p->bytes + 2 * GUARD);
  o.at = o.room + GUARD - 64 + offset;
  return o;
}

static gdn2_output to(const problem *p, const output *o) { return (gdn2_output){o->at, p->dtype, {0}}; }

/* The same bits, and nothing written around them. Both are gone afterwards. */
static void expect_same(const problem *p, output a, output b) {
  assert_memory_equal(a.at, b.at, p->bytes);
  const output both[] = {a, b};
  for (int n = 0; n < 2; n++) {
    const char *end = both[n].room + p->bytes + 2 * GUARD;
    for (const char *c = both[n].room; c < both[n].at; c++) assert_int_equal(*c, FILL);
    for (const char *c = both[n].at + p->bytes; c < end; c++) assert_int_equal(*c, FILL);
    free(both[n].room);
  }
}

/* Numbers of a type between -2 and 2, or so; a period that no row and no vector has. */
static void *numbers(rng *r, gdn2_dtype dtype, size_t bytes) {
  enum { PERIOD = 4999 };
  char *data = malloc(bytes);
  assert_non_null(data);
  const size_t size = dtype == GDN2_F32 ? 4 : 2;
  for (size_t n = 0; n < PERIOD && n * size < bytes; n++) {
    const float x = (float)rng_uniform(r, -2, 2);
    memcpy(data + n * size, (const char *)&x + (4 - size), size); /* the upper half of a float is a bfloat16 */
  }
  for (size_t done = PERIOD * size; done < bytes; done += PERIOD * size)
    memcpy(data + done, data, bytes - done < PERIOD * size ? bytes - done : PERIOD * size);
  return data;
}

static problem problem_new(rng *r, gdn2_dtype dtype) {
  problem p = {.dtype = dtype, .D = dtype == GDN2_F32 ? D_F32 : D_BF16};
  const size_t row = (size_t)p.D * (dtype == GDN2_F32 ? 4 : 2);
  p.T = LARGE / (int64_t)row;
  p.bytes = (size_t)p.T * row;
  p.x = (gdn2_input){numbers(r, dtype, p.bytes), dtype, {0}};
  p.z = (gdn2_input){numbers(r, dtype, p.bytes), dtype, {0}};
  p.dy = (gdn2_input){numbers(r, dtype, p.bytes), dtype, {0}};
  p.weight = (gdn2_input){numbers(r, GDN2_F32, 4 * 4 * (size_t)p.D), GDN2_F32, {0}};
  p.bias = (gdn2_input){numbers(r, GDN2_F32, 4 * (size_t)p.D), GDN2_F32, {0}};
  return p;
}

static void problem_end(problem *p) {
  free((void *)(uintptr_t)p->x.data);
  free((void *)(uintptr_t)p->z.data);
  free((void *)(uintptr_t)p->dy.data);
  free((void *)(uintptr_t)p->weight.data);
  free((void *)(uintptr_t)p->bias.data);
}

/* Offset 64: rows begin at cache lines. 66 or 68: they do not. */
static size_t offset_of(const problem *p, int n) { return n ? 64 + (p->dtype == GDN2_F32 ? 4 : 2) : 64; }

static void convolve(const problem *p) {
  output y[2], dx[2];
  gdn2_conv_problem c = {.B = 1, .T = p->T, .D = p->D, .W = 4, .silu = 1, .x = p->x, .weight = p->weight, .bias = p->bias};
  for (int n = 0; n < 2; n++) {
    y[n] = output_new(p, offset_of(p, n)), dx[n] = output_new(p, offset_of(p, n));
    const gdn2_exec exec = {.threads = 2 - n};
    const gdn2_conv_forward_args forward = {.struct_size = sizeof forward, .problem = c, .y = to(p, &y[n]), .exec = exec};
    assert_int_equal(gdn2_conv_forward(&forward), GDN2_OK);
    const gdn2_conv_backward_args backward = {
        .struct_size = sizeof backward, .problem = c, .dy = p->dy, .dx = to(p, &dx[n]), .exec = exec};
    assert_int_equal(gdn2_conv_backward(&backward), GDN2_OK);
  }
  expect_same(p, y[0], y[1]);
  expect_same(p, dx[0], dx[1]);
}

static void normalise(const problem *p) {
  output y[2], dx[2], dz[2];
  gdn2_norm_problem c = {.B = 1, .T = p->T, .H = 1, .D = p->D, .x = p->x, .z = p->z, .weight = p->weight};
  for (int n = 0; n < 2; n++) {
    y[n] = output_new(p, offset_of(p, n)), dx[n] = output_new(p, offset_of(p, n)), dz[n] = output_new(p, offset_of(p, n));
    const gdn2_exec exec = {.threads = 2 - n};
    const gdn2_norm_forward_args forward = {.struct_size = sizeof forward, .problem = c, .y = to(p, &y[n]), .exec = exec};
    assert_int_equal(gdn2_norm_forward(&forward), GDN2_OK);
    const gdn2_norm_backward_args backward = {
        .struct_size = sizeof backward, .problem = c, .dy = p->dy, .dx = to(p, &dx[n]), .dz = to(p, &dz[n]), .exec = exec};
    assert_int_equal(gdn2_norm_backward(&backward), GDN2_OK);
  }
  expect_same(p, y[0], y[1]);
  expect_same(p, dx[0], dx[1]);
  expect_same(p, dz[0], dz[1]);
}

static void test_types(void **state) {
  (void)state;
  const gdn2_dtype types[] = {GDN2_F32, GDN2_BF16};
  for (int n = 0; n < 2; n++) {
    rng r = {7};
    problem p = problem_new(&r, types[n]);
    convolve(&p);
    normalise(&p);
    problem_end(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_types)};
  return TEST_RUN(tests);
}
