/* pages.h - memory for measurements. */
#ifndef GDN2_CLI_PAGES_H
#define GDN2_CLI_PAGES_H
#include <stddef.h>

/* `bytes` that begin at a cache line, for free(); NULL: not enough memory. Large arrays ask the system for large pages, as
 * NumPy's do: with small ones a good part of the time goes into finding out where the pages are. */
void *pages_allocate(size_t bytes);
#endif
