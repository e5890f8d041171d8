/* engine.h - the library on the program's tensors: the exact rule, and the seed's pipeline. */
#ifndef GDN2_CLI_ENGINE_H
#define GDN2_CLI_ENGINE_H
#include "gdn2.h"
#include "outputs.h"
#include "slices.h"

typedef struct engine {
  const inputs *x;
  outputs *y;
  const settings *s;
  double scale;
  gdn2_isa isa; /* the one that is used */
  int threads;
} engine;

/* Chooses the instruction set and the threads; wrong use if they cannot be had. */
int engine_start(engine *e, const inputs *x, outputs *y, const settings *s);

/* o and h_final; the gradients of y that are not NULL. */
int engine_forward(engine *e, progress *bar);
int engine_backward(engine *e, progress *bar);

int seed_check(const engine *e);
int seed_forward(engine *e, progress *bar);
int seed_backward(engine *e, progress *bar);

/* The library's sentence and the exit code for a status: GDN2_OK is DONE, a lack of memory FAILED, the rest WRONG_USE. */
int engine_code(gdn2_status status);

/* Work of a backward in units of the forward's, for the bar. */
#define BACKWARD_WEIGHT 2.7
/* What the bar's total must be for run and check. */
double engine_work(const engine *e);

#endif
