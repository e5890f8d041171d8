/* The stages that round much to bfloat16, on AVX-512 with AVX512_BF16: the machine rounds itself. All others are avx512.c's. */
#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/vec.h"

#include "stage/rows_tmpl.c"
#include "stage/exact_activation_tmpl.c"
#include "stage/exact_load_tmpl.c"
#include "stage/step_tmpl.c"
#include "stage/layer_tmpl.c"

#include "isa/table.h"

const gdn2_step_stages gdn2_step_stages_avx512_bf16 = GDN2_STEP_STAGES;
const gdn2_conv_stages gdn2_conv_stages_avx512_bf16 = GDN2_CONV_STAGES;
const gdn2_norm_stages gdn2_norm_stages_avx512_bf16 = GDN2_NORM_STAGES;
