/* gdn2_seed.h - the seed's pipeline, stage by stage; included by gdn2.h, or on its own.
 *
 * "The seed" is the Python package atomic-ops 0.1.0: chunked Gated DeltaNet-2 kernels for a TPU. Its pipeline is not the exact
 * rule of gdn2_forward: the triangular system of a chunk is damped by 1 - wy_eps, the exponent of a pair's decay is clipped to
 * [-20, 20], and at every kernel boundary values are clipped to +-clip with NaN -> 0. This file offers those semantics, value for
 * value, stage by stage. With wy_eps = 1e-3 its results differ from the exact rule by 1e-4 to 4e-3.
 *
 * Stages, forward (tokens -> chunks -> tokens), with gc = inclusive sum of g inside a chunk:
 *     A  scores    Aqk_ij = scale sum_d q_id k_jd e_ijd (j <= i), Akk_ij = sum_d (b k)_id k_jd e_ijd (j < i),
 *                  e_ijd = exp(clip(gc_id - gc_jd, -20, 20))
 *     B  solve     A = (I + (1 - wy_eps) Akk)^-1, by forward substitution in blocks of mb, then block recursion in bc and bt
 *     C  rebuild   w_pseudo = A (b k e^gc), u = A (w v), kg = k e^(gc_last - gc), qg = q e^gc, gc_last
 *     D  combine   v_new = u - w_pseudo h; o = scale qg h + Aqk v_new; h <- e^gc_last h + kg^T v_new, chunk after chunk
 * Backward, in the order B2, B1, B3, B4, B5:
 *     B2 dAqk and the part of dv_new that comes through Aqk     B1 state gradients, from the last chunk to the first
 *     B3 gradients through C and B                              B4 gradients through A          B5 dgc -> dg
 *
 * Lifted, where only the seed's hardware sets the limit: head sizes K and V from 1 to GDN2_MAX_DIM and K != V (the seed: 128 and
 * 128); bt any multiple of bc (the seed: bt = 2 bc; more blocks go through the same recursion); any L (the seed: a multiple of
 * bt; here the last chunk is filled with neutral tokens: zeros). gdn2_seed_config_check_strict and gdn2_seed_validate_strict
 * report the seed's own limits. The chunked reference keeps its demand that L be a multiple of chunk_size.
 *
 * Arrays are float32, contiguous, and named in the seed's order q, k, v, w, b, g; an output that overlaps another array is
 * refused. Shapes in letters:
 *     B batch   L tokens   H heads   K, V head sizes   NC = ceil(L / bt) chunks
 *     token tensor [B, L, H, K or V]; chunk tensor [B, H, NC, bt, K or V]; score [B, H, NC, bt, bt]; state [B, H, K, V]
 *
 * Every function: no pointer may be NULL unless its comment says so; on an error nothing is written and gdn2_last_error() names
 * the argument, its value and what it must be. Bits do not depend on the number of threads.
 */
#include "gdn2.h" /* includes this file at its end, whichever of the two comes first */

#ifndef GDN2_SEED_H
#define GDN2_SEED_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Configuration -------------------------------------------------------------------------------------------------------- */

typedef struct gdn2_seed_config {
  int bt;        /* tokens in a chunk; a multiple of bc, at most GDN2_SEED_MAX_CHUNK */
  int bc;        /* rows of a block of the scores and of the solve; a multiple of mb */
  int mb;        /* rows of a micro-block: solved row by row */
  double clip;   /* bound at every kernel boundary; >= 0, may be infinite */
  double wy_eps; /* damping of the solve: 0 <= wy_eps < 1 */
} gdn2_seed_config;

#define GDN2_SEED_MAX_CHUNK 16384

typedef enum gdn2_seed_preset {
  GDN2_SEED_DEFAULT = 0, /* the same as MEDIUM */
  GDN2_SEED_PLAIN = 1,   /* 256, 128, 16, 1e4, 0: the seed's KernelConfig() */
  GDN2_SEED_SMALL = 2,   /* 128, 64, 16, 1e4, 1e-3: its KAGGLE_SMALL */
  GDN2_SEED_MEDIUM = 3,  /* 256, 128, 16, 1e4, 1e-3: its KAGGLE_MEDIUM and DEFAULT_CONFIG */
  GDN2_SEED_LARGE = 4    /* 256, 128, 16, 5e3, 1e-3: its KAGGLE_LARGE */
} gdn2_seed_preset;

/* Errors: GDN2_ERR_ARGUMENT for a preset that does not exist. */
GDN2_API gdn2_status gdn2_seed_config_preset(gdn2_seed_preset preset, gdn2_seed_config *config);

