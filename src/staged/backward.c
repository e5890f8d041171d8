/* The public backward: kernels B1 to B5 one by one, the layout between tokens and chunks, and the whole. */
#include "base/error.h"
#include "base/par_for.h"
#include "staged/arrays.h"
#include "staged/kernels.h"

gdn2_status gdn2_seed_dav_backward(const gdn2_seed_call *call, const float *Aqk, const float *v_new, const float *d_o,
                                   float *dAqk, float *dv_partial) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(Aqk, SCORES), GDN2_SEED_IN(v_new, VALUE_CHUNKS), GDN2_SEED_IN(d_o, VALUE_CHUNKS),
                                    GDN2_SEED_OUT(dAqk, SCORES), GDN2_SEED_OUT(dv_partial, VALUE_CHUNKS)};
  gdn2_seed_frame frame;
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  gdn2_seed_run_dav(&frame, Aqk, v_new, d_o, dAqk, dv_partial);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

gdn2_status gdn2_seed_dhu_backward(const gdn2_seed_call *call, const float *d_o, const float *dv_partial, const float *w_pseudo,
                                   const float *qg, const float *kg, const float *gc_last, const float *dht, float *dh_all,
                                   float *dh0, float *dv_all) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(d_o, VALUE_CHUNKS),    GDN2_SEED_IN(dv_partial, VALUE_CHUNKS),
                                    GDN2_SEED_IN(w_pseudo, KEY_CHUNKS), GDN2_SEED_IN(qg, KEY_CHUNKS),
                                    GDN2_SEED_IN(kg, KEY_CHUNKS),       GDN2_SEED_IN(gc_last, LAST_ROWS),
                                    GDN2_SEED_MAY(dht, STATE),          GDN2_SEED_OUT(dh_all, STATES),
                                    GDN2_SEED_OUT(dh0, STATE),          GDN2_SEED_OUT(dv_all, VALUE_CHUNKS)};
  gdn2_seed_frame frame;
  const gdn2_status status = GDN2_SEED_OPEN(&frame, call, arrays);
  if (status != GDN2_OK) return status;
  const gdn2_seed_chunk made = {.w_pseudo = w_pseudo, .kg = kg, .qg = qg, .gc_last = gc_last};
  gdn2_seed_run_dhu(&frame, &made, d_o, dv_partial, dht, dh_all, dh0, dv_all);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

/* ---- Kernels and layouts that are one task a chunk ------------------------------------------------------------------------- */

typedef struct chunk_job {
  const gdn2_seed_frame *frame;
  const gdn2_seed_wy_inputs *wy_in;
  const gdn2_seed_wy_gradients *wy_out;
  const gdn2_seed_inputs *in;
  const float *dAqk, *dAkk;
  gdn2_seed_intra_grads intra;
  int64_t D;
  const float *from;
  float *to;
} chunk_job;

static gdn2_status run(const gdn2_seed_call *call, const gdn2_seed_array *arrays, int count, chunk_job *job, gdn2_task *task) {
  gdn2_seed_frame frame;
  const gdn2_status status = gdn2_seed_frame_open_arrays(&frame, call, arrays, count);
  if (status != GDN2_OK) return status;
  job->frame = &frame;
  gdn2_par_for(frame.threads, gdn2_seed_tasks(&frame), task, job);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}
#define RUN(call, arrays, job, task) run(call, arrays, (int)(sizeof(arrays) / sizeof *(arrays)), job, task)

