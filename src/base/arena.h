/* An arena: pieces are carved off one block of memory, in order, each aligned to a cache line. With base == NULL nothing is
 * carved and only the bytes are counted, so that one function both measures a layout and lays it out. */
#ifndef GDN2_BASE_ARENA_H
#define GDN2_BASE_ARENA_H
#include <stddef.h>

#define GDN2_ALIGN 64
/* Between two pieces: rows of one chunk lie in a dozen arrays whose sizes are powers of 2; without an offset they would all fall
 * into the same cache sets and push each other out. */
#define GDN2_STAGGER (5 * GDN2_ALIGN)

typedef struct gdn2_arena {
  char *base;
  size_t used;
} gdn2_arena;

/* Room for count floats; NULL while measuring. */
static inline float *gdn2_arena_floats(gdn2_arena *arena, size_t count) {
  const size_t bytes = (count * sizeof(float) + GDN2_ALIGN - 1) / GDN2_ALIGN * GDN2_ALIGN;
  char *at = arena->base ? arena->base + arena->used : NULL;
  arena->used += bytes + GDN2_STAGGER;
  return (float *)(void *)at;
}
#endif
