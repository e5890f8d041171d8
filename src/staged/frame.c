#include "staged/frame.h"
#include "base/arena.h"
#include "base/error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *gdn2_seed_allocate(size_t bytes) {
  const size_t whole = (bytes + GDN2_ALIGN - 1) / GDN2_ALIGN * GDN2_ALIGN;
  return aligned_alloc(GDN2_ALIGN, whole ? whole : GDN2_ALIGN);
}

/* Room for a scratch: with arena->base == NULL only its size is measured. */
static gdn2_seed_scratch lay(const gdn2_seed_dims *d, gdn2_arena *arena) {
  const size_t C = (size_t)d->C, K = (size_t)d->K, V = (size_t)d->V, bc = (size_t)d->bc;
  gdn2_seed_scratch s;
  float **const keys[] = {&s.q,  &s.k,    &s.b,    &s.g,   &s.gc,  &s.bk,  &s.kb,  &s.kg,
                          &s.qg, &s.grow, &s.rest, &s.dqg, &s.dkg, &s.dkb, &s.dwp, &s.kb_t};
  float **const values[] = {&s.v, &s.w, &s.wv, &s.scaled, &s.dwv, &s.v_new, &s.wv_t};
  float **const scores[] = {&s.M, &s.N, &s.Aqk, &s.Akk, &s.A};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) *keys[i] = gdn2_arena_floats(arena, C * K);
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) *values[i] = gdn2_arena_floats(arena, C * V);
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) *scores[i] = gdn2_arena_floats(arena, C * C);
  s.h_t = gdn2_arena_floats(arena, K * V);
  s.dh_t = gdn2_arena_floats(arena, K * V);
  s.block = gdn2_arena_floats(arena, bc * bc);
  s.lanes = gdn2_arena_floats(arena, 2 * bc * 16);
  s.row = gdn2_arena_floats(arena, K + V);
  for (int i = 0; i < 4; i++) s.intra[i] = gdn2_arena_floats(arena, C * K);
  for (int i = 0; i < 4; i++) s.wy_keys[i] = gdn2_arena_floats(arena, C * K);
  for (int i = 0; i < 2; i++) s.wy_values[i] = gdn2_arena_floats(arena, C * V);
  s.dAkk = gdn2_arena_floats(arena, C * C);
  return s;
}

gdn2_seed_scratch gdn2_seed_frame_scratch(const gdn2_seed_frame *frame, int slot) {
  gdn2_arena arena = {frame->memory + (size_t)slot * frame->slot_bytes, 0};
  return lay(&frame->dims, &arena);
}

/* Do a b c d e numbers of 4 bytes, for non-negative factors, fit the address space? */
static int addressable(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
  int64_t total = 4;
  return !__builtin_mul_overflow(total, a, &total) && !__builtin_mul_overflow(total, b, &total) &&
         !__builtin_mul_overflow(total, c, &total) && !__builtin_mul_overflow(total, d, &total) &&
         !__builtin_mul_overflow(total, e, &total) && total <= PTRDIFF_MAX;
}

static gdn2_status check_sizes(const gdn2_seed_call *call) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } sizes[] = {{"B", call->B, 0, INT64_MAX},
               {"L", call->L, 0, INT64_MAX - GDN2_SEED_MAX_CHUNK},
               {"H", call->H, 0, INT64_MAX},
               {"K", call->K, 1, GDN2_MAX_DIM},
               {"V", call->V, 1, GDN2_MAX_DIM}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
      return gdn2_fail(GDN2_ERR_SHAPE, "call->%s is %lld; it must be from %lld to %lld", sizes[i].name, (long long)sizes[i].value,
                       (long long)sizes[i].least, (long long)sizes[i].most);
  return GDN2_OK;
}

static gdn2_status check_scale(const gdn2_seed_call *call) {
  if (!call->scale || isfinite((float)*call->scale)) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "call->scale is %g; it must be finite as a float32", *call->scale);
}

