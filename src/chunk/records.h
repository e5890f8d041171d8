/* The records that flow between the stages of the exact engine: one struct per arrow.
 *
 * A chunk is n tokens, 1 <= n <= GDN2_CHUNK. Inside the engine rows are padded: Kp and Vp are K and V rounded up to
 * GDN2_PAD floats. Padding channels of k, q, v, w hold 0, so that they add nothing to any sum; only the stages that read or write
 * the caller's memory know where a row really ends. Equation numbers: docs/math.md. */
#ifndef GDN2_CHUNK_RECORDS_H
#define GDN2_CHUNK_RECORDS_H
#include "base/view.h"

/* 16 tokens: the scores cost C (K + V) multiply-adds per token beside the 3 K V of the state, so a small chunk is best on a CPU,
 * and C (C + 1) / 2 exact pair decays stay cheap. A fixed number: results must not depend on the machine's preferences. */
#define GDN2_CHUNK 16
#define GDN2_PAD 16

/* Rows of the state that the backward multiplies at a time: the product stays in the first-level cache until it is transposed. */
#define GDN2_PANEL 32

/* Sizes of one head. Sp: floats from row to row of a state at work, an odd number of cache lines: the rows of a panel of columns
 * then lie in all sets of the first-level cache, not in half of them over and over. */
typedef struct gdn2_shape {
  int K, V, Kp, Vp, Sp;
} gdn2_shape;

static inline gdn2_shape gdn2_shape_of(int64_t K, int64_t V) {
  const int k = (int)K, v = (int)V, Kp = (k + GDN2_PAD - 1) / GDN2_PAD * GDN2_PAD, Vp = (v + GDN2_PAD - 1) / GDN2_PAD * GDN2_PAD;
  return (gdn2_shape){k, v, Kp, Vp, Vp | GDN2_PAD};
}

/* How the gates of a head come about: given, or from raw input. */
typedef struct gdn2_gate_rule {
  gdn2_decay decay;
  gdn2_gate erase, write;
  float A_log, rate; /* rate = exp(A_log), at most FLT_MAX */
  gdn2_rows dt_bias; /* one row; absent: 0 */
  float lower_bound;
  int l2norm; /* of q and k */
} gdn2_gate_rule;

/* The caller's inputs of one head of one sequence. */
typedef struct gdn2_head {
  gdn2_rows q, k, v, g, b, w;
  float scale;
  gdn2_gate_rule rule;
} gdn2_head;

/* Leaves out the first value channels. */
static inline void gdn2_head_skip(gdn2_head *head, int64_t values) {
  gdn2_rows_skip(&head->v, values);
  gdn2_rows_skip(&head->w, values);
}

/* load -> everything: one chunk with its gates applied. gamma_t = alpha_1 ... alpha_t inside the chunk.
 * The first five arrays hold a row for each token, ld = Kp, for the backward; or, ld = 0, gamma has one row that all tokens
 * share, and the others are absent: the forward needs a token's row only until its scores are made. */
typedef struct gdn2_keys {
  int ld;
  float *alpha;   /* [n][ld]   exp(g_t) */
  float *gamma;   /* [n][ld]   running product of alpha */
  float *q;       /* [n][ld]   scale q */
  float *k;       /* [n][ld] */
  float *bk;      /* [n][ld]   b k */
  float *g_sum;   /* [Kp]      running sum of g */
  float *factor;  /* [2][C]    what rows of q and of k are multiplied by: the scale, and the inverse norms where asked for */
  float *gamma_n; /* [Kp]      decay of the whole chunk */
  float *EQ;      /* [2n][Kp]  rows 0..n-1: -E = -gamma b k; rows n..2n-1: Qg = gamma scale q */
} gdn2_keys;

