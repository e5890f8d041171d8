/* Arrays of indices: of a caller's sequences, and of their slots in a pool of states. */
#ifndef GDN2_API_INDICES_H
#define GDN2_API_INDICES_H
#include "api/problem.h"

/* The type is one of gdn2_index, and the array of so many, which may be NULL, is aligned to it and lies in no output. */
gdn2_status gdn2_check_indices(const char *name, const void *indices, gdn2_index type, size_t count, gdn2_places *places);

/* Each of N slots is -1 or from 0 to count - 1, and no two but those of -1 are alike. Asks for no memory. count_name: as the
 * sentence has it. */
gdn2_status gdn2_check_slots(const char *name, const void *slots, gdn2_index type, int64_t N, const char *count_name,
                             int64_t count);
#endif
