#include "compare.h"

#include <math.h>

#include "test.h"

size_t tensor_count(const tensor *t) { return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]); }

double root_mean_square(const double *x, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += x[i] * x[i];
  return count ? sqrt(sum / (double)count) : 0;
}

/* sqrt of the mean squared difference; infinity if got is not finite. */
static double error_of(const float *got, const double *want, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(want[i])) fail_msg("the reference is not finite at element %zu", i);
    if (!isfinite(got[i])) return INFINITY;
    sum += (got[i] - want[i]) * (got[i] - want[i]);
  }
  return count ? sqrt(sum / (double)count) : 0;
}

double relative_error(const float *got, const double *want, size_t count) {
  return error_of(got, want, count) / root_mean_square(want, count);
}

/* The element with the largest difference; one that is not finite counts as the largest. */
static size_t worst(const float *got, const double *want, size_t count) {
  size_t at = 0;
  double largest = -1;
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(got[i])) return i;
    if (fabs(got[i] - want[i]) > largest) {
      largest = fabs(got[i] - want[i]);
      at = i;
    }
  }
  return at;
}

/* "dg[0,17,1,5]" */
static const char *place(const tensor *t, size_t i, char text[96]) {
  const size_t d3 = (size_t)t->shape[3], d2 = (size_t)t->shape[2], d1 = (size_t)t->shape[1];
  snprintf(text, 96, "%s[%zu,%zu,%zu,%zu]", t->name, i / (d1 * d2 * d3), i / (d2 * d3) % d1, i / d3 % d2, i % d3);
  return text;
}

static void judge(const tensor *t, const float *got, const double *want, double error, double size, double bound) {
  char text[96];
  if (getenv("GDN2_TEST_VERBOSE"))
    print_message("    %-8s %9.2e (bound %7.1e, reference %9.2e)\n", t->name, error / size, bound, size);
  if (error <= bound * size) return;
  const size_t i = worst(got, want, tensor_count(t));
  fail_msg("%s: error %.3e above %.1e (reference %.3e); worst %s = %.9g, must be %.9g", t->name, error / size, bound, size,
           place(t, i, text), (double)got[i], want[i]);
}

double expect_close(const tensor *t, const float *got, const double *want, double bound) {
  const size_t count = tensor_count(t);
  const double size = root_mean_square(want, count);
  if (size < 1e-4) fail_msg("%s: the reference is small (%.3e), the comparison would show nothing", t->name, size);
  const double error = error_of(got, want, count);
  judge(t, got, want, error, size, bound);
  return error / size;
}

double expect_close_to_unit(const tensor *t, const float *got, const double *want, double bound, double unit) {
  const size_t count = tensor_count(t);
  const double size = fmax(root_mean_square(want, count), unit);
  const double error = error_of(got, want, count);
  judge(t, got, want, error, size, bound);
  return error / size;
}

void expect_same_bits(const tensor *t, const float *got, const float *want) {
  char text[96];
  const size_t count = tensor_count(t);
  for (size_t i = 0; i < count; i++)
    if (memcmp(got + i, want + i, sizeof *got) != 0)
      fail_msg("%s = %.9g, must have the bits of %.9g", place(t, i, text), (double)got[i], (double)want[i]);
}

void expect_all_zero(const tensor *t, const float *got) {
  char text[96];
  const size_t count = tensor_count(t);
  for (size_t i = 0; i < count; i++)
    if (!(got[i] == 0)) fail_msg("%s = %.9g, must be 0", place(t, i, text), (double)got[i]);
}

uint64_t hash_bits(uint64_t hash, const float *x, size_t count) {
  const unsigned char *bytes = (const unsigned char *)x;
  for (size_t i = 0; i < count * sizeof *x; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}
