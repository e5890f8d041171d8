/* Decode: the new tokens of one head, its state streamed through once.
 *
 * The columns of a state, one for each value, do not see each other: a part of them is taken through all tokens while it is in
 * the first-level cache. One token on a state whose element type and layout stay as they are works on the caller's memory
 * directly; otherwise the part is carried in float32 from token to token, and rounded once, at the end. */
#include "stage/step.h"
#include "stage/step_tokens_tmpl.c"
#include "stage/step_update_tmpl.c"

/* Floats of a part that is carried: most of a first-level cache. */
#define STEP_CARRY 8192

/* ---- Parts of the caller's state ------------------------------------------------------------------------------------------- */

/* How the values of a head are taken: by rows where its keys lie side by side in memory, by columns where the values do. */
INLINE int keys_are_near(gdn2_state_at x) { return x.at && x.key_step == 1 && x.value_step != 1; }
INLINE int64_t near_step(int by_rows, gdn2_state_at x) { return by_rows ? x.key_step : x.value_step; }
INLINE int64_t far_step(int by_rows, gdn2_state_at x) { return by_rows ? x.value_step : x.key_step; }

INLINE step_lines lines_of(int by_rows, gdn2_state_at x, int value) {
  const int64_t size = gdn2_dtype_size(x.dtype);
  return (step_lines){x.at + value * x.value_step * size, (ptrdiff_t)(far_step(by_rows, x) * size)};
}

/* A part as lines of floats: by rows [width][Kp], by columns [K][width rounded up]. */
typedef struct {
  int by_rows, lines, length; /* length: floats of a line that are the caller's */
  step_lines carry;
} step_part;

INLINE step_part part_of(int by_rows, gdn2_shape s, int width, float *room) {
  const int length = by_rows ? s.K : width, padded = (length + GDN2_PAD - 1) / GDN2_PAD * GDN2_PAD;
  return (step_part){by_rows, by_rows ? width : s.K, length, {(char *)room, padded * (ptrdiff_t)sizeof(float)}};
}

/* The widest part that can be carried; a whole number of tiles, so that sums do not depend on where parts end. */
INLINE int carried_width(int by_rows, gdn2_shape s) {
  const int widest = STEP_CARRY / (by_rows ? s.Kp : s.K), whole = by_rows ? STEP_ROWS : GDN2_PAD;
  return widest / whole * whole;
}

/* Lanes of the last vector beyond the line's end become 0. */
INLINE void lines_in(gdn2_dtype dtype, step_part part, step_lines from) {
  const int full = part.length / VL * VL;
  for (int i = 0; i < part.lines; i++) {
    float *to = (float *)(void *)(part.carry.at + i * part.carry.step);
    const char *at = from.at + i * from.step;
    for (int x = 0; x < full; x += VL) v_store(to + x, any_load(dtype, at, x, VL));
    if (full < part.length) v_store(to + full, any_load(dtype, at, full, part.length - full));
  }
}

INLINE void lines_out(gdn2_dtype dtype, step_part part, step_lines to) {
  const int full = part.length / VL * VL;
  for (int i = 0; i < part.lines; i++) {
    const float *from = (const float *)(const void *)(part.carry.at + i * part.carry.step);
    char *at = to.at + i * to.step;
    for (int x = 0; x < full; x += VL) any_store(dtype, at, x, v_load(from + x), VL);
    if (full < part.length) any_store(dtype, at, full, v_load_n(from + full, part.length - full), part.length - full);
  }
}

/* Numbers of a line that are not side by side. */
INLINE void scattered(step_part part, gdn2_state_at x, int value, int out) {
  const step_lines lines = lines_of(part.by_rows, x, value);
  const int64_t near = near_step(part.by_rows, x) * gdn2_dtype_size(x.dtype);
  for (int i = 0; i < part.lines; i++) {
    float *line = (float *)(void *)(part.carry.at + i * part.carry.step);
    for (int c = 0; c < part.length; c++) {
      char *at = lines.at + i * lines.step + c * near;
      if (out)
        gdn2_number_to(at, x.dtype, line[c]);
      else
        line[c] = gdn2_number_at(at, x.dtype);
    }
  }
}

STAGE void carry_in(step_part part, gdn2_state_at from, int value) {
  const int near = from.at && near_step(part.by_rows, from) == 1;
  if (!near) memset(part.carry.at, 0, (size_t)(part.lines * part.carry.step));
  if (!from.at) return;
  if (!near)
    scattered(part, from, value, 0);
  else if (from.dtype == GDN2_F32)
    lines_in(GDN2_F32, part, lines_of(part.by_rows, from, value));
  else if (from.dtype == GDN2_BF16)
    lines_in(GDN2_BF16, part, lines_of(part.by_rows, from, value));
  else
    lines_in(GDN2_F16, part, lines_of(part.by_rows, from, value));
}

STAGE void carry_out(step_part part, gdn2_state_at to, int value) {
  if (near_step(part.by_rows, to) != 1)
    scattered(part, to, value, 1);
  else if (to.dtype == GDN2_F32)
    lines_out(GDN2_F32, part, lines_of(part.by_rows, to, value));
  else if (to.dtype == GDN2_BF16)
    lines_out(GDN2_BF16, part, lines_of(part.by_rows, to, value));
  else
    lines_out(GDN2_F16, part, lines_of(part.by_rows, to, value));
}

/* ---- The walk -------------------------------------------------------------------------------------------------------------- */

