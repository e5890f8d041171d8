/* oracle.h - the float64 recurrence on the program's tensors, compared with what the engine made of them.
 *
 * The plain rule has ref/, which shares no code with the library. Grouped heads, packed sequences and inputs that the library
 * finishes have the library's own float64 path, which the tests hold against ref/ and against derivatives by complex steps. */
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

/* Adds an element to a comparison. */
void comparison_add(comparison *c, int64_t index, double computed, double reference);

/* Whether the oracle of these inputs is the library's float64 path. The engine has to compute in float32 then: not what it is
 * compared with. */
int oracle_is_library(const inputs *x, const settings *s);

/* Fills c[OUTPUTS] for the outputs of e->y that are not NULL. *t: seconds. Returns an exit code. */
typedef struct oracle_times {
  double forward, backward;
} oracle_times;
int oracle_compare(const engine *e, comparison *c, oracle_times *t);
/* The same by the library's float64 path. */
int oracle_library_compare(const engine *e, comparison *c, oracle_times *t);

#endif
