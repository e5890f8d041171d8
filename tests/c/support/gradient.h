/* The backward with all its options: a problem with the gradients of its outputs, its call of the library, and its solution by
 * the float64 oracle and the chain rule. */
#ifndef TEST_GRADIENT_H
#define TEST_GRADIENT_H
#include "width.h"

/* In the order of the inputs W_Q .. W_DT. */
enum { D_Q, D_K, D_V, D_G, D_B, D_W, D_H0, D_A, D_DT, GRADIENTS };
#define GRADIENTS_ALL ((1u << GRADIENTS) - 1)
#define GRADIENTS_OF_PARAMETERS (1u << D_A | 1u << D_DT)

typedef struct gradient_case {
  width_case c;
  double *d_o, *dh_final; /* [B,T,HV,V] and [N,HV,K,V], contiguous; NULL: absent */
  gdn2_dtype d_o_type;
  unsigned wanted; /* bits of gradients; those of A_log and dt_bias only where the decay has them */
} gradient_case;

/* The problem with normal d_o and dh_final. Options are set before, types by gradient_set_type. */
gradient_case gradient_of(width_case c, uint64_t seed);
/* One with every option: two key heads and six value heads, raw gates, the L2 norm; cu: NULL, or N sequences. */
gradient_case gradient_with_options(uint64_t seed, int64_t B, int64_t T, int64_t K, int64_t V, const int64_t *cu, int64_t N);
/* Of q, k, v, g, b, w and d_o. */
void gradient_set_type(gradient_case *x, gdn2_dtype type);
/* Is it wanted, and is there such a gradient? */
bool gradient_has(const gradient_case *x, int gradient);
/* Its name and shape, as that of the input. */
tensor gradient_tensor(const gradient_case *x, int gradient);
/* Sequence n alone, and the problem with a key head for every value head. */
gradient_case gradient_sequence(const gradient_case *x, int64_t n);
gradient_case gradient_repeated(const gradient_case *x);

/* ---- The library ---- */

typedef struct gradients {
  float *values[GRADIENTS]; /* contiguous, decoded; NULL: not wanted */
  uint16_t *bits[GRADIENTS];
} gradients;

typedef struct gradient_call {
  width_call inputs;
  width_buffer d_o, dh_final, out[GRADIENTS];
  gdn2_backward_args args;
} gradient_call;

/* Inputs packed and locked; outputs in the given type (those of h0, A_log and dt_bias in float32), marked. */
gradient_call gradient_call_new(const gradient_case *x, gdn2_dtype type, const width_layout *layout);
/* Runs; fails on any status but GDN2_OK and on a write to a gap. */
gradients gradient_call_run(const gradient_case *x, gradient_call *call);
gradients gradient_run(const gradient_case *x);
gradients gradient_run_as(const gradient_case *x, gdn2_dtype type, const width_layout *layout, gdn2_exec exec);

/* ---- The oracle and the judgement ---- */

typedef struct gradient_truth {
  double *values[GRADIENTS];
  double spread[GRADIENTS]; /* of A_log and dt_bias: root of the sum of the squared terms, root mean square over the elements */
} gradient_truth;

/* ref_backward on each sequence of the finished problem, then the chain rule to what the caller gave, in float64. */
gradient_truth gradient_oracle(const gradient_case *x);
/* sum(o d_o) + sum(h_final dh_final) by the oracle's forward. */
double gradient_loss(const gradient_case *x);

/* Every wanted gradient within a relative error; with `unit`, relative to at least that size. A sum over all tokens, of terms of
 * both signs, may be smaller than the error that stays of each: it is judged relative to at least its spread. */
void gradient_expect_right(const gradient_case *x, const gradients *got, const gradient_truth *want, double bound);
void gradient_expect_right_to_unit(const gradient_case *x, const gradients *got, const gradient_truth *want, double bound,
                                   double unit);
/* Every bit of what both have. */
void gradient_expect_equal(const gradient_case *x, const gradients *got, const gradients *want);
/* Sequence n of got has every bit of `alone`, but for A_log and dt_bias, which are sums over all sequences. */
void gradient_expect_equal_part(const gradient_case *x, const gradients *got, const gradient_case *part, const gradients *alone,
                                int64_t n);
void gradient_expect_finite(const gradient_case *x, const gradients *got);
uint64_t gradient_hash(const gradient_case *x, const gradients *got);
#endif
