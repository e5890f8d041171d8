#include "base/macros.h"

#include "isa/vec_neon.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_neon, GDN2_ISA_NEON, &step_stages, &conv_stages, &norm_stages);
