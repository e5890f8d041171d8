#include "base/macros.h"

#include "isa/vec_generic.h"
#include "isa/table.inc"

GDN2_TABLE(gdn2_table_generic, GDN2_ISA_GENERIC, &step_stages, &conv_stages, &norm_stages);
