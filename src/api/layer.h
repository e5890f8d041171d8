/* What the checks of the layer parts share. */
#ifndef GDN2_API_LAYER_H
#define GDN2_API_LAYER_H
#include "api/problem.h"

/* Fails unless 0 <= value. */
gdn2_status gdn2_check_not_negative(const char *name, int64_t value);
/* Fails unless low <= value <= high. */
gdn2_status gdn2_check_range(const char *name, int64_t value, int64_t low, int64_t high);
/* Fails if the product of these sizes is beyond what any arithmetic on addresses can bear. names: as the sentence lists them. */
gdn2_status gdn2_check_total(const char *names, const int64_t *sizes, int count);
/* The workers of a call over so many numbers, and its table: a thread is worth its start only from some number on. */
gdn2_status gdn2_check_layer_exec(const gdn2_exec *exec, int64_t numbers, int *threads, const gdn2_table **table);

/* A tensor with the place where its view goes; x_dtype decides whether all must be float64. */
typedef struct gdn2_layer_input {
  const gdn2_input *tensor;
  gdn2_view *view;
  gdn2_expect expect;
} gdn2_layer_input;
typedef struct gdn2_layer_output {
  const gdn2_output *tensor;
  gdn2_view_out *view;
  gdn2_expect expect;
} gdn2_layer_output;
gdn2_status gdn2_check_layer_inputs(gdn2_dtype x_dtype, const gdn2_layer_input *list, int count);
gdn2_status gdn2_check_layer_outputs(gdn2_dtype x_dtype, const gdn2_layer_output *list, int count);
#endif