/* scores -> solve, output, state. P and T lie row by row: element (i, j) is at [i * C + j]. */
typedef struct gdn2_scores {
  float *P;     /* [C][C]   i >= j: sum_c scale q_i k_j decay(j..i] */
  float *T;     /* [C][C]   i > j:  sum_c b_i k_i k_j decay(j..i] */
  float *Ktail; /* [n][Kp]  k_j decay(j..n] */
} gdn2_scores;

/* Rows of the caller's memory that are wanted soon: token by token of each tensor. The products fetch a piece of a row now and
 * then between their steps, so that memory works while the arithmetic does. */
#define GDN2_AHEAD_TENSORS 10
#define GDN2_PIECE 256 /* bytes: four cache lines */
typedef struct gdn2_ahead {
  const char *at, *end;                /* what is left of the row being fetched; at == NULL: nothing is wanted any more */
  const char *row[GDN2_AHEAD_TENSORS]; /* the next row to fetch */
  int64_t step[GDN2_AHEAD_TENSORS];    /* bytes from token to token */
  int bytes[GDN2_AHEAD_TENSORS];       /* of a row */
  int tensors, tensor;                 /* how many; the one whose turn it is */
  int tokens;                          /* left to fetch, per tensor */
  int rest;                            /* 0: a piece every four steps of a tile; 4: every eight; 12: every sixteen */
} gdn2_ahead;

static inline void gdn2_ahead_row(gdn2_ahead *ahead) {
  const int x = ahead->tensor;
  ahead->at = NULL;
  if (ahead->tokens == 0) return;
  ahead->at = ahead->row[x];
  ahead->end = ahead->at + ahead->bytes[x];
  ahead->row[x] += ahead->step[x];
  ahead->tensor = x + 1 < ahead->tensors ? x + 1 : 0;
  if (ahead->tensor == 0) ahead->tokens--;
}

/* What the forward computes for one chunk; the backward keeps one per chunk of a segment. */
typedef struct gdn2_chunk {
  int n;
  gdn2_keys keys;
  gdn2_scores scores;
  float *X; /* [2n][Vp]  EQ S0: rows 0..n-1 -E S0, rows n..2n-1 Qg S0; where a chunk is kept, for the time of its forward only */
  float *R; /* [n][Vp]   solution of (I + T) R = Z - E S0 */
} gdn2_chunk;

/* The backward's own records of one chunk. DY holds dX then dO, so that one product serves both. */
typedef struct gdn2_grad {
  float *DY;      /* [2n][Vp]  rows 0..n-1: dX; rows n..2n-1: dO */
  float *Rt;      /* [Vp][C]   R transposed */
  float *dTP;     /* [2n][C]   DY R^T: rows 0..n-1: dX R^T = -dT below the diagonal; rows n..2n-1: dO R^T = dP on and below it */
  float *DYt;     /* [Vp][2C]  DY transposed */
  float *room;    /* [GDN2_PANEL][2C]  a product with some rows of the state, before it is transposed */
  float *DYS;     /* [2n][Kp]  DY S0^T: dX S0^T, then dO S0^T */
  float *dKt;     /* [n][Kp]   R dS1^T: gradient of Ktail */
  float *through; /* [Kp]    gamma_n rowsum(dS1 S0): what the whole chunk's decay passes straight through */
} gdn2_grad;

/* gates -> chain: gradients that are not ready to be stored, because other value heads of the key head add to them, or because
 * they are those of a finished decay or a normalised row and the caller wants the raw one's. NULL: stored at once. */
typedef struct gdn2_wait {
  float *dq, *dk, *dg, *db; /* [tokens][Kp] */
} gdn2_wait;

/* Where the gradients of one head of one sequence go. */
typedef struct gdn2_head_grad {
  gdn2_rows_out dq, dk, dv, dg, db, dw;
  gdn2_wait wait;
} gdn2_head_grad;

/* Sums over tokens, in double because there may be millions; NULL: not wanted. */
typedef struct gdn2_decay_sums {
  double *A_log;   /* [1] */
  double *dt_bias; /* [K] */
} gdn2_decay_sums;
#endif
