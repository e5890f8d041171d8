/* A problem of the seed's pipeline with its arrays, and every kernel restated in float64, written to be read. */
#ifndef TEST_SEED_CASE_H
#define TEST_SEED_CASE_H
#include <stdbool.h>

#include "compare.h"
#include "gdn2.h"
#include "random.h"

typedef struct seed_case {
  gdn2_seed_config config;
  double scale;
  gdn2_seed_call call;
  int64_t chunks;
  gdn2_seed_inputs in;
  float *d_o, *dh_final;
  gdn2_seed_residuals made; /* fresh arrays */
  float *o, *h_final;
} seed_case;

/* Unit keys that resemble their neighbours, b and w in (0, 1), decays from 1e-3 to `strongest`. Arrays end at guard pages. */
void seed_case_init(seed_case *c, uint64_t seed, const int64_t sizes[5], gdn2_seed_config config, double strongest);

/* Shapes of the tensors of a case. */
tensor seed_scores(const seed_case *c, const char *name);
tensor seed_keys(const seed_case *c, const char *name); /* chunk tensors */
tensor seed_values(const seed_case *c, const char *name);
tensor seed_states(const seed_case *c, const char *name); /* one state a chunk */
tensor seed_last(const seed_case *c, const char *name);   /* gc_last */
tensor seed_state(const seed_case *c, const char *name);  /* one state a head */
tensor seed_key_tokens(const seed_case *c, const char *name);
tensor seed_value_tokens(const seed_case *c, const char *name);
float *seed_array(tensor t);
double *seed_wide(const float *x, tensor t);

/* ---- Float64 ---- One chunk each, arrays as in gdn2_seed.h without the leading axes. ----------------------------------------
 */

typedef struct seed_model {
  int C, K, V;
  double scale, clip, wy_eps;
  bool float_sums; /* gc is rounded to float32 row by row, as the pipeline defines it: at gc = -100 the rounding of gc alone moves
                      e^gc by 8e-6, and would hide the errors of a kernel. Without: the smooth function, for differences. */
} seed_model;

seed_model seed_model_of(const seed_case *c);
double seed_clean(double x, double clip);

void model_sums(const seed_model *m, const double *g, double *gc);
void model_scores(const seed_model *m, const double *q, const double *k, const double *b, const double *g, double *Aqk,
                  double *Akk);
void model_solve(const seed_model *m, const double *Akk, double *A);

typedef struct model_chunk {
  const double *q, *k, *v, *w, *b, *g, *A, *Aqk;
  double *w_pseudo, *u, *kg, *qg, *gc_last;
} model_chunk;
void model_rebuild(const seed_model *m, const model_chunk *x);
/* h is updated. */
void model_combine(const seed_model *m, const model_chunk *x, double *h, double *v_new, double *o);

void model_dav(const seed_model *m, const double *Aqk, const double *v_new, const double *d_o, double *dAqk, double *dv);
/* dh is updated: from the gradient of the state after the chunk to that before it. */
void model_dhu(const seed_model *m, const model_chunk *x, const double *d_o, const double *dv_partial, double *dh, double *dv);

typedef struct model_wy {
  const double *q, *k, *b, *gc, *w, *v, *A, *h_pre, *v_new, *d_o, *dv, *dh_next;
  double *dq, *dk, *db, *dgc, *dw, *dv_raw, *dAkk;
} model_wy;
void model_wy_backward(const seed_model *m, const model_wy *x);

typedef struct model_intra {
  const double *q, *k, *b, *g, *dAqk, *dAkk;
  double *dq, *dk, *db, *dgc;
} model_intra;
void model_intra_backward(const seed_model *m, const model_intra *x);

/* Whole forward of one head, chunk after chunk, without the clips: o [L, V], h [K, V] updated. Inputs [L, .]; L a multiple of C.
 */
void model_head(const seed_model *m, int L, const double *q, const double *k, const double *v, const double *w, const double *b,
                const double *g, double *h, double *o);
#endif
