/* What the files of the float64 path share: one value head of one sequence, one token of it, its gradients, its state. */
#ifndef GDN2_DOUBLE_HEAD_H
#define GDN2_DOUBLE_HEAD_H
#include "base/arena.h"
#include "drive/drive.h"

/* The caller's inputs. Tokens are counted from the start of the sequence. */
typedef struct gdn2_double_head {
  int64_t K, V;
  double scale, lower_bound;
  double A_log, rate; /* rate = exp(A_log) */
  gdn2_decay decay;
  gdn2_gate erase, write;
  int l2norm;
  gdn2_rows q, k, v, g, b, w, dt_bias;
} gdn2_double_head;

/* One token with its gates finished. */
typedef struct gdn2_double_token {
  double *q, *k;         /* [K] normalised where asked for; q without the scale */
  double *b, *e, *alpha; /* [K] erase gate; b k; exp(g) */
  double *v, *w;         /* [V] */
  double *z;             /* [K] g, or what it is made of where it comes from raw input: x + dt_bias */
  double q_unit, k_unit; /* what q and k were multiplied by */
} gdn2_double_token;

/* Gradients by the members of a token; after gdn2_double_chain_* by the caller's numbers. */
typedef struct gdn2_double_grad {
  double *q, *k, *g, *b; /* [K] */
  double *v, *w;         /* [V] */
  double A_log;          /* this token's part */
} gdn2_double_grad;

/* Room for count numbers; NULL while measuring. */
static inline double *gdn2_double_room(gdn2_arena *arena, int64_t count) {
  return (double *)(void *)gdn2_arena_floats(arena, 2 * (size_t)count);
}

/* Where token t of the rows lies. */
static inline const double *gdn2_double_at(gdn2_rows rows, int64_t t) {
  return (const double *)(const void *)rows.at + t * rows.step;
}

/* ---- gates.c ---- */

gdn2_double_head gdn2_double_head_of(const gdn2_call *call, gdn2_span at, int64_t j);
gdn2_double_token gdn2_double_lay_token(gdn2_arena *arena, int64_t K, int64_t V);

/* Token t, finished. */
void gdn2_double_load(const gdn2_double_head *head, int64_t t, gdn2_double_token *token);
/* Through the gates and norms of token t: from its members to what the caller gave. Of q, k, g and b; of v and w. */
void gdn2_double_chain_keys(const gdn2_double_head *head, int64_t t, const gdn2_double_token *token, gdn2_double_grad *grad);
void gdn2_double_chain_values(const gdn2_double_head *head, int64_t t, gdn2_double_grad *grad);

/* ---- step.c ---- States are [K][V]; S0 before the token, S1 after it. ---- */

/* u [V]: what is written. S1 may be S0. o [V] may be NULL: not wanted. */
void gdn2_double_step(const gdn2_double_head *head, const gdn2_double_token *token, const double *S0, double *S1, double *u,
                      double *o);
/* dS: from the gradient by S1 of what comes after the token to that by S0. d_o may be NULL: zeros. S0, S1 and u may be NULL: only
 * the gradients of v, w and S0 are made. du [V] is scratch. */
void gdn2_double_step_back(const gdn2_double_head *head, const gdn2_double_token *token, const double *S0, const double *S1,
                           const double *u, const double *d_o, double *dS, double *du, gdn2_double_grad *grad);

/* From the caller's states, in any layout, and to them. */
void gdn2_double_state_load(const gdn2_view *from, int64_t sequence, int64_t head, int64_t K, int64_t V, double *S);
void gdn2_double_state_put(const double *S, int64_t K, int64_t V, gdn2_state_at to);
void gdn2_double_state_store(const double *S, int64_t K, int64_t V, const gdn2_view_out *to, int64_t sequence, int64_t head);

/* Zeros in the rows of tokens start .. T-1 of the only batch row. */
void gdn2_double_clear(const gdn2_view_out *out, int64_t start, int64_t T, int64_t heads, int64_t channels);
#endif
