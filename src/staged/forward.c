/* The public forward: kernels A to D one by one, and whole. */
#include "base/arena.h"
#include "base/error.h"
#include "base/profile.h"
#include "staged/arrays.h"
#include "staged/kernels.h"
#include "staged/report.h"
#include <stdlib.h>

gdn2_status gdn2_seed_scores(const gdn2_seed_call *call, const float *q, const float *k, const float *b, const float *g,
                             float *Aqk, float *Akk) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(q, KEY_TOKENS), GDN2_SEED_IN(k, KEY_TOKENS), GDN2_SEED_IN(b, KEY_TOKENS),
                                    GDN2_SEED_IN(g, KEY_TOKENS), GDN2_SEED_OUT(Aqk, SCORES),  GDN2_SEED_OUT(Akk, SCORES)};
  gdn2_seed_frame frame;
  int64_t replaced[2];
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  gdn2_seed_run_scores(&frame, &(gdn2_seed_inputs){.q = q, .k = k, .b = b, .g = g}, Aqk, Akk, replaced);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

gdn2_status gdn2_seed_solve(const gdn2_seed_call *call, const float *Akk, float *A) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(Akk, SCORES), GDN2_SEED_OUT(A, SCORES)};
  gdn2_seed_frame frame;
  int64_t replaced[1];
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  gdn2_seed_run_solve(&frame, Akk, A, replaced);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

