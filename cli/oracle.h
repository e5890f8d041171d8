/* oracle.h - the float64 recurrence on the program's tensors, compared with what the engine made of them. */
#ifndef GDN2_CLI_ORACLE_H
#define GDN2_CLI_ORACLE_H
#include "engine.h"

/* An output of the engine against the oracle's. */
typedef struct comparison {
  int64_t count, nonfinite;  /* elements; those that are not finite on either side */
  double reference2, error2; /* sums of squares over the others */
  double worst_error;        /* largest absolute difference */
  int64_t worst;             /* its flat index */
  double worst_engine, worst_reference;
} comparison;

/* Fills c[OUTPUTS] for the outputs of e->y that are not NULL. *t: seconds. Returns an exit code. */
typedef struct oracle_times {
  double forward, backward;
} oracle_times;
int oracle_compare(const engine *e, comparison *c, oracle_times *t);

#endif
