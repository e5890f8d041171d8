/* Tensors laid out with strides in a larger buffer whose gaps are poisoned. */
#ifndef TEST_VIEW_H
#define TEST_VIEW_H
#include "compare.h"
#include "gdn2.h"

typedef struct view {
  tensor t;
  int64_t stride[4];
  size_t span;  /* elements of the buffer, gaps included */
  float *base;  /* span elements between guard pages; all poisoned at first */
  float *first; /* element [0,0,0,0]; behind others where a stride is negative */
} view;

/* Strides as for gdn2_input; none may be 0 unless its axis has one element. */
view view_new(const tensor *t, const int64_t stride[4]);
void view_store(const view *x, const float *contiguous);
void view_load(const view *x, float *contiguous);
/* Fails if an element that the strides do not reach was written. */
void view_expect_gaps(const view *x);
gdn2_input view_input(const view *x);
gdn2_output view_output(const view *x);

/* Strides of a layout whose axes, from the slowest to the fastest, are order[0..3] of the tensor's, with padding[i] more elements
 * after each block of axis i and reversed axes for every i where sign[i] is -1. */
void view_strides(const tensor *t, const int order[4], const int64_t padding[4], const int sign[4], int64_t stride[4]);
#endif
