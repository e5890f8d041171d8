#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_avx512, GDN2_ISA_AVX512, &step_stages);
/* The same with another decode. */
GDN2_TABLE(gdn2_table_avx512_bf16, GDN2_ISA_AVX512, &gdn2_step_stages_avx512_bf16);
