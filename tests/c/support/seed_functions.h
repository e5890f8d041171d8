/* Every function of gdn2_seed.h that takes arrays, in one form, for what all of them must refuse. */
#ifndef TEST_SEED_FUNCTIONS_H
#define TEST_SEED_FUNCTIONS_H
#include <stdbool.h>
#include <stddef.h>

#include "gdn2.h"

/* A problem with V = 2 bt > K > bt, so that no two kinds of arrays have the same size, and two chunks, the last one short. */
extern const gdn2_seed_call seed_small_call;

typedef struct seed_argument {
  const char *name;
  size_t count; /* numbers in the array, for seed_small_call */
  bool written, optional;
} seed_argument;

enum { SEED_MOST_ARRAYS = 27, SEED_LARGEST_ARRAY = 512 };

typedef struct seed_function {
  const char *name;
  gdn2_status (*run)(const gdn2_seed_call *call, float *const *array);
  seed_argument arrays[SEED_MOST_ARRAYS + 1]; /* up to the first without a name */
} seed_function;

extern const seed_function seed_functions[];
extern const size_t seed_function_count;
#endif
