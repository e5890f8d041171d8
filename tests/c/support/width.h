/* The forward with all its options: a problem held in float64, its call of the library, and its solution by the float64 oracle.
 *
 * The arrays of a case hold numbers that its element types can represent, so widening is exact by construction, and the oracle
 * and the library see the same problem. Conversions are arithmetic on double here, and share nothing with the library's. */
#ifndef TEST_WIDTH_H
#define TEST_WIDTH_H
#include "exact.h"
#include "memory.h"

/* ---- Element types ---- */

/* x rounded once: to nearest, ties to even, beyond the largest number to infinity, gradually to 0. */
double width_round(gdn2_dtype dtype, double x);
/* Bits of a 16-bit type, and back. */
uint16_t width_encode(gdn2_dtype dtype, double x);
double width_decode(gdn2_dtype dtype, uint16_t bits);
const char *width_dtype_name(gdn2_dtype dtype);

/* ---- Buffers: a tensor laid out in memory, gaps marked with NaN, its last element at a guard page (or its first) ---- */

/* The axes from the slowest to the fastest; elements after each block of an axis; axes that run backwards have sign -1. */
typedef struct width_layout {
  int token_order[4], state_order[4];
  int64_t padding[4];
  int sign[4];
  test_place place;
} width_layout;

extern const width_layout width_contiguous;

typedef struct width_buffer {
  tensor t;
  gdn2_dtype dtype;
  int64_t stride[4];
  size_t span; /* elements, gaps included */
  void *base;  /* as the test's memory gave it: locks are asked for by it */
  char *low;   /* the lowest element */
  char *first; /* element [0,0,0,0] */
} width_buffer;

/* t.shape[3] == 1 and per_head: the channel stride is 0. */
width_buffer width_buffer_new(tensor t, gdn2_dtype dtype, const width_layout *layout, bool is_state, bool per_head);
void width_buffer_store(const width_buffer *x, const double *contiguous);
/* Decoded; bits may be NULL, and is not written for float32. */
void width_buffer_load(const width_buffer *x, float *contiguous, uint16_t *bits);
/* Of float64. */
void width_buffer_load_wide(const width_buffer *x, double *contiguous);
/* Fails if an element that the strides do not reach was written. */
void width_buffer_expect_gaps(const width_buffer *x);
/* Fails if anything at all was written. */
void width_buffer_expect_untouched(const width_buffer *x);
gdn2_input width_input(const width_buffer *x);
gdn2_output width_output(const width_buffer *x);

/* ---- Problems ---- */

enum { W_Q, W_K, W_V, W_G, W_B, W_W, W_H0, W_A, W_DT, W_INPUTS };

typedef struct width_case {
  int64_t B, T, H, HV, K, V;
  const double *scale;
  gdn2_head_map map;
  bool g_key_heads, b_key_heads;
  int64_t N;         /* sequences: B where cu is NULL */
  const int64_t *cu; /* [N + 1] */
  gdn2_index cu_type;
  gdn2_decay decay;
  double lower_bound;
  gdn2_gate erase, write;
  bool l2norm;
  double *in[W_INPUTS]; /* contiguous; NULL: absent */
  gdn2_dtype dtype[W_INPUTS];
  bool per_head[W_INPUTS]; /* of g, b, w, dt_bias */
} width_case;

/* Inputs as of case_trained, float32, finished gates, no sequences: options are set by the functions below, in any order that
 * keeps the shapes: gates per key head first, then sequences, then types. */
