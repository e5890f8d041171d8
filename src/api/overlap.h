/* Memory that two tensors of a call share. */
#ifndef GDN2_API_OVERLAP_H
#define GDN2_API_OVERLAP_H
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

/* Where a tensor lies. */
typedef struct gdn2_place {
  const char *name;
  const char *const *in_place; /* names of two tensors before it that it may be; read while it is added only */
  const void *data;
  gdn2_dtype dtype;
  int written, axes;
  int64_t size[5], stride[5];
  uintptr_t low, end; /* the bytes from its lowest element to behind its highest */
} gdn2_place;

/* The tensors of a call that were checked so far. query: only the size of a workspace is asked for,
 * and addresses need not be those of the call. */
enum { GDN2_MOST_PLACES = 24 };
typedef struct gdn2_places {
  int count, query;
  gdn2_place at[GDN2_MOST_PLACES];
} gdn2_places;

/* Before the first. The places themselves are left as they are: zeroing them would take a decode step longer than its checks. */
static inline void gdn2_places_start(gdn2_places *places, int query) { places->count = 0, places->query = query; }

/* Adds the tensor at[count], unless it has no elements. Fails where it and one before it have an element in common and either is
 * written, unless it is that tensor, in the same layout, and may be. What is sure is refused: the same first element, or the
 * first or lowest element of one within another that has no gaps. Tensors that interleave in other ways are not taken apart. */
gdn2_status gdn2_places_add(gdn2_places *places);

/* The same for what is no tensor: indices, flags, the workspace. NULL: absent. */
gdn2_status gdn2_places_add_bytes(gdn2_places *places, const char *name, const void *data, size_t bytes, int written);
#endif