/* Tokens `first` .. `first + count - 1`, prepared. */
typedef struct {
  int64_t first, count;
  float *room;
} step_tokens;

/* Token t, and the next if there is one. */
INLINE void need_token(const gdn2_step_work *w, step_tokens *have, int64_t t) {
  const int64_t end = t + 1 < w->tokens ? t + 2 : t + 1;
  if (t >= have->first && end <= have->first + have->count) return;
  const int64_t most = STEP_ROOM / token_floats(w->s), left = w->tokens - t;
  have->first = t;
  have->count = left < most ? left : most;
  prepare_tokens(w->s, w->head, t, have->count, have->room);
}

INLINE void update(gdn2_dtype dtype, int by_rows, int width, int K, step_lines from, step_lines to, step_token t, int value,
                   float *o, const char *next) {
  const float *z = t.z + value;
  if (dtype == GDN2_F32)
    update_f32(by_rows, width, K, from, to, t, z, o, next);
  else if (dtype == GDN2_BF16)
    update_bf16(by_rows, width, K, from, to, t, z, o, next);
  else
    update_f16(by_rows, width, K, from, to, t, z, o, next);
}

INLINE void store_output(const gdn2_step_work *w, int64_t t, int value, int width, const float *o) {
  if (!w->o.at) return;
  for (int x = 0; x < width; x += VL) row_store(&w->o, t, value + x, v_load(o + x), width - x);
}

/* One token, on the caller's memory. */
STAGE void walk_direct(const gdn2_step_work *w, int by_rows) {
  _Alignas(64) float room[5 * GDN2_MAX_DIM];
  _Alignas(64) float o[GDN2_MAX_DIM];
  prepare_tokens(w->s, w->head, 0, 1, room);
  update(w->from.dtype, by_rows, w->s.V, w->s.K, lines_of(by_rows, w->from, 0), lines_of(by_rows, w->to, 0),
         token_at(w->s, room, 0), 0, o, w->next);
  store_output(w, 0, 0, w->s.V, o);
}

/* Values value .. value+width-1 through all tokens, in float32. The first token reads the caller's state where it is float32; the
 * last writes it. */
STAGE void walk_part(const gdn2_step_work *w, int by_rows, int value, int width, float *room, step_tokens *have) {
  const step_part part = part_of(by_rows, w->s, width, room);
  const int reads = w->tokens > 0 && w->from.at && w->from.dtype == GDN2_F32 && near_step(by_rows, w->from) == 1;
  const int writes = w->tokens > 0 && w->to.at && !w->each.at && w->to.dtype == GDN2_F32 && near_step(by_rows, w->to) == 1;
  const int sweeps = !by_rows && width % VL == 0;
  _Alignas(64) float o[GDN2_MAX_DIM], r[GDN2_MAX_DIM];
  if (!reads) carry_in(part, w->from, value);
  for (int64_t t = 0; t < w->tokens; t++) {
    need_token(w, have, t);
    const step_lines from = reads && t == 0 ? lines_of(by_rows, w->from, value) : part.carry;
    const step_lines to = writes && t == w->tokens - 1 ? lines_of(by_rows, w->to, value) : part.carry;
    const step_token token = token_at(w->s, have->room, t - have->first);
    const float *e = t + 1 < w->tokens ? token_at(w->s, have->room, t + 1 - have->first).e : NULL;
    if (sweeps && t == 0) first_reads(width, w->s.K, from, token.e, r);
    if (sweeps)
      sweep(width, w->s.K, from, to, token, e, token.z + value, r, o);
    else
      update(GDN2_F32, by_rows, width, w->s.K, from, to, token, value, o, NULL);
    store_output(w, t, value, width, o);
    if (!w->each.at) continue;
    gdn2_state_at each = w->each;
    each.at += t * w->each_step * gdn2_dtype_size(each.dtype);
    carry_out(part, each, value);
  }
  if (w->to.at && !writes) carry_out(part, w->to, value);
}

STAGE void walk_carried(const gdn2_step_work *w, int by_rows) {
  _Alignas(64) float prepared[STEP_ROOM];
  _Alignas(64) float room[STEP_CARRY];
  step_tokens have = {0, 0, prepared};
  const int most = carried_width(by_rows, w->s);
  for (int value = 0; value < w->s.V; value += most)
    walk_part(w, by_rows, value, w->s.V - value < most ? w->s.V - value : most, room, &have);
}

STAGE void step_walk(const gdn2_step_work *w) {
  const int by_rows = keys_are_near(w->from.at ? w->from : w->to.at ? w->to : w->each);
  const int stays = w->from.at && w->to.at && w->from.dtype == w->to.dtype && near_step(by_rows, w->from) == 1 &&
                    near_step(by_rows, w->to) == 1;
  if (stays && w->tokens == 1 && !w->each.at)
    walk_direct(w, by_rows);
  else
    walk_carried(w, by_rows);
}

STAGE void step_keep(gdn2_shape s, const float *S, gdn2_state_at to) {
  /* An engine's state is a part by columns whose lines are Sp apart; it is only read. */
  float *data;
  memcpy(&data, &S, sizeof data);
  const step_part part = {0, s.K, s.V, {(char *)data, s.Sp * (ptrdiff_t)sizeof *S}};
  carry_out(part, to, 0);
}

#define GDN2_STEP_STAGES                                                                                                         \
  { .walk = step_walk, .keep = step_keep }
