/* The arena map: how the records of a worker lie in its part of the workspace. Each function measures when arena->base is NULL.
 */
#ifndef GDN2_CHUNK_LAYOUT_H
#define GDN2_CHUNK_LAYOUT_H
#include "base/arena.h"
#include "chunk/records.h"

/* kept: see gdn2_keys. The chunks that are kept share one X, given by the driver. */
static inline gdn2_chunk gdn2_layout_chunk(gdn2_arena *arena, gdn2_shape s, int kept) {
  const size_t C = GDN2_CHUNK, keys = C * (size_t)s.Kp, values = C * (size_t)s.Vp;
  gdn2_chunk c = {0};
  c.keys.ld = kept ? s.Kp : 0;
  float **const rows[4] = {&c.keys.alpha, &c.keys.q, &c.keys.k, &c.keys.bk};
  for (int x = 0; x < 4 && kept; x++) *rows[x] = gdn2_arena_floats(arena, keys);
  c.keys.gamma = gdn2_arena_floats(arena, kept ? keys : (size_t)s.Kp);
  c.keys.g_sum = gdn2_arena_floats(arena, (size_t)s.Kp);
  c.keys.factor = gdn2_arena_floats(arena, 2 * C);
  c.keys.gamma_n = gdn2_arena_floats(arena, (size_t)s.Kp);
  c.keys.EQ = gdn2_arena_floats(arena, 2 * keys);
  c.scores.P = gdn2_arena_floats(arena, C * C);
  c.scores.T = gdn2_arena_floats(arena, C * C);
  c.scores.Ktail = gdn2_arena_floats(arena, keys);
  c.X = kept ? NULL : gdn2_arena_floats(arena, 2 * values);
  c.R = gdn2_arena_floats(arena, values);
  return c;
}

static inline gdn2_grad gdn2_layout_grad(gdn2_arena *arena, gdn2_shape s) {
  const size_t C = GDN2_CHUNK, keys = C * (size_t)s.Kp, values = C * (size_t)s.Vp;
  gdn2_grad d = {0};
  d.DY = gdn2_arena_floats(arena, 2 * values);
  d.Rt = gdn2_arena_floats(arena, values);
  d.dTP = gdn2_arena_floats(arena, 2 * C * C);
  d.DYt = gdn2_arena_floats(arena, 2 * values);
  d.room = gdn2_arena_floats(arena, 2 * C * GDN2_PANEL);
  d.DYS = gdn2_arena_floats(arena, 2 * keys);
  d.dKt = gdn2_arena_floats(arena, keys);
  d.through = gdn2_arena_floats(arena, (size_t)s.Kp);
  return d;
}

/* Rows that wait: `tokens` of them for each gradient named by a flag. */
static inline gdn2_wait gdn2_layout_wait(gdn2_arena *arena, gdn2_shape s, int64_t tokens, const int wanted[4]) {
  gdn2_wait wait = {NULL, NULL, NULL, NULL};
  float **const rows[4] = {&wait.dq, &wait.dk, &wait.dg, &wait.db};
  for (int x = 0; x < 4; x++)
    if (wanted[x]) *rows[x] = gdn2_arena_floats(arena, (size_t)tokens * (size_t)s.Kp);
  return wait;
}
#endif
