/* The seed's two references, its fallback, and its clip as functions. */
#include "base/error.h"
#include "base/par_for.h"
#include "staged/arrays.h"
#include "staged/kernels.h"
#include <string.h>

typedef struct reference_job {
  const gdn2_seed_frame *frame;
  const gdn2_seed_inputs *in;
  float *o, *h_final;
} reference_job;

/* One head, token by token or chunk by chunk; its state is carried in h_final. */
static void token_task(void *context, int64_t head, int slot) {
  const reference_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_inputs *x = job->in;
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  float *h = job->h_final + head * gdn2_seed_state(f);
  for (int64_t t = 0; t < f->L; t++) {
    const int64_t row = (head / f->H * f->L + t) * f->H + head % f->H, key = row * f->dims.K, value = row * f->dims.V;
    f->table->seed.token(&f->dims, x->q + key, x->k + key, x->v + value, x->w + value, x->b + key, x->g + key, h, job->o + value,
                         &s);
  }
}

static void chunked_task(void *context, int64_t head, int slot) {
  const reference_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  float *h = job->h_final + head * gdn2_seed_state(f);
  for (int64_t c = 0; c < f->chunks; c++) {
    const int64_t task = head * f->chunks + c;
    gdn2_seed_gather_keys(f, task, job->in, &s);
    gdn2_seed_gather_values(f, task, job->in, &s);
    f->table->seed.chunked(&f->dims, h, job->o + gdn2_seed_first_row(f, task, f->dims.V), f->H * f->dims.V, &s);
  }
}

static gdn2_status run(const gdn2_seed_call *call, const gdn2_seed_config *config, const gdn2_seed_inputs *inputs,
                       gdn2_task *task, float *o, float *h_final) {
  const gdn2_seed_array arrays[] = {GDN2_SEED_OF_INPUTS(inputs), GDN2_SEED_OUT(o, VALUE_TOKENS), GDN2_SEED_OUT(h_final, STATE)};
  gdn2_seed_frame frame;
  const gdn2_status status =
      gdn2_seed_frame_open_arrays_with(&frame, call, config, arrays, (int)(sizeof arrays / sizeof *arrays));
  if (status != GDN2_OK) return status;
  reference_job job = {&frame, inputs, o, h_final};
  const size_t bytes = (size_t)(gdn2_seed_heads(&frame) * gdn2_seed_state(&frame)) * sizeof *h_final;
  if (inputs->h0)
    memcpy(h_final, inputs->h0, bytes);
  else
    memset(h_final, 0, bytes);
  gdn2_par_for(frame.threads, gdn2_seed_heads(&frame), task, &job);
  gdn2_seed_frame_close(&frame);
  return GDN2_OK;
}

gdn2_status gdn2_seed_token_serial(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o, float *h_final) {
  const gdn2_status status = GDN2_SEED_NEED(call, inputs);
  if (status != GDN2_OK) return status;
  return run(call, &(gdn2_seed_config){.bt = 1, .bc = 1, .mb = 1}, inputs, token_task, o, h_final);
}

gdn2_status gdn2_seed_chunked_wy(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, int64_t chunk_size, double wy_eps,
                                 float *o, float *h_final) {
  const gdn2_status status = GDN2_SEED_NEED(call, inputs);
  if (status != GDN2_OK) return status;
  if (chunk_size < 1 || chunk_size > GDN2_SEED_MAX_CHUNK)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "chunk_size is %lld; it must be from 1 to %d", (long long)chunk_size,
                     GDN2_SEED_MAX_CHUNK);
  if (call->L % chunk_size != 0)
    return gdn2_fail(GDN2_ERR_SHAPE, "call->L is %lld; it must be divisible by chunk_size = %lld", (long long)call->L,
                     (long long)chunk_size);
  if (!(wy_eps >= 0.0 && wy_eps < 1.0)) return gdn2_fail(GDN2_ERR_ARGUMENT, "wy_eps is %g; it must be in [0, 1)", wy_eps);
  const int C = (int)chunk_size;
  return run(call, &(gdn2_seed_config){.bt = C, .bc = C, .mb = C, .wy_eps = wy_eps}, inputs, chunked_task, o, h_final);
}

gdn2_status gdn2_seed_forward_fallback(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o, float *h_final) {
  gdn2_status status = GDN2_SEED_NEED(call);
  if (status != GDN2_OK) return status;
  gdn2_seed_config config;
  status = gdn2_seed_config_of(call, &config);
  return status == GDN2_OK ? gdn2_seed_chunked_wy(call, inputs, config.bt, 0.0, o, h_final) : status;
}

/* ---- Values --------------------------------------------------------------------------------------------------------------- */

gdn2_status gdn2_seed_sanitize(const gdn2_seed_config *config, int64_t n, const float *x, float *y) {
  gdn2_seed_config chosen;
  const gdn2_table *table = NULL;
  gdn2_status status = GDN2_SEED_NEED(x, y);
  if (status == GDN2_OK && n < 0) status = gdn2_fail(GDN2_ERR_SHAPE, "n is %lld; it must be 0 or more", (long long)n);
  if (status == GDN2_OK) status = gdn2_seed_config_preset(GDN2_SEED_DEFAULT, &chosen);
  if (status == GDN2_OK && config) status = gdn2_seed_config_check(config);
  const uintptr_t from = (uintptr_t)x, to = (uintptr_t)y, bytes = (uintptr_t)n * sizeof *x;
  if (status == GDN2_OK && from != to && from < to + bytes && to < from + bytes)
    status = gdn2_fail(GDN2_ERR_ARGUMENT, "y is %p, and it overlaps x at %p; it must be x itself or not overlap it", (void *)y,
                       (const void *)x);
  if (status == GDN2_OK) status = gdn2_table_choose(GDN2_ISA_AUTO, &table);
  if (status != GDN2_OK) return status;
  (void)table->seed.sanitize((ptrdiff_t)n, (float)(config ? config->clip : chosen.clip), x, y);
  return GDN2_OK;
}

gdn2_status gdn2_seed_sanitize_h0(const gdn2_seed_config *config, int64_t n, const float *x, float *y) {
  return gdn2_seed_sanitize(config, n, x, y);
}

gdn2_status gdn2_seed_clip_acc(const gdn2_seed_config *config, int64_t n, const float *x, float *y) {
  return gdn2_seed_sanitize(config, n, x, y);
}
