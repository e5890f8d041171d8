#include "staged/arrays.h"
#include "base/error.h"
#include <string.h>

static int64_t numbers_of(const gdn2_seed_frame *f, gdn2_seed_kind kind) {
  const int64_t tasks = gdn2_seed_tasks(f), rows = f->B * f->L * f->H;
  switch (kind) {
  case GDN2_SEED_KEY_TOKENS: return rows * f->dims.K;
  case GDN2_SEED_VALUE_TOKENS: return rows * f->dims.V;
  case GDN2_SEED_KEY_CHUNKS: return tasks * gdn2_seed_keys(f);
  case GDN2_SEED_VALUE_CHUNKS: return tasks * gdn2_seed_values(f);
  case GDN2_SEED_SCORES: return tasks * gdn2_seed_scores_size(f);
  case GDN2_SEED_STATES: return tasks * gdn2_seed_state(f);
  case GDN2_SEED_LAST_ROWS: return tasks * f->dims.K;
  case GDN2_SEED_STATE: return gdn2_seed_heads(f) * gdn2_seed_state(f);
  }
  return 0;
}

static int meet(const gdn2_seed_frame *f, const gdn2_seed_array *x, const gdn2_seed_array *y) {
  if (!x->data || !y->data) return 0;
  const uintptr_t of_x = (uintptr_t)numbers_of(f, x->kind) * sizeof(float),
                  of_y = (uintptr_t)numbers_of(f, y->kind) * sizeof(float);
  const uintptr_t a = (uintptr_t)x->data, b = (uintptr_t)y->data;
  return of_x > 0 && of_y > 0 && a < b + of_y && b < a + of_x;
}

static gdn2_status check_present(const char *name, size_t length, const void *data) {
  if (!data) return gdn2_fail(GDN2_ERR_ARGUMENT, "%.*s is NULL; it must point to the array", (int)length, name);
  if ((uintptr_t)data % sizeof(float))
    return gdn2_fail(GDN2_ERR_ARGUMENT, "%.*s is %p; it must be aligned to 4 bytes", (int)length, name, data);
  return GDN2_OK;
}

gdn2_status gdn2_seed_present(const char *names, int count, const void *const pointers[]) {
  gdn2_status status = GDN2_OK;
  for (int i = 0; i < count && status == GDN2_OK; i++, names += strcspn(names, ",") + 2)
    status = check_present(names, strcspn(names, ","), pointers[i]);
  return status;
}

static gdn2_status check_all_present(const gdn2_seed_call *call, const gdn2_seed_array *arrays, int count) {
  gdn2_status status = GDN2_SEED_NEED(call);
  for (int i = 0; i < count && status == GDN2_OK; i++)
    if (arrays[i].data || !arrays[i].optional) status = check_present(arrays[i].name, strlen(arrays[i].name), arrays[i].data);
  return status;
}

static gdn2_status check_apart(const gdn2_seed_frame *frame, const gdn2_seed_array *arrays, int count) {
  for (int i = 1; i < count; i++)
    for (int j = 0; j < i; j++) {
      const gdn2_seed_array *x = &arrays[i], *y = &arrays[j];
      if ((x->written || y->written) && meet(frame, x, y))
        return gdn2_fail(GDN2_ERR_ARGUMENT, "%s is %p, and it overlaps %s at %p; an output must not overlap another array",
                         x->name, (const void *)x->data, y->name, (const void *)y->data);
    }
  return GDN2_OK;
}

gdn2_status gdn2_seed_frame_open_arrays_with(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_config *config,
                                             const gdn2_seed_array *arrays, int count) {
  gdn2_status status = check_all_present(call, arrays, count);
  if (status == GDN2_OK) status = gdn2_seed_frame_open_with(frame, call, config);
  if (status != GDN2_OK) return status;
  status = check_apart(frame, arrays, count);
  if (status != GDN2_OK) gdn2_seed_frame_close(frame);
  return status;
}

gdn2_status gdn2_seed_frame_open_arrays(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_array *arrays,
                                        int count) {
  gdn2_seed_config config;
  gdn2_status status = check_all_present(call, arrays, count);
  if (status == GDN2_OK) status = gdn2_seed_config_of(call, &config);
  return status == GDN2_OK ? gdn2_seed_frame_open_arrays_with(frame, call, &config, arrays, count) : status;
}
