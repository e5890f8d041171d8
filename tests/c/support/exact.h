/* A problem of the exact rule with its arrays, its solution by the library, and its solution by the float64 oracle. */
#ifndef TEST_EXACT_H
#define TEST_EXACT_H
#include <stdbool.h>
#include <stdint.h>

#include "compare.h"
#include "gdn2.h"
#include "random.h"

enum { IN_Q, IN_K, IN_V, IN_G, IN_B, IN_W, IN_H0, IN_DO, IN_DHF, INPUTS };
enum { OUT_O, OUT_HF, OUT_DQ, OUT_DK, OUT_DV, OUT_DG, OUT_DB, OUT_DW, OUT_DH0, OUTPUTS };
#define OUT_FORWARD ((1u << OUT_O) | (1u << OUT_HF))
#define OUT_ALL ((1u << OUTPUTS) - 1)
#define OUT_BACKWARD (OUT_ALL & ~OUT_FORWARD)

/* Arrays are contiguous: q k g b [B,T,H,K], v w d_o [B,T,H,V], h0 dh_final [B,H,K,V]; a gate per head [B,T,H]. */
typedef struct exact_case {
  int64_t B, T, H, K, V;
  const double *scale;
  float *in[INPUTS];     /* NULL: absent */
  bool per_head[INPUTS]; /* of IN_G, IN_B, IN_W */
  bool summed[OUTPUTS];  /* of OUT_DG, OUT_DB, OUT_DW: the gradient is wanted per head */
} exact_case;

typedef struct results {
  float *out[OUTPUTS]; /* NULL: not wanted */
} results;

typedef struct oracle {
  double *out[OUTPUTS];
} oracle;

/* Inputs like a trained layer's: unit q and k, cosine about 0.8 between neighbouring keys, b and w in (0,1), g from -20 to -1e-3,
 * log-uniform (even heads: by channel, so that some remember for long; odd heads: by element), normal v, h0, d_o, dh_final. */
exact_case case_trained(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t K, int64_t V);

/* All arrays of one input or output: name, shape as held by the case. */
tensor input_tensor(const exact_case *c, int input);
tensor output_tensor(const exact_case *c, int output);
size_t input_count(const exact_case *c, int input);
size_t output_count(const exact_case *c, int output);

void case_fill(exact_case *c, int input, double value);
void case_fill_normal(exact_case *c, int input, uint64_t seed, double deviation);
/* Every row [b,t,h,:] of a token tensor becomes e_at(t): 1 at channel (t * step) % width, 0 elsewhere. */
void case_fill_unit(exact_case *c, int input, int64_t step);
/* The gate becomes one number per head (that of channel 0), its gradient the sum over the channels. */
void case_make_per_head(exact_case *c, int input);
/* Row [b,t,h,:] of a token tensor. */
float *case_row(const exact_case *c, int input, int64_t b, int64_t t, int64_t h);
/* A deep copy, or one of the tokens [from, to) or of the batch row b alone. */
exact_case case_copy(const exact_case *c);
exact_case case_tokens(const exact_case *c, int64_t from, int64_t to);
exact_case case_batch_row(const exact_case *c, int64_t b);

/* Calls of the library. The arrays of results are made by results_new and poisoned; those not in `wanted` are NULL. */
results results_new(const exact_case *c, unsigned wanted);
gdn2_forward_args forward_args(const exact_case *c, const results *r);
gdn2_backward_args backward_args(const exact_case *c, const results *r);
/* Forward if o or h_final is wanted, backward if a gradient is. Inputs lie on read-only pages meanwhile. Fails on any status but
 * GDN2_OK. */
results engine_run(const exact_case *c);
results engine_run_some(const exact_case *c, unsigned wanted, gdn2_exec exec);
uint64_t results_hash(const exact_case *c, const results *r);

/* The float64 oracle on the same float32 inputs, token by token. */
oracle oracle_run(const exact_case *c);

/* Every output that r holds: forward ones within `forward`, gradients within `backward` (relative L2, reference not small). */
void expect_right(const exact_case *c, const results *r, const oracle *want, double forward, double backward);
/* The same, where references may vanish: see expect_close_to_unit. */
void expect_right_to_unit(const exact_case *c, const results *r, const oracle *want, double bound, double unit);
/* Every output that both hold. */
void expect_equal(const exact_case *c, const results *got, const results *want);
/* Rows [from, to) of every batch row of a token output; got and want may belong to cases of different T. */
void expect_equal_rows(const exact_case *c, int output, const float *got, const exact_case *d, const float *want, int64_t from,
                       int64_t to);
void expect_zero_rows(const exact_case *c, int output, const float *got, int64_t from, int64_t to);
#endif
