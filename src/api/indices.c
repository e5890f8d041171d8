#include "api/indices.h"
#include <inttypes.h>
#include <stdio.h>

gdn2_status gdn2_check_indices(const char *name, const void *indices, gdn2_index type, size_t count, gdn2_places *places) {
  char type_name[64];
  if (!indices) return GDN2_OK;
  (void)snprintf(type_name, sizeof type_name, "%s_type", name);
  const gdn2_status status = gdn2_check_flag(type_name, (int)type, GDN2_I64);
  if (status != GDN2_OK) return status;
  const size_t size = type == GDN2_I64 ? 8 : 4;
  if ((uintptr_t)indices % size)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is %p; it must be aligned to its element size", name, indices);
  return gdn2_places_add_bytes(places, name, indices, count * size, 0);
}

/* ---- Slots ----------------------------------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  const void *slots;
  gdn2_index type;
  int64_t N;
} slot_list;

static int64_t slot_at(const slot_list *list, int64_t n) { return gdn2_index_at(list->slots, list->type, n); }

static gdn2_status twice(const slot_list *list, int64_t n) {
  return gdn2_fail(GDN2_ERR_ARGUMENT, "%s[%" PRId64 "] is %" PRId64 ", and so is one before it; no two may be alike", list->name,
                   n, slot_at(list, n));
}

static gdn2_status check_pairs(const slot_list *list) {
  for (int64_t n = 1; n < list->N; n++) {
    const int64_t slot = slot_at(list, n);
    for (int64_t m = 0; slot >= 0 && m < n; m++)
      if (slot_at(list, m) == slot) return twice(list, n);
  }
  return GDN2_OK;
}

/* A bit for each slot of a window, window after window: no memory is asked for. */
enum { WINDOW = 1 << 15 };

static gdn2_status check_window(const slot_list *list, int64_t first) {
  uint64_t seen[WINDOW / 64] = {0};
  for (int64_t n = 0; n < list->N; n++) {
    const int64_t slot = slot_at(list, n), at = slot - first;
    if (slot < first || at >= WINDOW) continue;
    const uint64_t bit = UINT64_C(1) << (at % 64);
    if (seen[at / 64] & bit) return twice(list, n);
    seen[at / 64] |= bit;
  }
  return GDN2_OK;
}

/* Whichever takes fewer looks at a slot. */
static gdn2_status check_distinct(const slot_list *list, int64_t count) {
  if (list->N / 2 <= count / WINDOW + 16) return check_pairs(list);
  gdn2_status status = GDN2_OK;
  for (int64_t first = 0; first < count && status == GDN2_OK; first += WINDOW) status = check_window(list, first);
  return status;
}

gdn2_status gdn2_check_slots(const char *name, const void *slots, gdn2_index type, int64_t N, const char *count_name,
                             int64_t count) {
  const slot_list list = {name, slots, type, N};
  for (int64_t n = 0; n < N; n++) {
    const int64_t slot = slot_at(&list, n);
    if (slot < -1 || slot >= count)
      return gdn2_fail(GDN2_ERR_ARGUMENT, "%s[%" PRId64 "] is %" PRId64 "; it must be -1 or from 0 to below %s, %" PRId64, name,
                       n, slot, count_name, count);
  }
  return check_distinct(&list, count);
}