static gdn2_status set_sizes(gdn2_seed_frame *frame, const gdn2_seed_call *call) {
  gdn2_status status = check_sizes(call);
  if (status == GDN2_OK) status = check_scale(call);
  if (status != GDN2_OK) return status;
  const int64_t C = frame->config.bt, widest = C > GDN2_MAX_DIM ? C : GDN2_MAX_DIM;
  frame->B = call->B, frame->L = call->L, frame->H = call->H;
  frame->chunks = (call->L + C - 1) / C;
  /* A chunk's largest matrix is C x C, C x K or a state: none is larger than the square of the widest. */
  if (!addressable(call->B, call->H, frame->chunks ? frame->chunks : 1, widest, widest))
    return gdn2_fail(GDN2_ERR_SHAPE, "call->B = %lld, L = %lld, H = %lld with bt = %lld overflow the address space",
                     (long long)call->B, (long long)call->L, (long long)call->H, (long long)C);
  frame->dims = (gdn2_seed_dims){.C = frame->config.bt,
                                 .bc = frame->config.bc,
                                 .mb = frame->config.mb,
                                 .K = (int)call->K,
                                 .V = (int)call->V,
                                 .scale = (float)(call->scale ? *call->scale : 1.0 / sqrt((double)call->K)),
                                 .clip = (float)frame->config.clip,
                                 .damp = (float)(1.0 - frame->config.wy_eps)};
  return GDN2_OK;
}

static gdn2_status allocate(gdn2_seed_frame *frame) {
  gdn2_arena measure = {NULL, 0};
  (void)lay(&frame->dims, &measure);
  frame->slot_bytes = measure.used;
  const int64_t panels = gdn2_seed_panels(frame), chunks = gdn2_seed_tasks(frame), tasks = chunks > panels ? chunks : panels;
  frame->threads = gdn2_threads(frame->call->exec.threads);
  if (frame->threads > tasks) frame->threads = tasks > 1 ? (int)tasks : 1;
  frame->memory = gdn2_seed_allocate((size_t)frame->threads * frame->slot_bytes);
  if (frame->memory) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_MEMORY, "no memory for %d threads with %zu bytes of scratch each", frame->threads, frame->slot_bytes);
}

static gdn2_status check_struct_size(const gdn2_seed_call *call) {
  if (call->struct_size == sizeof *call) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_ARGUMENT, "call->struct_size is %zu; it must be sizeof(gdn2_seed_call) = %zu", call->struct_size,
                   sizeof *call);
}

gdn2_status gdn2_seed_config_of(const gdn2_seed_call *call, gdn2_seed_config *config) {
  const gdn2_status status = check_struct_size(call);
  if (status != GDN2_OK) return status;
  if (!call->config) return gdn2_seed_config_preset(GDN2_SEED_DEFAULT, config);
  *config = *call->config;
  return gdn2_seed_config_check(config);
}

gdn2_status gdn2_seed_frame_open_with(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_config *config) {
  *frame = (gdn2_seed_frame){.call = call, .config = *config};
  gdn2_status status = check_struct_size(call);
  if (status != GDN2_OK) return status;
  if (call->exec.threads < 0)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "call->exec.threads is %d; it must be 0 or more", call->exec.threads);
  status = set_sizes(frame, call);
  if (status == GDN2_OK) status = gdn2_table_choose(call->exec.isa, &frame->table);
  if (status == GDN2_OK) status = allocate(frame);
  return status;
}

void gdn2_seed_frame_close(gdn2_seed_frame *frame) { free(frame->memory); }

int gdn2_seed_rows(const gdn2_seed_frame *frame, int64_t task) {
  const int64_t left = frame->L - task % frame->chunks * frame->dims.C;
  return left < frame->dims.C ? (int)left : frame->dims.C;
}

