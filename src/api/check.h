/* Validation at the door: everything behind it may trust what it is given. */
#ifndef GDN2_API_CHECK_H
#define GDN2_API_CHECK_H
#include "base/error.h"
#include "base/view.h"

/* What a tensor must be. size: its axes. */
typedef struct gdn2_expect {
  const char *name;
  int64_t size[5];
  int required;
  int state;    /* a state: both inner strides are free */
  int moments;  /* states, with an axis of moments: five axes */
  int per_head; /* channel stride 0 is allowed */
  int only_f32, only_f64;
  const char *const *axes; /* their names in a sentence; NULL: those of a token tensor or a state */
  int f64;                 /* of a float64 call: float64 too */
} gdn2_expect;

/* Resolve a caller's tensor into a view, or fail with a sentence. */
gdn2_status gdn2_check_input(const gdn2_input *tensor, const gdn2_expect *expect, gdn2_view *view);
gdn2_status gdn2_check_output(const gdn2_output *tensor, const gdn2_expect *expect, gdn2_view_out *view);
/* written: an output, whose elements must not overlap. */
gdn2_status gdn2_check_states(const gdn2_states *tensor, const gdn2_expect *expect, int written, gdn2_states_view *view);
#endif
