/* The drivers of the kernels, on an open frame and checked pointers; arrays as in gdn2_seed.h. */
#ifndef GDN2_STAGED_KERNELS_H
#define GDN2_STAGED_KERNELS_H
#include "staged/frame.h"

/* Forward. replaced: values that the clip changed, for every output in order. */
void gdn2_seed_run_scores(const gdn2_seed_frame *frame, const gdn2_seed_inputs *in, float *Aqk, float *Akk, int64_t replaced[2]);
void gdn2_seed_run_solve(const gdn2_seed_frame *frame, const float *Akk, float *A, int64_t replaced[1]);
/* Writes w_pseudo, u, kg, qg and gc_last of out. */
void gdn2_seed_run_rebuild(const gdn2_seed_frame *frame, const gdn2_seed_inputs *in, const float *A,
                           const gdn2_seed_residuals *out, int64_t replaced[4]);

typedef struct gdn2_seed_combine_out {
  float *o;
  int o_in_tokens;                        /* o in token order, else in chunk order */
  float *h_final, *h_pre_all, *v_new_all; /* the last two may be NULL */
} gdn2_seed_combine_out;
void gdn2_seed_run_combine(const gdn2_seed_frame *frame, const gdn2_seed_chunk *made, const float *h0,
                           const gdn2_seed_combine_out *out, int64_t replaced[2]);

/* The whole forward; h_pre_all and v_new_all of the residuals may be NULL. */
void gdn2_seed_run_forward(const gdn2_seed_frame *frame, const gdn2_seed_inputs *in, const gdn2_seed_residuals *residuals,
                           float *o, float *h_final);

/* The state a head starts from: h0 clipped, or zeros. */
void gdn2_seed_start_state(const gdn2_seed_frame *frame, const float *h0, float *h);

/* A block for all residuals, with the kept states or without; NULL if there is no memory. To be freed. */
void *gdn2_seed_residuals_allocate(const gdn2_seed_frame *frame, int with_states, gdn2_seed_residuals *residuals);

/* GDN2_ERR_ARGUMENT if an array of the residuals is NULL. */
gdn2_status gdn2_seed_check_residuals(const gdn2_seed_residuals *residuals);

/* Backward. In gdn2_seed_run_dhu dv_all may be dv_partial. */
void gdn2_seed_run_dav(const gdn2_seed_frame *frame, const float *Aqk, const float *v_new, const float *d_o, float *dAqk,
                       float *dv_partial);
void gdn2_seed_run_dhu(const gdn2_seed_frame *frame, const gdn2_seed_chunk *made, const float *d_o, const float *dv_partial,
                       const float *dht, float *dh_all, float *dh0, float *dv_all);
#endif
