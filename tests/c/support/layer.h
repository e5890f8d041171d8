/* The layer parts: problems held in float64, their calls of the library, and their solutions by plain float64 loops.
 *
 * The arrays of a case hold numbers that their element type can represent, so that the loop and the library see one problem. */
#ifndef TEST_LAYER_H
#define TEST_LAYER_H
#include <stdbool.h>

#include "compare.h"
#include "gdn2.h"
#include "memory.h"
#include "random.h"

/* ---- Buffers of any type: gaps filled with ones, which are NaN in each type; the last element at a guard page ---- */

typedef struct slab {
  tensor t;
  gdn2_dtype dtype;
  int64_t stride[4];
  bool dense;
  size_t span; /* elements, gaps included */
  void *base;  /* as the test's memory gave it */
  char *low, *first;
} slab;

/* Strides: axes from the slowest to the fastest, elements after each block of an axis, axes that run backwards. NULL: contiguous.
 */
typedef struct slab_layout {
  int order[4];
  int64_t padding[4];
  int sign[4];
} slab_layout;

double layer_round(gdn2_dtype dtype, double x);
slab slab_new(tensor t, gdn2_dtype dtype, const slab_layout *layout);
void slab_put(const slab *x, const double *contiguous);
double *slab_get(const slab *x);
/* Fails if an element that the strides do not reach was written; or if any was. */
void slab_expect_gaps(const slab *x);
void slab_expect_untouched(const slab *x);
gdn2_input slab_input(const slab *x);
gdn2_output slab_output(const slab *x);

/* An array of normal numbers, representable in the type. */
double *layer_normal(rng *r, gdn2_dtype dtype, size_t count, double deviation);

/* Relative L2 error at most `bound` above that of rounding want once to the type. Fails where the reference is small. */
void layer_expect_close(tensor t, gdn2_dtype dtype, const double *got, const double *want, double bound);
double layer_error(const double *got, const double *want, size_t count);
/* The same bits, as float64 holds them. */
void layer_expect_equal(tensor t, const double *got, const double *want);
/* What float32 sums of a few hundred numbers may cost, and float64 ones. */
double layer_bound(gdn2_dtype dtype);

/* The call failed with the status, and its sentence has the name as a word of its own. */
void layer_expect_sentence(gdn2_status got, gdn2_status want, const char *name);

/* ---- Convolution ---- */

enum { C_X, C_WEIGHT, C_BIAS, C_STATE, C_DY, C_DLAST, C_INPUTS };
enum { C_Y, C_LAST, C_DX, C_DWEIGHT, C_DBIAS, C_DSTATE, C_OUTPUTS };

typedef struct conv_case {
  int64_t B, T, D, W;
  int silu;
  int64_t N;         /* sequences: B where cu is NULL */
  const int64_t *cu; /* [N + 1]; B = 1 */
  gdn2_index cu_type;
  double *in[C_INPUTS]; /* contiguous; NULL: absent */
  gdn2_dtype dtype[C_INPUTS], out_dtype[C_OUTPUTS];
  const slab_layout *tokens, *grids; /* of token tensors; of weights and states */
} conv_case;

typedef struct conv_result {
  double *out[C_OUTPUTS]; /* contiguous; NULL: not wanted, or not reached */
} conv_result;

/* Every input normal, of the type; taps about 1 / sqrt(W). */
conv_case conv_new(uint64_t seed, gdn2_dtype dtype, int64_t B, int64_t T, int64_t D, int64_t W, int silu);
/* B = 1: cut into sequences, state and dstate_final drawn anew. */
void conv_cut(conv_case *c, const int64_t *cu, int64_t N, uint64_t seed);
tensor conv_in_tensor(const conv_case *c, int input);
tensor conv_out_tensor(const conv_case *c, int output);
/* Sequence n alone: B = 1, no cu_seqlens. */
conv_case conv_sequence(const conv_case *c, int64_t n);
/* Tokens [from, to) of every row; no cu_seqlens. */
conv_case conv_tokens(const conv_case *c, int64_t from, int64_t to);
void conv_range(const conv_case *c, int64_t n, int64_t *batch, int64_t *start, int64_t *length);

/* Both calls, or the forward alone; inputs on read-only pages, gaps checked, any status but GDN2_OK fails. */
conv_result conv_run(const conv_case *c, gdn2_exec exec);
conv_result conv_run_forward(const conv_case *c, gdn2_exec exec);
conv_result conv_run_some(const conv_case *c, unsigned wanted, gdn2_exec exec);

typedef enum conv_fault {
  CONV_RIGHT,
  CONV_TAPS_REVERSED,
  CONV_STATE_IGNORED,
  CONV_STATE_REVERSED,
  CONV_NO_BIAS,
  CONV_NO_SLOPE,       /* the sigmoid's slope is left out of dz */
  CONV_LAST_TOO_EARLY, /* the final state is that before the last token */
  CONV_FAULTS
} conv_fault;

/* y and the final state; all outputs. */
conv_result conv_loop(const conv_case *c, conv_fault fault);
void conv_expect_right(const conv_case *c, const conv_result *got, const conv_result *want);
void conv_expect_equal(const conv_case *c, const conv_result *got, const conv_result *want);

/* ---- Norm ---- */

enum { N_X, N_Z, N_WEIGHT, N_DY, N_INPUTS };
enum { N_Y, N_DX, N_DZ, N_DWEIGHT, N_OUTPUTS };

typedef struct norm_case {
  int64_t B, T, H, D;
  gdn2_norm_gate gate;
  int plus_one;
  double eps;
  double *in[N_INPUTS];
  gdn2_dtype dtype[N_INPUTS], out_dtype[N_OUTPUTS];
  const slab_layout *layout;
} norm_case;

typedef struct norm_result {
  double *out[N_OUTPUTS];
} norm_result;

norm_case norm_new(uint64_t seed, gdn2_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t D);
tensor norm_in_tensor(const norm_case *c, int input);
tensor norm_out_tensor(const norm_case *c, int output);
norm_result norm_run(const norm_case *c, gdn2_exec exec);
norm_result norm_run_some(const norm_case *c, unsigned wanted, gdn2_exec exec);

typedef enum norm_fault {
  NORM_RIGHT,
  NORM_SUM,        /* the sum of squares in place of the mean */
  NORM_NO_EPS,     /* eps left out */
  NORM_GATE_FIRST, /* the gate before the norm */
  NORM_NO_SLOPE,   /* dz without the slope's second term */
  NORM_NO_MEAN,    /* dx without the part through the root */
  NORM_FAULTS
} norm_fault;

norm_result norm_loop(const norm_case *c, norm_fault fault);
void norm_expect_right(const norm_case *c, const norm_result *got, const norm_result *want);
void norm_expect_equal(const norm_case *c, const norm_result *got, const norm_result *want);
#endif
