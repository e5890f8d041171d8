/* gdn2_layer.h - the parts around the rule in a layer; included by gdn2.h, or on its own.
 *
 *   causal depthwise convolution   gdn2_conv_forward, gdn2_conv_backward      equations (L1) to (L4) of docs/math.md
 *   RMS norm, with or without gate gdn2_norm_forward, gdn2_norm_backward      equations (L5) to (L8)
 *
 * Tensors, strides, threads, instruction sets and errors are as gdn2.h says: four strides for [batch, time, head, channel], four
 * zeros for contiguous, the channel stride 1. Element types: float32, bfloat16 and float16 in any mixture, with arithmetic in
 * float32, where subnormal numbers count as zeros as in gdn2.h, and one rounding; or every tensor float64, with arithmetic in
 * float64. The forward calls and steps use no workspace and allocate nothing; exec.workspace is for the backward calls alone.
 *
 * Bits do not depend on threads, on the batch around a sequence, on later tokens, or on where a sequence is cut in two calls
 * (with a state of the type of x or wider). Gradients of weights are sums over all tokens, in an order that depends on the place
 * of a token among the tokens of the call and on nothing else: B rows of T tokens give the bits of B sequences of T tokens.
 * Every function: on an error nothing is written, and gdn2_last_error() names the argument, its value and what it must be.
 */
#include "gdn2.h" /* includes this file at its end, whichever of the two comes first */

#ifndef GDN2_LAYER_H
#define GDN2_LAYER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Most channels of a convolution or of a row of a norm. */
#define GDN2_MAX_CHANNELS (1 << 24)

/* ---- Causal depthwise convolution ----------------------------------------------------------------------------------------- */

#define GDN2_CONV_MIN_WIDTH 2
#define GDN2_CONV_MAX_WIDTH 4

/* z_t[c] = bias[c] + sum over j < W of weight[c][j] x_{t-(W-1)+j}[c];  y = z, or z sigmoid(z) with silu. Tap W-1 meets the token
 * itself, tap 0 the oldest. Before the first token of a sequence stand the W-1 inputs of its state, the oldest first.
 * A weight [D, 1, W] of other libraries is a contiguous [D, W]. A state of W inputs, as some keep, is given from its second on
 * with the channel stride W. Token tensors have one head: the head stride is not used. */
typedef struct gdn2_conv_problem {
  int64_t B, T, D;   /* B, T >= 0; 1 <= D <= GDN2_MAX_CHANNELS */
  int64_t W;         /* taps, from GDN2_CONV_MIN_WIDTH to GDN2_CONV_MAX_WIDTH */
  gdn2_input x;      /* [B, T, 1, D] */
  gdn2_input weight; /* [1, 1, D, W]; the last two strides are free */
  gdn2_input bias;   /* [1, 1, 1, D]; absent: 0 */
  gdn2_input state;  /* [N, 1, D, W-1], with slots [slot_count, 1, D, W-1]; the last two strides are free; absent: zeros */
  int silu;          /* 1: y = z sigmoid(z) */
  /* Variable length, as in gdn2_problem: B = 1, sequence n is the tokens cu_seqlens[n] .. cu_seqlens[n+1]-1; outputs of tokens
   * from cu_seqlens[N] on are 0. Without: N is 0 or B. */
  const void *cu_seqlens; /* [N + 1] */
  gdn2_index cu_seqlens_type;
  int64_t N;
  /* A pool of states, in the forward only: sequence n reads and writes the state slots[n]. -1 skips the sequence: none of its
   * inputs is read and none of its outputs written. A slot named twice is an error. */
  const void *slots; /* [N]; NULL: sequence n has state n */
  gdn2_index slots_type;
  int64_t slot_count;
  const unsigned char *fresh; /* [N]; not 0: the sequence starts from zeros, whatever its state holds. NULL: none does */
} gdn2_conv_problem;

typedef struct gdn2_conv_forward_args {
  size_t struct_size; /* sizeof(gdn2_conv_forward_args) */
  gdn2_conv_problem problem;
  gdn2_output y; /* [B, T, 1, D]; absent: not computed */
  gdn2_output
      state_final; /* as state: the last W-1 inputs, counting those of state; it may be state itself, with equal strides */
  gdn2_exec exec;
} gdn2_conv_forward_args;