/* GDN2_OK, or GDN2_ERR_ARGUMENT with a sentence. The strict one adds the seed's own limit bt = 2 bc. */
GDN2_API gdn2_status gdn2_seed_config_check(const gdn2_seed_config *config);
GDN2_API gdn2_status gdn2_seed_config_check_strict(const gdn2_seed_config *config);

/* Memory of the forward's residuals in MB (2^20 bytes), by the seed's formula:
 * batch heads floor(seq_len / bt) (3 bt^2 + 7 bt d_head + 2 d_head^2) bytes_per_param. Its defaults: d_head 128, bt 256, 4 bytes.
 */
GDN2_API gdn2_status gdn2_seed_estimate_memory(int64_t batch, int64_t seq_len, int64_t heads, int64_t d_head, int64_t bt,
                                               int64_t bytes_per_param, double *megabytes);

/* LARGE above 6000 MB of that estimate with bt = 256 and 4 bytes, MEDIUM above 2500, else SMALL. */
GDN2_API gdn2_status gdn2_seed_recommended_config(int64_t batch, int64_t seq_len, int64_t heads, int64_t d_head,
                                                  gdn2_seed_config *config);

/* ---- Validation ----------------------------------------------------------------------------------------------------------- */

typedef struct gdn2_seed_shape {
  int ndim; /* 0: the tensor is absent (h0 only) */
  int64_t dim[4];
} gdn2_seed_shape;

typedef struct gdn2_seed_shapes {
  gdn2_seed_shape q, k, v, w, b, g, h0;
} gdn2_seed_shapes;

/* Do the shapes fit each other and the configuration? GDN2_ERR_SHAPE with a sentence that names the tensor if not. The strict one
 * has the seed's limits: equal shapes, d_head 128, seq_len a multiple of bt. */
GDN2_API gdn2_status gdn2_seed_validate(const gdn2_seed_shapes *shapes, const gdn2_seed_config *config);
GDN2_API gdn2_status gdn2_seed_validate_strict(const gdn2_seed_shapes *shapes, const gdn2_seed_config *config);

/* ---- Diagnostics ---------------------------------------------------------------------------------------------------------- */

/* What a stage of a forward has made. Reported if nonfinite > 0, or else if max_abs > 1e6: the seed's two reports. The seed looks
 * at the values behind the stage's clip, where a NaN has become 0 already, and so sees none of them; here a stage whose clip
 * replaced any value is reported too. */
typedef struct gdn2_seed_report {
  const char *tag;   /* the caller's, never NULL */
  const char *stage; /* kernel_A_Aqk, kernel_A_Akk, kernel_B_wy_inverse_A, kernel_C_w_pseudo, kernel_C_u, kernel_C_kg,
                        kernel_C_qg, kernel_D_h_final, kernel_D_o; in this order */
  int64_t nonfinite; /* NaN and infinities */
  float max_abs;     /* largest magnitude among the finite values, 0 if there are none */
  int64_t replaced;  /* values the stage's clip changed: they were NaN, infinite or beyond +-clip */
} gdn2_seed_report;

/* Called by the thread that called the library, between stages; must not throw. */
typedef void gdn2_seed_report_fn(void *context, const gdn2_seed_report *report);

/* 1 if the environment variable GDN2_FWD_DIAG is "1". The library never prints: a program that wants the seed's behaviour asks
 * this and, if 1, gives a callback that writes gdn2_seed_report_text to stderr. */
GDN2_API int gdn2_seed_diag_wanted(void);

/* The line for a report (the seed's own for its two kinds), without a newline, cut to size bytes with the final 0; returns its
 * whole length. text may be NULL where size is 0. -1, and a sentence in gdn2_last_error(), if a pointer is NULL that may not be.
 */
GDN2_API int gdn2_seed_report_text(const gdn2_seed_report *report, char *text, size_t size);

/* ---- Values --------------------------------------------------------------------------------------------------------------- */

/* y = x clipped to +-clip, NaN -> 0; n numbers; y may be x. config NULL: the default. The seed has three names for it. */
GDN2_API gdn2_status gdn2_seed_sanitize(const gdn2_seed_config *config, int64_t n, const float *x, float *y);
GDN2_API gdn2_status gdn2_seed_sanitize_h0(const gdn2_seed_config *config, int64_t n, const float *x, float *y);
GDN2_API gdn2_status gdn2_seed_clip_acc(const gdn2_seed_config *config, int64_t n, const float *x, float *y);

/* ---- What every call takes ------------------------------------------------------------------------------------------------ */

typedef struct gdn2_seed_call {
  size_t struct_size; /* sizeof(gdn2_seed_call) */
  int64_t B, L, H, K, V;
  const gdn2_seed_config *config; /* NULL: the default */
  const double *scale;            /* factor on q, finite; NULL: K^-1/2 */
  gdn2_exec exec;                 /* threads and isa; memory is allocated for the call, a workspace is not used */
  gdn2_seed_report_fn *report;    /* NULL: no diagnostics */
  void *report_context;
  const char *tag;       /* NULL: "" */
  gdn2_profile *profile; /* NULL: times of the whole forward's and backward's kernels are not taken */
} gdn2_seed_call;