gdn2_status gdn2_seed_rebuild(const gdn2_seed_call *call, const float *q, const float *k, const float *v, const float *w,
                              const float *b, const float *g, const float *A, float *w_pseudo, float *u, float *kg, float *qg,
                              float *gc_last) {
  const gdn2_seed_array arrays[] = {
      GDN2_SEED_IN(q, KEY_TOKENS),   GDN2_SEED_IN(k, KEY_TOKENS),         GDN2_SEED_IN(v, VALUE_TOKENS),
      GDN2_SEED_IN(w, VALUE_TOKENS), GDN2_SEED_IN(b, KEY_TOKENS),         GDN2_SEED_IN(g, KEY_TOKENS),
      GDN2_SEED_IN(A, SCORES),       GDN2_SEED_OUT(w_pseudo, KEY_CHUNKS), GDN2_SEED_OUT(u, VALUE_CHUNKS),
      GDN2_SEED_OUT(kg, KEY_CHUNKS), GDN2_SEED_OUT(qg, KEY_CHUNKS),       GDN2_SEED_OUT(gc_last, LAST_ROWS)};
  gdn2_seed_frame frame;
  int64_t replaced[4];
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  const gdn2_seed_inputs in = {.q = q, .k = k, .v = v, .w = w, .b = b, .g = g};
  const gdn2_seed_residuals out = {.w_pseudo = w_pseudo, .u = u, .kg = kg, .qg = qg, .gc_last = gc_last};
  gdn2_seed_run_rebuild(&frame, &in, A, &out, replaced);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

static void report_combine(const gdn2_seed_frame *f, const float *h_final, int64_t o_size, const float *o,
                           const int64_t replaced[2]) {
  gdn2_seed_inspect(f, "kernel_D_h_final", gdn2_seed_heads(f) * gdn2_seed_state(f), h_final, replaced[0]);
  gdn2_seed_inspect(f, "kernel_D_o", o_size, o, replaced[1]);
}

/* Closes the frame. */
static void combine(gdn2_seed_frame *frame, const gdn2_seed_chunk *made, const float *h0, const gdn2_seed_combine_out *out) {
  int64_t replaced[2];
  gdn2_seed_run_combine(frame, made, h0, out, replaced);
  report_combine(frame, out->h_final, gdn2_seed_tasks(frame) * gdn2_seed_values(frame), out->o, replaced);
  gdn2_seed_frame_close(frame);
}

#define COMBINE_ARRAYS                                                                                                           \
  GDN2_SEED_IN(Aqk, SCORES), GDN2_SEED_IN(w_pseudo, KEY_CHUNKS), GDN2_SEED_IN(u, VALUE_CHUNKS), GDN2_SEED_IN(kg, KEY_CHUNKS),    \
      GDN2_SEED_IN(qg, KEY_CHUNKS), GDN2_SEED_IN(gc_last, LAST_ROWS), GDN2_SEED_MAY(h0, STATE),                                  \
      GDN2_SEED_OUT(o_chunks, VALUE_CHUNKS), GDN2_SEED_OUT(h_final, STATE)

gdn2_status gdn2_seed_combine(const gdn2_seed_call *call, const float *Aqk, const float *w_pseudo, const float *u,
                              const float *kg, const float *qg, const float *gc_last, const float *h0, float *o_chunks,
                              float *h_final) {
  const gdn2_seed_array arrays[] = {COMBINE_ARRAYS};
  gdn2_seed_frame frame;
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  const gdn2_seed_chunk made = {.Aqk = Aqk, .w_pseudo = w_pseudo, .kg = kg, .qg = qg, .u = u, .gc_last = gc_last};
  combine(&frame, &made, h0, &(gdn2_seed_combine_out){.o = o_chunks, .h_final = h_final});
  return GDN2_OK;
}

gdn2_status gdn2_seed_combine_with_state(const gdn2_seed_call *call, const float *Aqk, const float *w_pseudo, const float *u,
                                         const float *kg, const float *qg, const float *gc_last, const float *h0, float *o_chunks,
                                         float *h_final, float *h_pre_all, float *v_new_all) {
  const gdn2_seed_array arrays[] = {COMBINE_ARRAYS, GDN2_SEED_OUT(h_pre_all, STATES), GDN2_SEED_OUT(v_new_all, VALUE_CHUNKS)};
  gdn2_seed_frame frame;
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  const gdn2_seed_chunk made = {.Aqk = Aqk, .w_pseudo = w_pseudo, .kg = kg, .qg = qg, .u = u, .gc_last = gc_last};
  combine(&frame, &made, h0,
          &(gdn2_seed_combine_out){.o = o_chunks, .h_final = h_final, .h_pre_all = h_pre_all, .v_new_all = v_new_all});
  return GDN2_OK;
}

/* ---- Whole ---------------------------------------------------------------------------------------------------------------- */

void gdn2_seed_run_forward(const gdn2_seed_frame *f, const gdn2_seed_inputs *in, const gdn2_seed_residuals *r, float *o,
                           float *h_final) {
  const int64_t tasks = gdn2_seed_tasks(f), keys = tasks * gdn2_seed_keys(f), scores = tasks * gdn2_seed_scores_size(f);
  int64_t replaced[4];
  gdn2_profile *profile = f->call->profile;
  uint64_t since = gdn2_profile_now(profile);
  gdn2_seed_run_scores(f, in, r->Aqk, r->Akk, replaced);
  (void)gdn2_profile_lap(profile, GDN2_STAGE_SEED_A, since);
  gdn2_seed_inspect(f, "kernel_A_Aqk", scores, r->Aqk, replaced[0]);
  gdn2_seed_inspect(f, "kernel_A_Akk", scores, r->Akk, replaced[1]);
  since = gdn2_profile_now(profile);
  gdn2_seed_run_solve(f, r->Akk, r->A, replaced);
  (void)gdn2_profile_lap(profile, GDN2_STAGE_SEED_B, since);
  gdn2_seed_inspect(f, "kernel_B_wy_inverse_A", scores, r->A, replaced[0]);
  since = gdn2_profile_now(profile);
  gdn2_seed_run_rebuild(f, in, r->A, r, replaced);
  (void)gdn2_profile_lap(profile, GDN2_STAGE_SEED_C, since);
  gdn2_seed_inspect(f, "kernel_C_w_pseudo", keys, r->w_pseudo, replaced[0]);
  gdn2_seed_inspect(f, "kernel_C_u", tasks * gdn2_seed_values(f), r->u, replaced[1]);
  gdn2_seed_inspect(f, "kernel_C_kg", keys, r->kg, replaced[2]);
  gdn2_seed_inspect(f, "kernel_C_qg", keys, r->qg, replaced[3]);
  const gdn2_seed_chunk made = {r->Aqk, r->w_pseudo, r->kg, r->qg, r->u, r->gc_last};
  const gdn2_seed_combine_out out = {o, 1, h_final, r->h_pre_all, r->v_new_all};
  since = gdn2_profile_now(profile);
  gdn2_seed_run_combine(f, &made, in->h0, &out, replaced);
  (void)gdn2_profile_lap(profile, GDN2_STAGE_SEED_D, since);
  report_combine(f, h_final, f->B * f->L * f->H * f->dims.V, o, replaced);
}

static gdn2_seed_residuals lay(const gdn2_seed_frame *f, int with_states, gdn2_arena *arena) {
  const int64_t tasks = gdn2_seed_tasks(f);
  const size_t scores = (size_t)(tasks * gdn2_seed_scores_size(f)), keys = (size_t)(tasks * gdn2_seed_keys(f));
  const size_t values = (size_t)(tasks * gdn2_seed_values(f)), states = (size_t)(tasks * gdn2_seed_state(f));
  gdn2_seed_residuals r = {.Aqk = gdn2_arena_floats(arena, scores),
                           .Akk = gdn2_arena_floats(arena, scores),
                           .A = gdn2_arena_floats(arena, scores),
                           .u = gdn2_arena_floats(arena, values),
                           .w_pseudo = gdn2_arena_floats(arena, keys),
                           .kg = gdn2_arena_floats(arena, keys),
                           .qg = gdn2_arena_floats(arena, keys),
                           .gc_last = gdn2_arena_floats(arena, (size_t)(tasks * f->dims.K))};
  if (with_states) {
    r.h_pre_all = gdn2_arena_floats(arena, states);
    r.v_new_all = gdn2_arena_floats(arena, values);
  }
  return r;
}

void *gdn2_seed_residuals_allocate(const gdn2_seed_frame *frame, int with_states, gdn2_seed_residuals *residuals) {
  gdn2_arena arena = {NULL, 0};
  (void)lay(frame, with_states, &arena);
  void *block = gdn2_seed_allocate(arena.used);
  if (!block) {
    gdn2_fail(GDN2_ERR_MEMORY, "no memory for %zu bytes of residuals", arena.used);
    return NULL;
  }
  arena = (gdn2_arena){block, 0};
  *residuals = lay(frame, with_states, &arena);
  return block;
}

gdn2_status gdn2_seed_check_residuals(const gdn2_seed_residuals *residuals) {
  return GDN2_SEED_NEED(residuals->Aqk, residuals->Akk, residuals->A, residuals->h_pre_all, residuals->v_new_all, residuals->u,
                        residuals->w_pseudo, residuals->kg, residuals->qg, residuals->gc_last);
}

/* residuals: where they go, or all NULL. */
static gdn2_status open_forward(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o,
                                float *h_final, const gdn2_seed_residuals *residuals) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_OF_INPUTS(inputs), GDN2_SEED_OUT(o, VALUE_TOKENS), GDN2_SEED_OUT(h_final, STATE),
                                    GDN2_SEED_OF_RESIDUALS(GDN2_SEED_MAY_OUT, residuals)};
  return GDN2_SEED_OPEN(frame, call, arrays);
}

gdn2_status gdn2_seed_forward(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o, float *h_final,
                              const gdn2_seed_residuals *residuals) {
  gdn2_seed_frame frame;
  gdn2_status status = GDN2_SEED_NEED(call, inputs);
  if (status == GDN2_OK && residuals) status = gdn2_seed_check_residuals(residuals);
  if (status == GDN2_OK)
    status = open_forward(&frame, call, inputs, o, h_final, residuals ? residuals : &(gdn2_seed_residuals){0});
  if (status != GDN2_OK) return status;
  gdn2_seed_residuals own;
  void *block = residuals ? NULL : gdn2_seed_residuals_allocate(&frame, 0, &own);
  if (residuals || block)
    gdn2_seed_run_forward(&frame, inputs, residuals ? residuals : &own, o, h_final);
  else
    status = GDN2_ERR_MEMORY;
  free(block);
  gdn2_seed_frame_close(&frame);
  return status;
}
