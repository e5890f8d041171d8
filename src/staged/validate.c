/* Do the shapes of a call fit each other? For callers that have arrays with shapes, as the bindings do. */
#include "base/error.h"
#include "gdn2.h"
#include <stdio.h>
#include <string.h>

#define FAIL(...) gdn2_fail(GDN2_ERR_SHAPE, __VA_ARGS__)

/* "(1, 128, 2, 64)" */
typedef struct shape_text {
  char chars[128];
} shape_text;

static shape_text text_of(const gdn2_seed_shape *shape) {
  shape_text text = {"("};
  size_t used = 1;
  for (int i = 0; i < shape->ndim && i < 4; i++)
    used += (size_t)snprintf(text.chars + used, sizeof text.chars - used, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
  (void)snprintf(text.chars + used, sizeof text.chars - used, ")");
  return text;
}

static gdn2_seed_shape shape4(int64_t a, int64_t b, int64_t c, int64_t d) { return (gdn2_seed_shape){4, {a, b, c, d}}; }

static gdn2_status equal(const char *name, const gdn2_seed_shape *shape, const gdn2_seed_shape *wanted, const char *why) {
  if (shape->ndim == 4 && memcmp(shape->dim, wanted->dim, sizeof shape->dim) == 0) return GDN2_OK;
  if (shape->ndim != 4)
    return FAIL("%s has %d dimensions; it must have 4, with shape %s%s", name, shape->ndim, text_of(wanted).chars, why);
  return FAIL("%s has shape %s; it must be %s%s", name, text_of(shape).chars, text_of(wanted).chars, why);
}

static gdn2_status token_tensors(const gdn2_seed_shapes *s, const gdn2_seed_shape *values) {
  const struct {
    const char *name, *why;
    const gdn2_seed_shape *shape, *wanted;
  } tensors[] = {{"k", ", as q", &s->k, &s->q},
                 {"v", ": batch, seq_len, heads of q and the head size of v", &s->v, values},
                 {"w", ", as v", &s->w, values},
                 {"b", ", as q", &s->b, &s->q},
                 {"g", ", as q", &s->g, &s->q}};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    const gdn2_status status = equal(tensors[i].name, tensors[i].shape, tensors[i].wanted, tensors[i].why);
    if (status != GDN2_OK) return status;
  }
  return GDN2_OK;
}

static gdn2_status head_size(const char *name, int64_t size, int strict) {
  if (strict && size != 128)
    return FAIL("%s has d_head %lld; it must be 128, as the seed's kernels assume", name, (long long)size);
  if (size < 1 || size > GDN2_MAX_DIM)
    return FAIL("%s has head size %lld; it must be from 1 to %d", name, (long long)size, GDN2_MAX_DIM);
  return GDN2_OK;
}

static gdn2_status validate(const gdn2_seed_shapes *s, const gdn2_seed_config *config, int strict) {
  if (!s) return gdn2_fail(GDN2_ERR_ARGUMENT, "shapes is NULL; it must point to a gdn2_seed_shapes");
  gdn2_status status = strict ? gdn2_seed_config_check_strict(config) : gdn2_seed_config_check(config);
  if (status != GDN2_OK) return status;
  if (s->q.ndim != 4) return FAIL("q has %d dimensions; it must have 4: batch, seq_len, heads, d_head", s->q.ndim);
  const int64_t *q = s->q.dim;
  for (int axis = 0; axis < 3; axis++)
    if (q[axis] < 0) return FAIL("q has shape %s; no size may be negative", text_of(&s->q).chars);
  if ((status = head_size("q", q[3], strict)) != GDN2_OK) return status;
  if (strict && q[1] % config->bt != 0)
    return FAIL("seq_len is %lld; it must be divisible by config.bt = %d", (long long)q[1], config->bt);
  const int64_t V = strict || s->v.ndim != 4 ? q[3] : s->v.dim[3];
  if ((status = head_size("v", V, strict)) != GDN2_OK) return status;
  const gdn2_seed_shape values = shape4(q[0], q[1], q[2], V), state = shape4(q[0], q[2], q[3], V);
  if ((status = token_tensors(s, &values)) != GDN2_OK) return status;
  return s->h0.ndim == 0 ? GDN2_OK : equal("h0", &s->h0, &state, ": batch, heads, d_head of q, d_head of v");
}

gdn2_status gdn2_seed_validate(const gdn2_seed_shapes *shapes, const gdn2_seed_config *config) {
  return validate(shapes, config, 0);
}

gdn2_status gdn2_seed_validate_strict(const gdn2_seed_shapes *shapes, const gdn2_seed_config *config) {
  return validate(shapes, config, 1);
}
