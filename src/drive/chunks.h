/* What forward, backward and decode share: one head's inputs, the chunks of a sequence, one chunk's forward up to R, tokens of
 * no sequence. */
#ifndef GDN2_DRIVE_CHUNKS_H
#define GDN2_DRIVE_CHUNKS_H
#include "base/profile.h"
#include "drive/drive.h"
#include <float.h>
#include <math.h>

static inline gdn2_gate_rule gdn2_gate_rule_of(const gdn2_call *call, int64_t g_head) {
  gdn2_gate_rule rule = {.decay = call->decay, .erase = call->erase, .write = call->write, .l2norm = call->l2norm};
  const gdn2_rows A_log = gdn2_view_rows(&call->A_log, 0, 0, g_head, 0.0f);
  if (call->decay == GDN2_DECAY_LOG || !A_log.at) return rule;
  rule.A_log = gdn2_number_at(A_log.at, GDN2_F32);
  rule.rate = expf(rule.A_log);
  /* A bounded gate at x + dt_bias = 0 is half its bound, whatever the rate. */
  if (call->decay == GDN2_DECAY_BOUNDED && rule.rate > FLT_MAX) rule.rate = FLT_MAX;
  rule.dt_bias = gdn2_view_rows(&call->dt_bias, 0, 0, g_head, 0.0f);
  rule.lower_bound = (float)call->lower_bound;
  return rule;
}

/* The inputs of value head j of a sequence. */
static inline gdn2_head gdn2_head_of(const gdn2_call *call, gdn2_span at, int64_t j) {
  const int64_t i = gdn2_key_head(call, j);
  const int64_t g_head = call->g_key_heads ? i : j, b_head = call->b_key_heads ? i : j;
  return (gdn2_head){
      .q = gdn2_view_rows(&call->q, at.batch, at.start, i, 0.0f),
      .k = gdn2_view_rows(&call->k, at.batch, at.start, i, 0.0f),
      .v = gdn2_view_rows(&call->v, at.batch, at.start, j, 0.0f),
      .g = gdn2_view_rows(&call->g, at.batch, at.start, g_head, 0.0f),
      .b = gdn2_view_rows(&call->b, at.batch, at.start, b_head, 0.0f),
      .w = gdn2_view_rows(&call->w, at.batch, at.start, j, 1.0f),
      .scale = (float)call->scale,
      .rule = gdn2_gate_rule_of(call, g_head),
  };
}

/* A task walks heads side by side, whose states must stay in the second-level cache. */
#define GDN2_GROUP_BYTES (512 * 1024)
#define GDN2_GROUP_HEADS 16

/* Units of `heads` value heads per task, of `sequences` times `units`: of the groups that keep all threads equally busy the
 * largest that fits. */
static inline int64_t gdn2_group_of(const gdn2_call *call, int64_t sequences, int64_t units, int64_t heads) {
  const gdn2_shape s = gdn2_shape_of(call->K, call->V);
  const int64_t state = (int64_t)sizeof(float) * s.Kp * s.Vp, fit = GDN2_GROUP_BYTES / state;
  const int64_t most = (fit < GDN2_GROUP_HEADS ? fit : GDN2_GROUP_HEADS) / heads;
  int64_t best = 1, best_rounds = INT64_MAX;
  for (int64_t group = 1; group <= most && group <= units; group++) {
    const int64_t rounds = gdn2_ceil_div(sequences * gdn2_ceil_div(units, group), call->threads) * group;
    if (rounds <= best_rounds) best = group, best_rounds = rounds;
  }
  return best;
}

/* Chunks start at multiples of GDN2_CHUNK; the last one may be shorter. */
static inline int64_t gdn2_chunk_count(int64_t T) { return gdn2_ceil_div(T, GDN2_CHUNK); }
static inline int gdn2_chunk_length(int64_t T, int64_t t0) { return (int)(T - t0 < GDN2_CHUNK ? T - t0 : GDN2_CHUNK); }

/* A product takes K V steps and there are K + V numbers to fetch: the smaller the head, the more of them a step. */
static inline gdn2_ahead gdn2_ahead_new(gdn2_shape s, int rest_of_small, int rest_of_large) {
  return (gdn2_ahead){.rest = s.K * s.V >= 96 * 96 ? rest_of_large : rest_of_small};
}

static inline void gdn2_ahead_add(gdn2_ahead *ahead, gdn2_rows rows, int width) {
  if (!rows.at || !rows.channel) return;
  const int64_t size = gdn2_dtype_size(rows.dtype);
  ahead->row[ahead->tensors] = rows.at;
  ahead->step[ahead->tensors] = rows.step * size;
  ahead->bytes[ahead->tensors++] = width * (int)size;
}

/* Rows to write are fetched too: they are in the cache then. */
static inline void gdn2_ahead_add_out(gdn2_ahead *ahead, gdn2_rows_out rows, int width) {
  gdn2_ahead_add(ahead, (gdn2_rows){rows.at, rows.dtype, rows.channel, rows.step, 0.0f}, width);
}

/* A head's rows, and those of o where the forward writes it. */
static inline gdn2_ahead gdn2_ahead_of(gdn2_shape s, const gdn2_head *head, gdn2_rows_out o) {
  gdn2_ahead ahead = gdn2_ahead_new(s, 0, 4);
  gdn2_ahead_add(&ahead, head->g, s.K);
  gdn2_ahead_add(&ahead, head->k, s.K);
  gdn2_ahead_add(&ahead, head->b, s.K);
  gdn2_ahead_add(&ahead, head->q, s.K);
  gdn2_ahead_add(&ahead, head->v, s.V);
  gdn2_ahead_add(&ahead, head->w, s.V);
  gdn2_ahead_add_out(&ahead, o, s.V);
  return ahead;
}