static void wy_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_wy_inputs *x = job->wy_in;
  const gdn2_seed_wy_gradients *y = job->wy_out;
  const int64_t keys = task * gdn2_seed_keys(f), values = task * gdn2_seed_values(f), scores = task * gdn2_seed_scores_size(f);
  const int64_t state = task * gdn2_seed_state(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  const gdn2_seed_wy_chunk in = {.q = x->q + keys,
                                 .k = x->k + keys,
                                 .b = x->b + keys,
                                 .gc = x->gc + keys,
                                 .w = x->w + values,
                                 .v = x->v + values,
                                 .A = x->A + scores,
                                 .h_pre = x->h_pre_all + state,
                                 .v_new = x->v_new_all + values,
                                 .d_o = x->d_o + values,
                                 .dv = x->dv + values,
                                 .dh_next = x->dh_next_all + state};
  const gdn2_seed_wy_grads out = {.dq = y->dq + keys,
                                  .dk = y->dk + keys,
                                  .db = y->db + keys,
                                  .dgc = y->dgc + keys,
                                  .dw = y->dw + values,
                                  .dv_raw = y->dv_raw + values,
                                  .dAkk = y->dAkk + scores};
  f->table->seed.wy(&f->dims, &in, &out, &s);
}

gdn2_status gdn2_seed_wy_backward(const gdn2_seed_call *call, const gdn2_seed_wy_inputs *inputs,
                                  const gdn2_seed_wy_gradients *gradients) {
  const gdn2_status status = GDN2_SEED_NEED(call, inputs, gradients);
  if (status != GDN2_OK) return status;
  const gdn2_seed_array arrays[] = {
      GDN2_SEED_IN(inputs->q, KEY_CHUNKS),
      GDN2_SEED_IN(inputs->k, KEY_CHUNKS),
      GDN2_SEED_IN(inputs->b, KEY_CHUNKS),
      GDN2_SEED_IN(inputs->gc, KEY_CHUNKS),
      GDN2_SEED_IN(inputs->w, VALUE_CHUNKS),
      GDN2_SEED_IN(inputs->v, VALUE_CHUNKS),
      GDN2_SEED_IN(inputs->A, SCORES),
      GDN2_SEED_IN(inputs->h_pre_all, STATES),
      GDN2_SEED_IN(inputs->v_new_all, VALUE_CHUNKS),
      GDN2_SEED_IN(inputs->d_o, VALUE_CHUNKS),
      GDN2_SEED_IN(inputs->dv, VALUE_CHUNKS),
      GDN2_SEED_IN(inputs->dh_next_all, STATES),
      GDN2_SEED_OUT(gradients->dq, KEY_CHUNKS),
      GDN2_SEED_OUT(gradients->dk, KEY_CHUNKS),
      GDN2_SEED_OUT(gradients->db, KEY_CHUNKS),
      GDN2_SEED_OUT(gradients->dgc, KEY_CHUNKS),
      GDN2_SEED_OUT(gradients->dw, VALUE_CHUNKS),
      GDN2_SEED_OUT(gradients->dv_raw, VALUE_CHUNKS),
      GDN2_SEED_OUT(gradients->dAkk, SCORES),
  };
  chunk_job job = {.wy_in = inputs, .wy_out = gradients};
  return RUN(call, arrays, &job, wy_task);
}

static void intra_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const int64_t keys = task * gdn2_seed_keys(f), scores = task * gdn2_seed_scores_size(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  const gdn2_seed_intra_grads out = {job->intra.dq + keys, job->intra.dk + keys, job->intra.db + keys, job->intra.dgc + keys};
  gdn2_seed_gather_keys(f, task, job->in, &s);
  f->table->seed.intra(&f->dims, job->dAqk + scores, job->dAkk + scores, &out, &s);
}

gdn2_status gdn2_seed_intra_backward(const gdn2_seed_call *call, const float *dAqk, const float *dAkk, const float *q,
                                     const float *k, const float *b, const float *g, float *dq, float *dk, float *db,
                                     float *dgc) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(dAqk, SCORES),    GDN2_SEED_IN(dAkk, SCORES),    GDN2_SEED_IN(q, KEY_TOKENS),
                                    GDN2_SEED_IN(k, KEY_TOKENS),   GDN2_SEED_IN(b, KEY_TOKENS),   GDN2_SEED_IN(g, KEY_TOKENS),
                                    GDN2_SEED_OUT(dq, KEY_CHUNKS), GDN2_SEED_OUT(dk, KEY_CHUNKS), GDN2_SEED_OUT(db, KEY_CHUNKS),
                                    GDN2_SEED_OUT(dgc, KEY_CHUNKS)};
  const gdn2_seed_inputs in = {.q = q, .k = k, .b = b, .g = g};
  chunk_job job = {.in = &in, .dAqk = dAqk, .dAkk = dAkk, .intra = {dq, dk, db, dgc}};
  return RUN(call, arrays, &job, intra_task);
}

