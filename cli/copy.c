#include "copy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "pages.h"

enum { LINE = 64 };

/* The part of thread `index` of `count`, in whole lines. */
static void copy_part(const copy *c, size_t index, size_t count) {
  size_t lines = (c->bytes + LINE - 1) / LINE, first = lines * index / count * LINE, last = lines * (index + 1) / count * LINE;
  if (last > c->bytes) last = c->bytes;
  if (first < last) memcpy(c->to + first, c->from + first, last - first);
}

static void copy_once(const copy *c) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(c->threads) schedule(static, 1)
#endif
  for (int i = 0; i < c->threads; i++) copy_part(c, (size_t)i, (size_t)c->threads);
}

int copy_start(copy *c, int threads, size_t traffic) {
  size_t bytes = traffic / 2;
  *c = (copy){pages_allocate(bytes), pages_allocate(bytes), bytes, threads};
  if (!c->from || !c->to) return cli_failed("not enough memory for the copy");
  memset(c->from, 1, bytes);
  copy_once(c);
  return DONE;
}

void copy_end(copy *c) {
  free(c->from);
  free(c->to);
}

double copy_seconds(const copy *c, int runs) {
  double start = cli_now();
  for (int i = 0; i < runs; i++) copy_once(c);
  return (cli_now() - start) / runs;
}
