#include "pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, LARGE = 4 << 20 };

void *pages_allocate(size_t bytes) {
  size_t room = (bytes + LINE) / LINE * LINE;
  char *memory = aligned_alloc(LINE, room);
#ifdef MADV_HUGEPAGE
  if (memory && room >= LARGE) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (page - (uintptr_t)memory % page) % page;
    (void)madvise(memory + skip, (room - skip) / page * page, MADV_HUGEPAGE); /* a wish: without it everything works too */
  }
#endif
  return memory;
}
