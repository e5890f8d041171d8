/* What the forward and the backward share: one head's inputs, the chunks of a sequence, one chunk's forward up to R. */
#ifndef GDN2_DRIVE_CHUNKS_H
#define GDN2_DRIVE_CHUNKS_H
#include "drive/drive.h"

static inline gdn2_head gdn2_head_of(const gdn2_call *call, int64_t batch, int64_t head) {
  return (gdn2_head){
      .q = gdn2_view_rows(&call->q, batch, head, 0.0f),
      .k = gdn2_view_rows(&call->k, batch, head, 0.0f),
      .v = gdn2_view_rows(&call->v, batch, head, 0.0f),
      .g = gdn2_view_rows(&call->g, batch, head, 0.0f),
      .b = gdn2_view_rows(&call->b, batch, head, 0.0f),
      .w = gdn2_view_rows(&call->w, batch, head, 1.0f),
      .scale = call->scale,
  };
}

/* Chunks start at multiples of GDN2_CHUNK; the last one may be shorter. */
static inline int64_t gdn2_chunk_count(int64_t T) { return T / GDN2_CHUNK + (T % GDN2_CHUNK != 0); }
static inline int gdn2_chunk_length(int64_t T, int64_t t0) { return (int)(T - t0 < GDN2_CHUNK ? T - t0 : GDN2_CHUNK); }

/* The rows of the chunk at t0, and of o where the forward writes it. */
static inline gdn2_ahead gdn2_ahead_of(gdn2_shape s, const gdn2_head *head, gdn2_rows_out o, int64_t T, int64_t t0) {
  const gdn2_rows o_rows = {o.at, o.step, 1, 0.0f},
                  *rows[] = {&head->g, &head->k, &head->b, &head->q, &head->v, &head->w, &o_rows};
  const int width[] = {s.K, s.K, s.K, s.K, s.V, s.V, s.V};
  gdn2_ahead ahead = {.tokens = gdn2_chunk_length(T, t0)};
  for (int x = 0; x < GDN2_AHEAD_TENSORS; x++) {
    if (!rows[x]->at) continue;
    ahead.row[ahead.tensors] = (const char *)(rows[x]->at + t0 * rows[x]->step);
    ahead.step[ahead.tensors] = rows[x]->step * (int64_t)sizeof(float);
    ahead.bytes[ahead.tensors++] = (rows[x]->channel ? width[x] : 1) * (int)sizeof(float);
  }
  return ahead;
}

/* Loads the chunk at t0, its scores, EQ S0 (`rows` n: only -E S0; 2n: Qg S0 too), and solves for R. */
static inline void gdn2_chunk_forward(const gdn2_table *table, gdn2_shape s, const gdn2_head *head, int64_t T, int64_t t0,
                                      int with_queries, const float *S0, gdn2_ahead *ahead, gdn2_chunk *c) {
  const gdn2_exact_stages *stage = &table->exact;
  c->n = gdn2_chunk_length(T, t0);
  stage->scores(s, head, t0, c->n, &c->keys, &c->scores);
  stage->project(s, with_queries ? 2 * c->n : c->n, c->keys.EQ, S0, c->X, ahead);
  stage->solve(s, head, t0, c->n, &c->scores, c->X, c->R);
}

/* S1 = diag(gamma_n) S0 + Ktail^T R                                                                                        (19)
 */
static inline void gdn2_chunk_state(const gdn2_table *table, gdn2_shape s, const gdn2_chunk *c, const float *S0, float *S1,
                                    gdn2_ahead *ahead) {
  table->exact.update(s, c, S0, S1, ahead);
}
#endif
