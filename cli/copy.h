/* copy.h - what memory can do: the C library's copy of a large array by all threads at once. */
#ifndef GDN2_CLI_COPY_H
#define GDN2_CLI_COPY_H
#include <stddef.h>

typedef struct copy {
  char *from, *to; /* NULL: not started */
  size_t bytes;    /* of each */
  int threads;
} copy;

/* Two arrays that together have `traffic` bytes: a copy reads one half of them and writes the other. Returns an exit code. */
int copy_start(copy *c, int threads, size_t traffic);
void copy_end(copy *c);

/* Seconds of one copy, the mean of `runs` in a row. */
double copy_seconds(const copy *c, int runs);

#endif
