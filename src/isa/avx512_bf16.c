/* Decode on AVX-512 with AVX512_BF16: the machine rounds to bfloat16 itself. All other stages are avx512.c's. */
#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/vec.h"

#include "stage/rows_tmpl.c"
#include "stage/exact_activation_tmpl.c"
#include "stage/exact_load_tmpl.c"
#include "stage/step_tmpl.c"

#include "isa/table.h"

const gdn2_step_stages gdn2_step_stages_avx512_bf16 = GDN2_STEP_STAGES;
