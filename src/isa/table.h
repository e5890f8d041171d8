/* One const table of stages per instruction set. The drivers call through it and do no arithmetic themselves. */
#ifndef GDN2_ISA_TABLE_H
#define GDN2_ISA_TABLE_H
#include "gdn2.h"
#include "stage/conv.h"
#include "stage/exact.h"
#include "stage/matrix.h"
#include "stage/norm.h"
#include "stage/seed.h"
#include "stage/step.h"

typedef struct gdn2_table {
  gdn2_isa isa;
  gdn2_matrix_stages matrix;
  gdn2_exact_stages exact;
  gdn2_seed_stages seed;
  const gdn2_step_stages *step;
  const gdn2_conv_stages *conv;
  const gdn2_norm_stages *norm;
} gdn2_table;

extern const gdn2_table gdn2_table_generic;
#if defined(__x86_64__)
extern const gdn2_table gdn2_table_avx2, gdn2_table_avx512, gdn2_table_avx512_bf16;
/* avx512_bf16.c */
extern const gdn2_step_stages gdn2_step_stages_avx512_bf16;
extern const gdn2_conv_stages gdn2_conv_stages_avx512_bf16;
extern const gdn2_norm_stages gdn2_norm_stages_avx512_bf16;
#elif defined(__aarch64__)
extern const gdn2_table gdn2_table_neon;
#endif

/* The table a call with exec.isa = wanted runs on. Errors: GDN2_ERR_ISA with a sentence. */
gdn2_status gdn2_table_choose(gdn2_isa wanted, const gdn2_table **table);
#endif