width_case width_new(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V);
tensor width_tensor(const width_case *c, int input);
size_t width_count(const width_case *c, int input);
/* A copy of the array that may be changed without changing other cases. */
void width_own(width_case *c, int input);
void width_fill(width_case *c, int input, double value);
void width_fill_normal(width_case *c, int input, uint64_t seed, double deviation);
/* Row [b,t,h,:]. */
double *width_row(const width_case *c, int input, int64_t b, int64_t t, int64_t h);
/* One number per head: that of channel 0. */
void width_make_per_head(width_case *c, int input);
/* g or b gets H heads: the first H it has. */
void width_make_key_gate(width_case *c, int input);
/* Rounds the array to the type. */
void width_set_dtype(width_case *c, int input, gdn2_dtype dtype);
/* Of q, k, v, g, b and w. */
void width_set_dtypes(width_case *c, gdn2_dtype dtype);
/* The decay comes from raw input, with A_log and dt_bias; b, w from raw input. */
void width_make_raw_decay(width_case *c, gdn2_decay decay, uint64_t seed);
void width_make_raw_gates(width_case *c, gdn2_gate erase, gdn2_gate write, uint64_t seed);
/* B = 1: cut into N sequences, h0 drawn anew unless it is absent. cu is kept by the pointer. */
void width_cut(width_case *c, const int64_t *cu, int64_t N, uint64_t seed);
/* Sequence n alone: B = 1, no cu_seqlens. */
width_case width_sequence(const width_case *c, int64_t n);
/* The same problem with q, k and the gates of key heads repeated, so that H = HV. */
width_case width_repeated(const width_case *c);
/* The key head of value head j. */
int64_t width_key_head(const width_case *c, int64_t j);

/* ---- Calls ---- */

typedef struct width_call {
  width_buffer in[W_INPUTS], o, h_final;
  void *cu;
  gdn2_forward_args args;
} width_call;

/* Inputs packed and locked, outputs marked; h_final is float64 where o is. */
width_call width_call_new(const width_case *c, gdn2_dtype o_dtype, const width_layout *layout);

typedef struct width_result {
  gdn2_dtype dtype; /* of o */
  float *o;         /* [B,T,HV,V] decoded */
  uint16_t *bits;   /* the same, of a 16-bit o */
  float *h_final;   /* [N,HV,K,V] */
} width_result;

/* Runs, fails on any status but GDN2_OK and on a write to a gap. */
width_result width_call_run(const width_case *c, width_call *call);
width_result width_run(const width_case *c, gdn2_dtype o_dtype);
width_result width_run_as(const width_case *c, gdn2_dtype o_dtype, const width_layout *layout, gdn2_exec exec);

/* Snapshots of `moments` moments for each batch row, contiguous or V x K, filled with TEST_POISON. */
gdn2_states width_snapshots_new(const width_case *c, int64_t moments, gdn2_dtype dtype, bool by_rows);

tensor width_o_tensor(const width_case *c);
tensor width_h_tensor(const width_case *c);

/* ---- The oracle and the judgement ---- */

typedef struct width_truth {
  double *o, *h_final;
} width_truth;

/* An input of one sequence (B = 1, no cu) as the recurrence takes it, [T,HV,K or V]: gates finished, rows normalised, heads
 * repeated, an absent gate neutral. */
double *width_finished(const width_case *c, int input);

/* ref_forward on each sequence of the expanded problem; tokens of no sequence: 0. */
width_truth width_oracle(const width_case *c);

/* ||got - want|| / ||want|| and ||round(want) - want|| / ||want||: what one rounding to the type of o costs. */
double width_rounding_error(gdn2_dtype dtype, const double *want, size_t count);
/* The error of o is at most that of rounding the oracle's once, plus bound; that of h_final is at most bound. */
void width_expect_right(const width_case *c, const width_result *got, const width_truth *want, double bound);
/* Every bit. Of o: [from, to) tokens of got are those from `at` of want. */
void width_expect_equal(const width_case *c, const width_result *got, const width_result *want);
void width_expect_equal_part(const width_case *c, const width_result *got, const width_case *part, const width_result *want,
                             int64_t n);
/* A 16-bit o has the bits of the float32 o rounded once. */
void width_expect_rounded(const width_case *c, const width_result *half, const width_result *single);
/* The error of o against the oracle, for mutations that must be seen. */
double width_error(const width_case *c, const width_result *got, const width_truth *want);
#endif
