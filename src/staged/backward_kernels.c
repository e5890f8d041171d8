/* The drivers of kernels B1 and B2. B2 runs chunk by chunk; B1 panel by panel, from the last chunk to the first. */
#include "base/par_for.h"
#include "staged/kernels.h"

typedef struct dav_job {
  const gdn2_seed_frame *frame;
  const float *Aqk, *v_new, *d_o;
  float *dAqk, *dv_partial;
} dav_job;

static void dav_task(void *context, int64_t task, int slot) {
  const dav_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const int64_t scores = task * gdn2_seed_scores_size(f), values = task * gdn2_seed_values(f);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  f->table->seed.dav(&f->dims, job->Aqk + scores, job->v_new + values, job->d_o + values, job->dAqk + scores,
                     job->dv_partial + values, &s);
}

void gdn2_seed_run_dav(const gdn2_seed_frame *frame, const float *Aqk, const float *v_new, const float *d_o, float *dAqk,
                       float *dv_partial) {
  dav_job job = {frame, Aqk, v_new, d_o, dAqk, dv_partial};
  gdn2_par_for(frame->threads, gdn2_seed_tasks(frame), dav_task, &job);
}

typedef struct dhu_job {
  const gdn2_seed_frame *frame;
  const gdn2_seed_chunk *made;
  const float *d_o, *dv_partial;
  float *dh_all, *dh0, *dv_all;
} dhu_job;

/* The gradient of the state is carried in dh0. */
static void dhu_task(void *context, int64_t task, int slot) {
  const dhu_job *job = context;
  const gdn2_seed_frame *f = job->frame;
  const gdn2_seed_panel panel = gdn2_seed_panel_of(f, task);
  gdn2_seed_scratch s = gdn2_seed_frame_scratch(f, slot);
  float *dh = job->dh0 + panel.head * gdn2_seed_state(f) + panel.first;
  for (int64_t c = f->chunks - 1; c >= 0; c--) {
    const int64_t chunk = panel.head * f->chunks + c, values = chunk * gdn2_seed_values(f) + panel.first;
    const gdn2_seed_chunk x = gdn2_seed_chunk_of(f, job->made, chunk, panel.first);
    f->table->seed.dhu(&f->dims, panel.width, &x, job->d_o + values, job->dv_partial + values, dh, job->dv_all + values, &s);
    gdn2_seed_copy_panel(f, &panel, dh, job->dh_all + chunk * gdn2_seed_state(f) + panel.first);
  }
}

void gdn2_seed_run_dhu(const gdn2_seed_frame *frame, const gdn2_seed_chunk *made, const float *d_o, const float *dv_partial,
                       const float *dht, float *dh_all, float *dh0, float *dv_all) {
  dhu_job job = {frame, made, d_o, dv_partial, dh_all, dh0, dv_all};
  gdn2_seed_start_state(frame, dht, dh0);
  gdn2_par_for(frame->threads, gdn2_seed_panels(frame), dhu_task, &job);
}
