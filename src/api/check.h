/* Validation at the door: everything behind it may trust what it is given. */
#ifndef GDN2_API_CHECK_H
#define GDN2_API_CHECK_H
#include "api/overlap.h"
#include "base/error.h"
#include "base/view.h"

/* Fails unless 0 <= value. */
gdn2_status gdn2_check_not_negative(const char *name, int64_t value);
/* Fails unless low <= value <= high. */
gdn2_status gdn2_check_range(const char *name, int64_t value, int64_t low, int64_t high);
/* An option, not a size: fails unless 0 <= value <= most. */
gdn2_status gdn2_check_flag(const char *name, int value, int most);

/* A number of the call, in whose arithmetic it must be finite: float32, or float64. */
gdn2_status gdn2_check_finite(const char *name, double value, int f64);

/* What a tensor must be. size: its axes. */
typedef struct gdn2_expect {
  const char *name;
  int64_t size[5];
  int required;
  int state;    /* a state: both inner strides are free */
  int moments;  /* states, with an axis of moments: five axes */
  int per_head; /* channel stride 0 is allowed */
  int only_f32;
  const char *const *axes; /* their names in a sentence; NULL: those of a token tensor or a state */
  int f64;                 /* of a float64 call: float64, and nothing else */
  const char *lead;        /* the tensor whose type makes a call float64; NULL: q */
  const char *in_place[2]; /* the tensors before it in the call that it may be */
} gdn2_expect;

/* Resolve a caller's tensor into a view, or fail with a sentence. places: the tensors of the call before it. */
gdn2_status gdn2_check_input(const gdn2_input *tensor, const gdn2_expect *expect, gdn2_places *places, gdn2_view *view);
gdn2_status gdn2_check_output(const gdn2_output *tensor, const gdn2_expect *expect, gdn2_places *places, gdn2_view_out *view);
/* Lists of them, up to the first that fails. */
typedef struct gdn2_input_check {
  const gdn2_input *tensor;
  gdn2_view *view;
  gdn2_expect expect;
} gdn2_input_check;
typedef struct gdn2_output_check {
  const gdn2_output *tensor;
  gdn2_view_out *view;
  gdn2_expect expect;
} gdn2_output_check;
gdn2_status gdn2_check_inputs(const gdn2_input_check *list, int count, gdn2_places *places);
gdn2_status gdn2_check_outputs(const gdn2_output_check *list, int count, gdn2_places *places);
#define GDN2_COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
/* written: an output, whose elements must not overlap. */
gdn2_status gdn2_check_states(const gdn2_states *tensor, const gdn2_expect *expect, int written, gdn2_places *places,
                              gdn2_states_view *view);
#endif
