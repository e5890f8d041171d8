/* outputs.h - the tensors that run computes and check compares. */
#ifndef GDN2_CLI_OUTPUTS_H
#define GDN2_CLI_OUTPUTS_H
#include "inputs.h"

typedef enum output_id {
  OUT_O,
  OUT_H_FINAL,
  OUT_DQ,
  OUT_DK,
  OUT_DV,
  OUT_DG,
  OUT_DB,
  OUT_DW,
  OUT_DBETA, /* dL/dbeta = db + dw, where one beta serves as both */
  OUT_DH0,
  OUT_DA_LOG,
  OUT_DDT_BIAS,
  OUTPUTS
} output_id;

typedef struct outputs {
  void *data[OUTPUTS]; /* contiguous, of the inputs' type; NULL: not computed */
} outputs;

const char *outputs_name(output_id id);
/* The axes, for example "BTHK"; NULL: these inputs have no such output. */
const char *outputs_axes(const inputs *x, output_id id);

/* Memory for o and h_final and, with gradients, for the rest. Returns an exit code. */
int outputs_allocate(outputs *y, const inputs *x, int gradients);
void outputs_free(outputs *y);

/* Can --out be written, and is it none of the inputs? Asked before the work. */
int outputs_check_destination(const outputs *y, const settings *s);
/* Writes all to --out. */
int outputs_write(const outputs *y, const inputs *x, const settings *s);

#endif