/* tokens [B, L, H, D] <-> chunks [B, H, NC, bt, D], D = K or V; rows past L are 0 in chunks and dropped on the way back. */
GDN2_API gdn2_status gdn2_seed_to_chunks(const gdn2_seed_call *call, int64_t D, const float *tokens, float *chunks);
GDN2_API gdn2_status gdn2_seed_from_chunks(const gdn2_seed_call *call, int64_t D, const float *chunks, float *tokens);

/* ---- Forward, kernel by kernel -------------------------------------------------------------------------------------------- */

/* A: q, k, b, g [B, L, H, K] -> Aqk, Akk [B, H, NC, bt, bt]. */
GDN2_API gdn2_status gdn2_seed_scores(const gdn2_seed_call *call, const float *q, const float *k, const float *b, const float *g,
                                      float *Aqk, float *Akk);

/* B: Akk -> A, both [B, H, NC, bt, bt]; only the strict lower triangle of Akk is used, and it must be finite. */
GDN2_API gdn2_status gdn2_seed_solve(const gdn2_seed_call *call, const float *Akk, float *A);

/* C: q, k, b, g [B, L, H, K], v, w [B, L, H, V], A -> w_pseudo, kg, qg [B, H, NC, bt, K], u [B, H, NC, bt, V],
 * gc_last [B, H, NC, K]. */
GDN2_API gdn2_status gdn2_seed_rebuild(const gdn2_seed_call *call, const float *q, const float *k, const float *v, const float *w,
                                       const float *b, const float *g, const float *A, float *w_pseudo, float *u, float *kg,
                                       float *qg, float *gc_last);

/* D: what A and C made, h0 [B, H, K, V] (NULL: zeros) -> o_chunks [B, H, NC, bt, V], h_final [B, H, K, V]. */
GDN2_API gdn2_status gdn2_seed_combine(const gdn2_seed_call *call, const float *Aqk, const float *w_pseudo, const float *u,
                                       const float *kg, const float *qg, const float *gc_last, const float *h0, float *o_chunks,
                                       float *h_final);

/* The same, and the state before every chunk, h_pre_all [B, H, NC, K, V], and v_new_all [B, H, NC, bt, V]. (The seed's function
 * returns these two with the chunk axis first; its residuals have it here.) */
GDN2_API gdn2_status gdn2_seed_combine_with_state(const gdn2_seed_call *call, const float *Aqk, const float *w_pseudo,
                                                  const float *u, const float *kg, const float *qg, const float *gc_last,
                                                  const float *h0, float *o_chunks, float *h_final, float *h_pre_all,
                                                  float *v_new_all);

/* ---- Forward, whole ------------------------------------------------------------------------------------------------------- */

typedef struct gdn2_seed_inputs {
  const float *q, *k; /* [B, L, H, K] */
  const float *v, *w; /* [B, L, H, V] */
  const float *b, *g; /* [B, L, H, K]; g is the natural logarithm of the decay */
  const float *h0;    /* [B, H, K, V]; NULL: zeros */
} gdn2_seed_inputs;

typedef struct gdn2_seed_residuals {
  float *Aqk, *Akk, *A;      /* [B, H, NC, bt, bt] */
  float *h_pre_all;          /* [B, H, NC, K, V] */
  float *v_new_all, *u;      /* [B, H, NC, bt, V] */
  float *w_pseudo, *kg, *qg; /* [B, H, NC, bt, K] */
  float *gc_last;            /* [B, H, NC, K] */
} gdn2_seed_residuals;

/* A to D: o [B, L, H, V], h_final [B, H, K, V]. residuals NULL: they are not kept (the call still needs their memory, but for
 * h_pre_all and v_new_all). */
GDN2_API gdn2_status gdn2_seed_forward(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o, float *h_final,
                                       const gdn2_seed_residuals *residuals);

/* ---- Backward, kernel by kernel ------------------------------------------------------------------------------------------- */

/* B2: Aqk, v_new, d_o (both [B, H, NC, bt, V]) -> dAqk [B, H, NC, bt, bt], dv_partial [B, H, NC, bt, V]. */
GDN2_API gdn2_status gdn2_seed_dav_backward(const gdn2_seed_call *call, const float *Aqk, const float *v_new, const float *d_o,
                                            float *dAqk, float *dv_partial);

/* B1: d_o, dv_partial [B, H, NC, bt, V], w_pseudo, qg, kg, gc_last, dht [B, H, K, V] (NULL: zeros) -> dh_all [B, H, NC, K, V],
 * the gradient of the state before every chunk, dh0 [B, H, K, V], dv_all [B, H, NC, bt, V]. */
