/* oracle_library.c - the library's float64 path as the oracle: the same call on widened inputs. */
#include <stdlib.h>

#include "cli.h"
#include "oracle.h"

/* cu_seqlens stay where they are; the rest is memory of its own. */
static void free_widened(inputs *wide) {
  for (int id = 0; id < INPUTS; id++)
    if (id != IN_CU_SEQLENS) free(wide->data[id]);
}

static int widen(inputs *wide, const inputs *x) {
  *wide = *x;
  wide->f64 = 1;
  for (int id = 0; id < INPUTS; id++)
    if (id != IN_CU_SEQLENS) wide->data[id] = NULL;
  for (int id = 0; id < INPUTS; id++) {
    if (id == IN_CU_SEQLENS || !x->data[id]) continue;
    int64_t count = sizes_count(&x->n, inputs_axes(x, (input_id)id));
    double *data = wide->data[id] = malloc((size_t)count * sizeof *data + 1);
    if (!data) return cli_failed("not enough memory for the oracle");
    for (int64_t i = 0; i < count; i++) data[i] = inputs_number(x, x->data[id], i);
  }
  return DONE;
}

static int compute(engine *e, oracle_times *t) {
  progress bar = progress_start(e->s->progress, "oracle", engine_work(e));
  double start = cli_now();
  int code = engine_forward(e, &bar);
  double middle = cli_now();
  if (!code && e->y->data[OUT_DQ]) code = engine_backward(e, &bar);
  *t = (oracle_times){middle - start, cli_now() - middle};
  progress_end(&bar);
  return code;
}

static void compare(const engine *e, const engine *exact, comparison *c) {
  for (int id = 0; id < OUTPUTS; id++) {
    const void *computed = e->y->data[id], *reference = exact->y->data[id];
    int64_t count = computed ? sizes_count(&e->x->n, outputs_axes(e->x, (output_id)id)) : 0;
    for (int64_t i = 0; i < count; i++)
      comparison_add(&c[id], i, inputs_number(e->x, computed, i), inputs_number(exact->x, reference, i));
  }
}

int oracle_library_compare(const engine *e, comparison *c, oracle_times *t) {
  inputs x;
  outputs y = {{NULL}};
  engine exact = *e;
  exact.x = &x;
  exact.y = &y;
  int code = widen(&x, e->x);
  if (!code) code = outputs_allocate(&y, &x, e->y->data[OUT_DQ] != NULL);
  if (!code) code = compute(&exact, t);
  if (!code) compare(e, &exact, c);
  free_widened(&x);
  outputs_free(&y);
  return code;
}
