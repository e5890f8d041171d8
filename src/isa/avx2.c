#include "base/macros.h"

#include "isa/vec_avx2.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_avx2, GDN2_ISA_AVX2, &step_stages, &conv_stages, &norm_stages);
