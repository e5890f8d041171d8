/* Stages of the seed's pipeline in the table: kernels A-D and B1-B5 on one chunk of one head, and the two references.
 *
 * Matrices are row-major and contiguous unless a leading dimension is given. C = tokens of a chunk; score matrices are C x C,
 * q k b g and what is made of them C x K, v w C x V, states K x V. No stage loops over batch, heads, chunks or threads. */
#ifndef GDN2_STAGE_SEED_H
#define GDN2_STAGE_SEED_H
#include <stddef.h>
#include <stdint.h>

typedef struct gdn2_seed_dims {
  int C, bc, mb; /* chunk, block, micro-block */
  int K, V;
  float scale, clip;
  float damp; /* 1 - wy_eps */
} gdn2_seed_dims;

/* Memory of one thread, between the steps of one stage; q .. w are filled by the driver. */
typedef struct gdn2_seed_scratch {
  float *q, *k, *b, *g;                               /* C x K: a chunk gathered from token tensors */
  float *v, *w;                                       /* C x V */
  float *gc, *bk, *kb, *kg, *qg, *grow, *rest;        /* C x K: see seed_decays */
  float *wv, *scaled;                                 /* C x V */
  float *dqg, *dkg, *dkb, *dwp;                       /* C x K */
  float *dwv, *v_new;                                 /* C x V */
  float *kb_t, *wv_t;                                 /* K x C, V x C: transposes */
  float *h_t, *dh_t;                                  /* V x K */
  float *M, *N;                                       /* C x C */
  float *Aqk, *Akk, *A;                               /* C x C: of the chunked reference */
  float *block;                                       /* bc x bc */
  float *lanes;                                       /* 2 bc x 16: block sums of one vector of channels */
  float *row;                                         /* K + V */
  float *intra[4], *wy_keys[4], *wy_values[2], *dAkk; /* gradients of a chunk: C x K, C x K, C x V, C x C */
} gdn2_seed_scratch;

/* Results of B3 and B4 on one chunk. */
typedef struct gdn2_seed_wy_grads {
  float *dq, *dk, *db, *dgc; /* C x K */
  float *dw, *dv_raw;        /* C x V */
  float *dAkk;               /* C x C */
} gdn2_seed_wy_grads;

typedef struct gdn2_seed_intra_grads {
  float *dq, *dk, *db, *dgc; /* C x K */
} gdn2_seed_intra_grads;

/* What kernels A and C leave of one chunk. */
typedef struct gdn2_seed_chunk {
  const float *Aqk;                /* C x C */
  const float *w_pseudo, *kg, *qg; /* C x K */
  const float *u;                  /* C x V */
  const float *gc_last;            /* K */
} gdn2_seed_chunk;

/* What B3 needs of one chunk. */
typedef struct gdn2_seed_wy_chunk {
  const float *q, *k, *b, *gc;           /* C x K */
  const float *w, *v, *v_new, *d_o, *dv; /* C x V */
  const float *A;                        /* C x C */
  const float *h_pre, *dh_next;          /* K x V */
} gdn2_seed_wy_chunk;

/* Stages that return int64_t return how many values their clip replaced; `replaced` has a count for every output. */
typedef struct gdn2_seed_stages {
  /* y = clip(x), NaN -> 0. */
  int64_t (*sanitize)(ptrdiff_t n, float clip, const float *x, float *y);
  /* Adds to *nonfinite, raises *max_abs. */
  void (*inspect)(ptrdiff_t n, const float *x, int64_t *nonfinite, float *max_abs);
  /* y_i = sum over j <= i (forward) or j >= i (backward) of x_j, as a product with a triangle of ones and zeros. */
  void (*sums)(int rows, int n, const float *x, float *y);
  void (*reverse_sums)(int rows, int n, const float *x, float *y);

  void (*scores)(const gdn2_seed_dims *d, const float *q, const float *k, const float *b, const float *g, float *Aqk, float *Akk,
                 gdn2_seed_scratch *s, int64_t replaced[2]);
  int64_t (*solve)(const gdn2_seed_dims *d, const float *Akk, float *A, gdn2_seed_scratch *s);
  /* Inputs in s->q .. s->g. */
  void (*rebuild)(const gdn2_seed_dims *d, const float *A, float *w_pseudo, float *u, float *kg, float *qg, float *gc_last,
                  gdn2_seed_scratch *s, int64_t replaced[4]);
  /* Columns 0 .. n-1 of: h (K x n, updated in place), v_new (C x n), o (its first `rows` rows); u in chunk, h, v_new: leading
   * dimension V; o: ldo. */
  void (*combine)(const gdn2_seed_dims *d, int n, const gdn2_seed_chunk *chunk, float *h, float *v_new, int rows, float *o,
                  ptrdiff_t ldo, gdn2_seed_scratch *s, int64_t replaced[2]);

  void (*dav)(const gdn2_seed_dims *d, const float *Aqk, const float *v_new, const float *d_o, float *dAqk, float *dv,
              gdn2_seed_scratch *s);
  /* Columns 0 .. n-1 of: dh (K x n, in: gradient of the state after the chunk; out: before it), dv; leading dimension V. */
  void (*dhu)(const gdn2_seed_dims *d, int n, const gdn2_seed_chunk *chunk, const float *d_o, const float *dv_partial, float *dh,
              float *dv, gdn2_seed_scratch *s);
  void (*wy)(const gdn2_seed_dims *d, const gdn2_seed_wy_chunk *x, const gdn2_seed_wy_grads *y, gdn2_seed_scratch *s);
  /* q, k, b, g in s->q .. s->g. */
  void (*intra)(const gdn2_seed_dims *d, const float *dAqk, const float *dAkk, const gdn2_seed_intra_grads *y,
                gdn2_seed_scratch *s);
  /* Adds B4's results to B3's, turns dgc into dg (B5) and clips everything to +-1e4; results in the arrays of `sum`, dg in
   * sum->dgc. */
  void (*assemble)(const gdn2_seed_dims *d, const gdn2_seed_wy_grads *sum, const gdn2_seed_intra_grads *y, gdn2_seed_scratch *s);

  /* One token: rows of K or V numbers; h is updated, o written. */
  void (*token)(const gdn2_seed_dims *d, const float *q, const float *k, const float *v, const float *w, const float *b,
                const float *g, float *h, float *o, gdn2_seed_scratch *s);
  /* One chunk, inputs in s->q .. s->g; h is updated, o has leading dimension ldo. */
  void (*chunked)(const gdn2_seed_dims *d, float *h, float *o, ptrdiff_t ldo, gdn2_seed_scratch *s);
} gdn2_seed_stages;
#endif