static void reverse_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const int64_t n = gdn2_seed_keys(f), at = task * n;
  (void)slot;
  f->table->seed.reverse_sums(f->dims.C, f->dims.K, job->from + at, job->to + at);
  (void)f->table->seed.sanitize((ptrdiff_t)n, f->dims.clip, job->to + at, job->to + at);
}

gdn2_status gdn2_seed_reverse_cumsum(const gdn2_seed_call *call, const float *dgc, float *dg) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(dgc, KEY_CHUNKS), GDN2_SEED_OUT(dg, KEY_CHUNKS)};
  chunk_job job = {.from = dgc, .to = dg};
  return RUN(call, arrays, &job, reverse_task);
}

static void sums_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  gdn2_seed_gather(f, task, f->dims.K, job->from, s.g);
  f->table->seed.sums(f->dims.C, f->dims.K, s.g, job->to + task * gdn2_seed_keys(f));
}

gdn2_status gdn2_seed_chunk_sums(const gdn2_seed_call *call, const float *g, float *gc) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_IN(g, KEY_TOKENS), GDN2_SEED_OUT(gc, KEY_CHUNKS)};
  chunk_job job = {.from = g, .to = gc};
  return RUN(call, arrays, &job, sums_task);
}

static void gather_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  (void)slot;
  gdn2_seed_gather(job->frame, task, job->D, job->from, job->to + task * job->frame->dims.C * job->D);
}

static void scatter_task(void *context, int64_t task, int slot) {
  const chunk_job *job = context;
  (void)slot;
  gdn2_seed_scatter(job->frame, task, job->D, job->from + task * job->frame->dims.C * job->D, job->to);
}

static gdn2_status check_width(const gdn2_seed_call *call, int64_t D) {
  const gdn2_status status = GDN2_SEED_NEED(call);
  if (status != GDN2_OK) return status;
  if (D == call->K || D == call->V) return GDN2_OK;
  return gdn2_fail(GDN2_ERR_SHAPE, "D is %lld; it must be call->K = %lld or call->V = %lld", (long long)D, (long long)call->K,
                   (long long)call->V);
}

gdn2_status gdn2_seed_to_chunks(const gdn2_seed_call *call, int64_t D, const float *tokens, float *chunks) {
  const gdn2_status status = check_width(call, D);
  if (status != GDN2_OK) return status;
  gdn2_seed_array arrays[] = {GDN2_SEED_IN(tokens, KEY_TOKENS), GDN2_SEED_OUT(chunks, KEY_CHUNKS)};
  if (D == call->V) arrays[0].kind = GDN2_SEED_VALUE_TOKENS, arrays[1].kind = GDN2_SEED_VALUE_CHUNKS;
  chunk_job job = {.D = D, .from = tokens, .to = chunks};
  return RUN(call, arrays, &job, gather_task);
}

gdn2_status gdn2_seed_from_chunks(const gdn2_seed_call *call, int64_t D, const float *chunks, float *tokens) {
  const gdn2_status status = check_width(call, D);
  if (status != GDN2_OK) return status;
  gdn2_seed_array arrays[] = {GDN2_SEED_IN(chunks, KEY_CHUNKS), GDN2_SEED_OUT(tokens, KEY_TOKENS)};
  if (D == call->V) arrays[0].kind = GDN2_SEED_VALUE_CHUNKS, arrays[1].kind = GDN2_SEED_VALUE_TOKENS;
  chunk_job job = {.D = D, .from = chunks, .to = tokens};
  return RUN(call, arrays, &job, scatter_task);
}
