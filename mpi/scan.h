/* The exclusive scan of affine maps over the ranks: equations (M3) and (M4) of docs/math.md. */
#ifndef GDN2_MPI_SCAN_H
#define GDN2_MPI_SCAN_H
#include "group.h"

/* Contiguous arrays in the type of the call: c [heads][K][V], M and its transpose left [heads][K][K]. A map is absolute where it
 * does not depend on what comes before; its M and left are not used then. */
typedef struct gdn2_map {
  void *c, *M, *left;
} gdn2_map;

typedef struct gdn2_scan {
  const gdn2_group *group;
  bool reversed; /* from the last rank to the first */
  int64_t heads, K, V;
  gdn2_dtype dtype;        /* GDN2_F32 or GDN2_F64 */
  gdn2_exec exec;          /* of the products */
  gdn2_map own;            /* this rank's: const */
  gdn2_map before;         /* the composition of the maps before it; in the end absolute: c is the state that arrives here */
  gdn2_map sent, received; /* without left */
} gdn2_scan;

/* What the product of two maps is computed with: out = add + left^T right for each head; left [heads][K][K], right, out and add
 * [heads][K][columns]; add may be NULL or out. */
gdn2_forward_args gdn2_scan_product(const gdn2_scan *s, const void *left, const void *right, int64_t columns, const void *add,
                                    void *out);
/* to [heads][K][K] becomes the transpose of from. */
void gdn2_scan_transpose(const gdn2_scan *s, const void *from, void *to);

/* before.c on every rank that continues another (seen in the direction of the scan). */
gdn2_status gdn2_scan_run(gdn2_scan *s);
#endif