/* Prefill, and the step of one or several tokens: the same call with state and state_final. */
GDN2_API gdn2_status gdn2_conv_forward(const gdn2_conv_forward_args *args);

typedef struct gdn2_conv_backward_args {
  size_t struct_size;        /* sizeof(gdn2_conv_backward_args) */
  gdn2_conv_problem problem; /* as in the forward; slots and fresh must be NULL */
  gdn2_input dy;             /* [B, T, 1, D] gradient of the loss by y; absent: zeros */
  gdn2_input dstate_final;   /* [N, 1, D, W-1] gradient by state_final; absent: zeros */
  gdn2_output dx;            /* [B, T, 1, D]; each gradient may be absent */
  gdn2_output dweight;       /* [1, 1, D, W]; the last two strides are free */
  gdn2_output dbias;         /* [1, 1, 1, D] */
  gdn2_output dstate;        /* [N, 1, D, W-1]; the last two strides are free */
  gdn2_exec exec;
} gdn2_conv_backward_args;

/* z is computed again from x: nothing has to be kept from the forward. */
GDN2_API gdn2_status gdn2_conv_backward(const gdn2_conv_backward_args *args);
/* Bytes that the same call needs as exec.workspace: 0 without dweight and dbias, else about 2 % of x as float32. */
GDN2_API gdn2_status gdn2_conv_backward_workspace(const gdn2_conv_backward_args *args, size_t *bytes);

/* ---- RMS norm ------------------------------------------------------------------------------------------------------------- */

typedef enum gdn2_norm_gate {
  GDN2_NORM_SILU = 0, /* z sigmoid(z) */
  GDN2_NORM_SIGMOID = 1
} gdn2_norm_gate;

/* For each row of D numbers: y = x / sqrt(mean(x^2) + eps) * weight * gate(z). A plain norm has no z; over the width of a model
 * it has H = 1. Squares that overflow float32 are summed in float64. */
typedef struct gdn2_norm_problem {
  int64_t B, T, H, D; /* B, T, H >= 0; 1 <= D <= GDN2_MAX_CHANNELS */
  gdn2_input x;       /* [B, T, H, D] */
  gdn2_input z;       /* [B, T, H, D]; absent: no gate */
  gdn2_input weight;  /* [1, 1, 1, D]; absent: 1 */
  gdn2_norm_gate gate;
  int plus_one; /* 1: 1 + weight takes the place of weight */
  double eps;   /* finite, not negative; 0: 1e-6 */
} gdn2_norm_problem;

typedef struct gdn2_norm_forward_args {
  size_t struct_size; /* sizeof(gdn2_norm_forward_args) */
  gdn2_norm_problem problem;
  gdn2_output y; /* [B, T, H, D]; it may be x or z itself, with equal strides and type */
  gdn2_exec exec;
} gdn2_norm_forward_args;

GDN2_API gdn2_status gdn2_norm_forward(const gdn2_norm_forward_args *args);

typedef struct gdn2_norm_backward_args {
  size_t struct_size; /* sizeof(gdn2_norm_backward_args) */
  gdn2_norm_problem problem;
  gdn2_input dy;  /* [B, T, H, D] gradient of the loss by y; absent: zeros */
  gdn2_output dx; /* [B, T, H, D]; each gradient may be absent. dx may be dy itself, dz may be z, with equal strides and type */
  gdn2_output dz; /* [B, T, H, D]; it must be absent where z is */
  gdn2_output dweight; /* [1, 1, 1, D], the sum over all rows */
  gdn2_exec exec;
} gdn2_norm_backward_args;

/* The root is computed again from x: nothing has to be kept from the forward. */
GDN2_API gdn2_status gdn2_norm_backward(const gdn2_norm_backward_args *args);
/* Bytes that the same call needs as exec.workspace: a row for each thread, and for dweight at most 3 % of x as float32. */
GDN2_API gdn2_status gdn2_norm_backward_workspace(const gdn2_norm_backward_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
