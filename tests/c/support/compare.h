/* Comparisons of a float32 result with float64, with a result that must have the same bits, or with zero. Each failure names the
 * tensor, the place and the values. */
#ifndef TEST_COMPARE_H
#define TEST_COMPARE_H
#include <stddef.h>
#include <stdint.h>

/* What is compared: shape [d0, d1, d2, d3], contiguous. */
typedef struct tensor {
  const char *name;
  int64_t shape[4];
} tensor;

size_t tensor_count(const tensor *t);

/* ||got - want|| / ||want||; infinity if got is not finite somewhere. Fails the test if want is not finite. */
double relative_error(const float *got, const double *want, size_t count);
double root_mean_square(const double *x, size_t count);

/* Relative L2 error at most bound. Fails too when the reference is small (root mean square below 1e-4): then nothing is shown.
 * Returns the error. With GDN2_TEST_VERBOSE set it is printed. */
double expect_close(const tensor *t, const float *got, const double *want, double bound);

/* The same where the reference may be tiny or zero: ||error|| at most bound * max(||want||, unit * sqrt(count)). */
double expect_close_to_unit(const tensor *t, const float *got, const double *want, double bound, double unit);

void expect_same_bits(const tensor *t, const float *got, const float *want);
void expect_all_zero(const tensor *t, const float *got);

/* FNV-1a over the bits, chained through hash (start with TEST_HASH). */
#define TEST_HASH 0xcbf29ce484222325u
uint64_t hash_bits(uint64_t hash, const float *x, size_t count);
#endif
