#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_avx512, GDN2_ISA_AVX512);
