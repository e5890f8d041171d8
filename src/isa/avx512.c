#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_avx512, GDN2_ISA_AVX512, &step_stages, &conv_stages, &norm_stages);
/* The same but for the stages that round much to bfloat16. */
GDN2_TABLE(gdn2_table_avx512_bf16, GDN2_ISA_AVX512, &gdn2_step_stages_avx512_bf16, &gdn2_conv_stages_avx512_bf16,
           &gdn2_norm_stages_avx512_bf16);
