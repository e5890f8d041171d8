/* slices.h - long work in parts: some heads of one batch row at a time, so that a bar can show how far it is. */
#ifndef GDN2_CLI_SLICES_H
#define GDN2_CLI_SLICES_H
#include "inputs.h"
#include "progress.h"

/* Batch rows b to b + B, heads h to h + H. */
typedef struct slice {
  int64_t b, B, h, H;
} slice;

/* Returns an exit code; the first one that is not DONE ends the work. */
typedef int slice_function(void *context, const slice *part);

/* Runs f over slices of one batch row and at most `heads` heads, or over one slice of everything if heads is 0. The bar advances
 * by `weight` for each batch row and head. */
int slices_run(const sizes *n, int64_t heads, slice_function *f, void *context, progress *bar, double weight);

#endif