int64_t gdn2_seed_first_row(const gdn2_seed_frame *frame, int64_t task, int64_t D) {
  const int64_t head = task / frame->chunks, t = task % frame->chunks * frame->dims.C;
  return ((head / frame->H * frame->L + t) * frame->H + head % frame->H) * D;
}

void gdn2_seed_gather(const gdn2_seed_frame *frame, int64_t task, int64_t D, const float *tokens, float *chunk) {
  const int rows = gdn2_seed_rows(frame, task);
  const float *from = tokens + gdn2_seed_first_row(frame, task, D);
  for (int i = 0; i < rows; i++) memcpy(chunk + i * D, from + i * frame->H * D, (size_t)D * sizeof *chunk);
  memset(chunk + rows * D, 0, (size_t)((frame->dims.C - rows) * D) * sizeof *chunk);
}

void gdn2_seed_scatter(const gdn2_seed_frame *frame, int64_t task, int64_t D, const float *chunk, float *tokens) {
  const int rows = gdn2_seed_rows(frame, task);
  float *to = tokens + gdn2_seed_first_row(frame, task, D);
  for (int i = 0; i < rows; i++) memcpy(to + i * frame->H * D, chunk + i * D, (size_t)D * sizeof *chunk);
}

void gdn2_seed_gather_keys(const gdn2_seed_frame *frame, int64_t task, const gdn2_seed_inputs *in, gdn2_seed_scratch *s) {
  gdn2_seed_gather(frame, task, frame->dims.K, in->q, s->q);
  gdn2_seed_gather(frame, task, frame->dims.K, in->k, s->k);
  gdn2_seed_gather(frame, task, frame->dims.K, in->b, s->b);
  gdn2_seed_gather(frame, task, frame->dims.K, in->g, s->g);
}

void gdn2_seed_gather_values(const gdn2_seed_frame *frame, int64_t task, const gdn2_seed_inputs *in, gdn2_seed_scratch *s) {
  gdn2_seed_gather(frame, task, frame->dims.V, in->v, s->v);
  gdn2_seed_gather(frame, task, frame->dims.V, in->w, s->w);
}

gdn2_seed_chunk gdn2_seed_chunk_of(const gdn2_seed_frame *frame, const gdn2_seed_chunk *whole, int64_t task, int column) {
  const int64_t scores = task * gdn2_seed_scores_size(frame), keys = task * gdn2_seed_keys(frame);
  gdn2_seed_chunk part = {.w_pseudo = whole->w_pseudo + keys,
                          .kg = whole->kg + keys,
                          .qg = whole->qg + keys,
                          .gc_last = whole->gc_last + task * frame->dims.K};
  if (whole->Aqk) part.Aqk = whole->Aqk + scores;
  if (whole->u) part.u = whole->u + task * gdn2_seed_values(frame) + column;
  return part;
}

static int64_t panels_per_head(const gdn2_seed_frame *frame) {
  return (frame->dims.V + GDN2_SEED_PANEL_WIDTH - 1) / GDN2_SEED_PANEL_WIDTH;
}

int64_t gdn2_seed_panels(const gdn2_seed_frame *frame) { return gdn2_seed_heads(frame) * panels_per_head(frame); }

gdn2_seed_panel gdn2_seed_panel_of(const gdn2_seed_frame *frame, int64_t task) {
  const int64_t per_head = panels_per_head(frame);
  const int first = (int)(task % per_head) * GDN2_SEED_PANEL_WIDTH, left = frame->dims.V - first;
  return (gdn2_seed_panel){task / per_head, first, left < GDN2_SEED_PANEL_WIDTH ? left : GDN2_SEED_PANEL_WIDTH};
}

void gdn2_seed_copy_panel(const gdn2_seed_frame *frame, const gdn2_seed_panel *panel, const float *from, float *to) {
  for (int r = 0; r < frame->dims.K; r++)
    memcpy(to + r * frame->dims.V, from + r * frame->dims.V, (size_t)panel->width * sizeof *to);
}