/* The same of the replay: with R given, v and w are not read. */
static inline gdn2_ahead gdn2_ahead_of_replay(gdn2_shape s, const gdn2_head *head, gdn2_rows R) {
  if (!R.at) return gdn2_ahead_of(s, head, (gdn2_rows_out){.at = NULL});
  gdn2_head keys = *head;
  keys.v = R, keys.w.at = NULL;
  gdn2_ahead ahead = gdn2_ahead_of(s, &keys, (gdn2_rows_out){.at = NULL});
  ahead.rest = 0; /* there is one product less to fetch under */
  return ahead;
}

/* Those of the chunk at t0; nothing is wanted beyond the last token. */
static inline gdn2_ahead gdn2_ahead_from(gdn2_ahead ahead, int64_t T, int64_t t0) {
  ahead.tokens = t0 < T && ahead.tensors > 0 ? gdn2_chunk_length(T, t0) : 0;
  for (int x = 0; x < ahead.tensors; x++) ahead.row[x] += t0 * ahead.step[x];
  gdn2_ahead_row(&ahead);
  return ahead;
}

/* The chunk at t0, loaded, with its scores. */
static inline void gdn2_chunk_scores(const gdn2_call *call, gdn2_shape s, const gdn2_head *head, int64_t T, int64_t t0,
                                     gdn2_chunk *c) {
  const uint64_t since = gdn2_profile_now(call->profile);
  c->n = gdn2_chunk_length(T, t0);
  call->table->exact.scores(s, head, t0, c->n, &c->keys, &c->scores);
  (void)gdn2_profile_lap(call->profile, GDN2_STAGE_SCORES, since);
}

/* The chunk at t0 with its scores, and R as the forward left it: no product with the state. */
static inline void gdn2_chunk_again(const gdn2_call *call, gdn2_shape s, const gdn2_head *head, gdn2_rows R, int64_t T,
                                    int64_t t0, gdn2_chunk *c) {
  gdn2_chunk_scores(call, s, head, T, t0, c);
  const uint64_t since = gdn2_profile_now(call->profile);
  call->table->exact.rows_load(s, R, t0, c->n, c->R);
  (void)gdn2_profile_lap(call->profile, GDN2_STAGE_SOLVE, since);
}

/* EQ S0 (only -E S0 unless with_queries) of the chunk at t0, whose scores are there, and R. S0 == NULL: zeros, for which `room`
 * is there if they must be multiplied with after all. Returns the state before the chunk; NULL: zeros. */
static inline const float *gdn2_chunk_values(const gdn2_call *call, gdn2_shape s, const gdn2_head *head, int64_t t0,
                                             int with_queries, const float *S0, float *room, gdn2_ahead *ahead,
                                             const gdn2_chunk *c) {
  const gdn2_exact_stages *stage = &call->table->exact;
  gdn2_profile *profile = call->profile;
  uint64_t since = gdn2_profile_now(profile);
  const int rows = with_queries ? 2 * c->n : c->n;
  if (!S0 && !stage->project_zeros(s, rows, &c->keys, c->X)) {
    stage->state_load(s, (gdn2_state){.at = NULL}, room);
    S0 = room;
  }
  if (S0) stage->project(s, rows, c->keys.EQ, S0, c->X, ahead);
  since = gdn2_profile_lap(profile, GDN2_STAGE_PROJECT, since);
  stage->solve(s, head, t0, c->n, &c->scores, c->X, c->R);
  (void)gdn2_profile_lap(profile, GDN2_STAGE_SOLVE, since);
  return S0;
}

/* o of the chunk at t0, whose values are there. */
static inline void gdn2_chunk_output(const gdn2_call *call, gdn2_shape s, const gdn2_chunk *c, int64_t t0, gdn2_rows_out o) {
  const uint64_t since = gdn2_profile_now(call->profile);
  if (o.at) call->table->exact.output(s, t0, c->n, &c->scores, c->X + (ptrdiff_t)c->n * s.Vp, c->R, o);
  (void)gdn2_profile_lap(call->profile, GDN2_STAGE_OUTPUT, since);
}

/* S1 = diag(gamma_n) S0 + Ktail^T R, equation (19); S0 as gdn2_chunk_values returned it. */
static inline void gdn2_chunk_state(const gdn2_call *call, gdn2_shape s, const gdn2_chunk *c, const float *S0, float *S1,
                                    gdn2_ahead *ahead) {
  const uint64_t since = gdn2_profile_now(call->profile);
  call->table->exact.update(s, c->n, c->scores.Ktail, c->R, c->keys.gamma_n, S0, S1, ahead);
  (void)gdn2_profile_lap(call->profile, GDN2_STAGE_UPDATE, since);
}

/* Zeros in the rows of a token tensor that belong to no sequence. */
static inline void gdn2_clear_rest(const gdn2_call *call, const gdn2_view_out *out, int64_t heads, int64_t channels) {
  if (!call->cu_seqlens || !out->data) return;
  const int64_t start = gdn2_offset(call, call->N);
  for (int64_t h = 0; h < heads; h++) {
    const gdn2_rows_out rows = gdn2_view_rows_out(out, 0, start, h);
    call->table->exact.clear(gdn2_shape_of(1, rows.channel ? channels : 1), call->T - start, rows);
  }
}
#endif