GDN2_API gdn2_status gdn2_seed_dhu_backward(const gdn2_seed_call *call, const float *d_o, const float *dv_partial,
                                            const float *w_pseudo, const float *qg, const float *kg, const float *gc_last,
                                            const float *dht, float *dh_all, float *dh0, float *dv_all);

typedef struct gdn2_seed_wy_inputs {
  const float *q, *k, *b, *gc;       /* [B, H, NC, bt, K]; gc: gdn2_seed_chunk_sums of g */
  const float *w, *v;                /* [B, H, NC, bt, V] */
  const float *A;                    /* [B, H, NC, bt, bt] */
  const float *h_pre_all;            /* [B, H, NC, K, V] */
  const float *v_new_all, *d_o, *dv; /* [B, H, NC, bt, V]; dv: dv_all of B1 */
  const float *dh_next_all;          /* [B, H, NC, K, V]: dh_all of the next chunk, for the last one the final state's gradient */
} gdn2_seed_wy_inputs;

typedef struct gdn2_seed_wy_gradients {
  float *dq, *dk, *db, *dgc; /* [B, H, NC, bt, K] */
  float *dw, *dv_raw;        /* [B, H, NC, bt, V] */
  float *dAkk;               /* [B, H, NC, bt, bt] */
} gdn2_seed_wy_gradients;

/* B3. */
GDN2_API gdn2_status gdn2_seed_wy_backward(const gdn2_seed_call *call, const gdn2_seed_wy_inputs *inputs,
                                           const gdn2_seed_wy_gradients *gradients);

/* B4: dAqk, dAkk [B, H, NC, bt, bt], q, k, b, g [B, L, H, K] -> dq, dk, db, dgc [B, H, NC, bt, K]. */
GDN2_API gdn2_status gdn2_seed_intra_backward(const gdn2_seed_call *call, const float *dAqk, const float *dAkk, const float *q,
                                              const float *k, const float *b, const float *g, float *dq, float *dk, float *db,
                                              float *dgc);

/* B5: dgc -> dg, both [B, H, NC, bt, K]: in every chunk the sum from a row to the last, then the clip. */
GDN2_API gdn2_status gdn2_seed_reverse_cumsum(const gdn2_seed_call *call, const float *dgc, float *dg);

/* gc: g [B, L, H, K] -> gc [B, H, NC, bt, K], the sum from a chunk's first row to this one. A g that is not finite makes the rows
 * before it NaN too, as in the seed, which sums by a product with a triangle of ones. */
GDN2_API gdn2_status gdn2_seed_chunk_sums(const gdn2_seed_call *call, const float *g, float *gc);

/* ---- Backward, whole ------------------------------------------------------------------------------------------------------ */

typedef struct gdn2_seed_gradients {
  float *dq, *dk; /* [B, L, H, K] */
  float *dv, *dw; /* [B, L, H, V] */
  float *db, *dg; /* [B, L, H, K] */
  float *dh0;     /* [B, H, K, V] */
} gdn2_seed_gradients;

/* B2, B1, B3, B4, B5 and the final clip to +-1e4: the gradient the seed's gdn2_pallas_forward_trainable defines, for d_o
 * [B, L, H, V] and dh_final [B, H, K, V] (NULL: zeros). residuals: as gdn2_seed_forward left them; NULL: made anew. */
GDN2_API gdn2_status gdn2_seed_backward(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs,
                                        const gdn2_seed_residuals *residuals, const float *d_o, const float *dh_final,
                                        const gdn2_seed_gradients *gradients);

/* ---- References and fallback ---------------------------------------------------------------------------------------------- */

/* The seed's token-serial reference: the exact rule in float32, one token after another. call->config is not used. */
GDN2_API gdn2_status gdn2_seed_token_serial(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o, float *h_final);

/* The seed's chunked reference: pair exponents clipped to [-20, 20]; scores, A, w_pseudo, u and o with NaN -> 0 and infinities ->
 * +-1e4; the state clipped to +-1e4 after every chunk; h0 taken as it is. wy_eps damps as in kernel B. L must be a multiple of
 * chunk_size. call->config is not used. */
GDN2_API gdn2_status gdn2_seed_chunked_wy(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, int64_t chunk_size,
                                          double wy_eps, float *o, float *h_final);

/* What the seed's gdn2_forward does without a TPU: the chunked reference with chunk_size = bt and NO damping, whatever wy_eps is.
 */
GDN2_API gdn2_status gdn2_seed_forward_fallback(const gdn2_seed_call *call, const gdn2_seed_inputs *inputs, float *o,
                                                float *h_final);

#ifdef __cplusplus
}
#endif
#endif
