#include "slices.h"

#include "cli.h"

int slices_run(const sizes *n, int64_t heads, slice_function *f, void *context, progress *bar, double weight) {
  slice whole = {0, n->B, 0, n->H};
  if (!heads) return f(context, &whole);
  for (int64_t b = 0; b < n->B; b++)
    for (int64_t h = 0; h < n->H; h += heads) {
      slice part = {b, 1, h, heads < n->H - h ? heads : n->H - h};
      int code = f(context, &part);
      if (code) return code;
      progress_add(bar, weight * (double)part.H);
    }
  return DONE;
}
