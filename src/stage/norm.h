/* The stages of the RMS norm: some rows of the caller's tensors at a time, row r of each tensor `step` elements behind row r-1.
 */
#ifndef GDN2_STAGE_NORM_H
#define GDN2_STAGE_NORM_H
#include "base/view.h"
#include "gdn2.h"

typedef struct gdn2_norm_rule {
  int64_t D;
  double eps;
  int plus_one;
  gdn2_norm_gate gate;
  int stream;       /* outputs are written past the caches where they can be */
  gdn2_rows weight; /* one row; at == NULL: ones */
} gdn2_norm_rule;

/* x and z; z.at == NULL: no gate. */
typedef struct gdn2_norm_in {
  gdn2_rows x, z;
} gdn2_norm_in;

typedef struct gdn2_norm_grad {
  gdn2_rows dy; /* at == NULL: zeros */
  gdn2_rows_out dx, dz;
  void *dweight; /* [D] added to; float, or double where the call is float64; NULL: not wanted */
  void *scratch; /* [D] of the same type */
} gdn2_norm_grad;

typedef struct gdn2_norm_stages {
  void (*forward)(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, gdn2_rows_out y);
  void (*backward)(const gdn2_norm_rule *rule, const gdn2_norm_in *in, int64_t rows, const gdn2_norm_grad *grad);
  /* After the last of the above in a task. */
  void (*finish)(void);
} gdn2_norm_stages;
#endif
