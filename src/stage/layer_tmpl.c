/* The stages of the layer parts. */
#include "stage/gate_tmpl.c"
#include "stage/conv_tmpl.c"
#include "stage/conv_backward_tmpl.c"
#include "stage/conv_f64_tmpl.c"
#include "stage/norm_tmpl.c"
#include "stage/norm_f64_tmpl.c"

#define GDN2_CONV_STAGES                                                                                                         \
  {                                                                                                                              \
    .forward = stage_conv_forward, .backward = stage_conv_backward, .finish = stage_conv_finish, .total = stage_conv_total,      \
    .clear = stage_conv_clear                                                                                                    \
  }
#define GDN2_NORM_STAGES                                                                                                         \
  { .forward = stage_norm_forward, .backward = stage_norm_backward, .finish = stage_norm_finish }
