/* gdn2.h - fused kernels for Gated DeltaNet-2 and its family on CPUs.
 *
 * This header is the manual. It goes from simple to advanced:
 *   1. status codes            what a call returns, and the sentence behind it
 *   2. tensors                 how the caller's buffers and strides are described
 *   3. the exact rule          gdn2_forward, gdn2_backward
 *   4. workspace               memory given by the caller
 *   5. introspection           version, processor, instruction set, threads
 *   6. decode                  gdn2_step.h, included at the end: new tokens on states that live on
 *   7. the seed's pipeline     gdn2_seed.h, included at the end
 *   8. the parts of a layer    gdn2_layer.h, included at the end: convolution, RMS norm with a gate
 *
 * The recurrence (equations (1) to (4) of docs/math.md), per batch row and head, state S of shape K x V:
 *
 *     S  <- diag(exp(g_t)) S              decay; g is the natural logarithm of the decay
 *     r   = S^T (b_t * k_t)               what the key reads in the decayed state; b: erase gate
 *     S  <- S + k_t (w_t * v_t - r)^T     write; w: write gate
 *     o_t = S^T (scale * q_t)             output from the new state
 *
 * Gates select the member of the family (Yang et al. 2024, arXiv:2412.06464 and the later papers named in docs/math.md):
 *
 *     rule                g                 b                 w
 *     Gated DeltaNet-2    per key channel   per key channel   per value channel
 *     KDA                 per key channel   beta, per head    the same beta
 *     Gated DeltaNet      per head          beta, per head    the same beta
 *     DeltaNet            absent (0)        beta, per head    the same beta
 *     GLA                 per key channel   absent (0)        absent (1)
 *
 * Exactness: nothing is clipped or damped, and no NaN is hidden: infinities and NaN propagate as in the recurrence. g = -inf is
 * a full reset of a channel. On processors that can, subnormal float32 numbers, below 1.2e-38, count as zeros inside a call:
 * strong decays pass through them, and they are a hundred times slower. The caller's floating-point mode stays as it is. Bits do
 * not depend on the number of threads, on the batch around a sequence, or on later tokens.
 *
 * The library never prints, exits or aborts, holds no global mutable state, and is safe from several threads and after fork.
 */
#ifndef GDN2_H
#define GDN2_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GDN2_VERSION_MAJOR 0
#define GDN2_VERSION_MINOR 1
#define GDN2_VERSION_PATCH 0

#if defined(GDN2_BUILDING) && defined(__GNUC__)
#define GDN2_API __attribute__((visibility("default")))
#else
#define GDN2_API
#endif

/* ---- 1. Status ------------------------------------------------------------------------------------------------------------ */

/* Values are pinned: they never change meaning. */
typedef enum gdn2_status {
  GDN2_OK = 0,
  GDN2_ERR_ARGUMENT = 1,  /* a pointer, option or struct_size is not what it must be, or an output overlaps a tensor */
  GDN2_ERR_SHAPE = 2,     /* a size is negative, too large, or does not fit the others */
  GDN2_ERR_DTYPE = 3,     /* a tensor's element type is not supported there */
  GDN2_ERR_STRIDE = 4,    /* a stride is not supported, overflows, or makes an output overlap itself */
  GDN2_ERR_MEMORY = 5,    /* memory could not be allocated */
  GDN2_ERR_WORKSPACE = 6, /* the caller's workspace is too small or misaligned */
  GDN2_ERR_ISA = 7,       /* the instruction set asked for is unknown or not available on this machine */
  GDN2_ERR_MPI = 8        /* of gdn2_mpi.h alone: MPI is not running, or has reported an error */
} gdn2_status;

/* The name of a status, for example "GDN2_ERR_SHAPE". Never NULL. */
GDN2_API const char *gdn2_status_name(gdn2_status status);

/* The sentence behind the last failure of a call made by this thread: it names the argument, its value and what it must be.
 * "" if no call of this thread has failed. Valid until the next failing call of this thread. */
GDN2_API const char *gdn2_last_error(void);

/* ---- 2. Tensors ----------------------------------------------------------------------------------------------------------- */

/* Element types. Arithmetic and states are float32; 16-bit inputs are widened exactly, 16-bit outputs rounded once.
 * If q is GDN2_F64 (its dtype counts even where data is NULL), every tensor of the call must be, states, parameters and
 * gradients too: the call then runs in float64, token by token, with every option. A slow path, for gradient checks. */
typedef enum gdn2_dtype { GDN2_F32 = 0, GDN2_BF16 = 1, GDN2_F16 = 2, GDN2_F64 = 3 } gdn2_dtype;

/* A caller's buffer. Strides are in elements, for the axes [batch, time, head, channel] of a token tensor and
 * [batch, head, key, value] of a state. Four zeros mean contiguous in that order. Otherwise every stride is as given; it may be
 * negative, and 0 broadcasts an axis of an input. The channel stride of a token tensor is 1, or 0 for a gate that is one number
 * per head (see gdn2_per_head); both inner strides of a state are free (V x K states: {.., .., 1, K}).
 * data == NULL means absent. Inputs are never written. Outputs must not overlap inputs, offsets and slots among them, each other
 * or the workspace (h_final may be h0 itself, dv the residual, with equal strides): refused, except where rows of tensors lie
 * between each other. Only addressed elements are written. */
typedef struct gdn2_input {
  const void *data;
  gdn2_dtype dtype;
  int64_t stride[4];
} gdn2_input;

typedef struct gdn2_output {
  void *data;
  gdn2_dtype dtype;
  int64_t stride[4];
} gdn2_output;

/* States at several moments of several rows, [row, moment, head, key, value]; otherwise as a state: the inner strides are free,
 * five zeros mean contiguous. float32, bfloat16 or float16. */
typedef struct gdn2_states {
  void *data;
  gdn2_dtype dtype;
  int64_t stride[5];
} gdn2_states;

/* A contiguous per-head gate [B, T, H] as a token tensor whose channel stride is 0. */
static inline gdn2_input gdn2_per_head(const void *data, gdn2_dtype dtype, int64_t T, int64_t H) {
  gdn2_input x = {data, dtype, {T * H, H, 1, 0}};
  return x;
}

/* The same for the gradient of a per-head gate: the library sums over the channels in a fixed order. */
static inline gdn2_output gdn2_per_head_out(void *data, gdn2_dtype dtype, int64_t T, int64_t H) {
  gdn2_output x = {data, dtype, {T * H, H, 1, 0}};
  return x;
}

/* ---- 3. The exact rule ---------------------------------------------------------------------------------------------------- */

/* Instruction sets. GDN2_ISA_AUTO takes the environment variable GDN2_ISA (generic, avx2, avx512, neon) if it is set and not
 * empty, else the best the machine has: of x86-64 the highest of the first three, of AArch64 neon, elsewhere generic. On
 * AVX-512 a call takes what the machine has beyond the parts named here, with the same bits. GDN2_ISA=avx512 keeps to those
 * parts, also under exec.isa = GDN2_ISA_AVX512; GDN2_ISA=avx512_bf16 wants AVX512_BF16 too. */
typedef enum gdn2_isa {
  GDN2_ISA_AUTO = 0,
  GDN2_ISA_GENERIC = 1, /* C for any machine */
  GDN2_ISA_AVX2 = 2,    /* with FMA and F16C */
  GDN2_ISA_AVX512 = 3,  /* F, CD, BW, DQ and VL */
  GDN2_ISA_NEON = 4     /* Advanced SIMD of AArch64 */
} gdn2_isa;

/* Largest K and V. */
#define GDN2_MAX_DIM 256

/* Which key head a value head j reads, of H key heads and HV value heads. */
typedef enum gdn2_head_map {
  GDN2_HEADS_GROUPED = 0, /* j / (HV / H): flash-linear-attention, transformers */
  GDN2_HEADS_TILED = 1    /* j % H: ggml */
} gdn2_head_map;

/* Where the log-decay g comes from; x is the tensor g, A_log one number and dt_bias one row per head of g. */
typedef enum gdn2_decay {
  GDN2_DECAY_LOG = 0,      /* g = x */
  GDN2_DECAY_SOFTPLUS = 1, /* g = -exp(A_log) softplus(x + dt_bias) */
  GDN2_DECAY_BOUNDED = 2   /* g = lower_bound sigmoid(exp(A_log) (x + dt_bias)) */
} gdn2_decay;

/* Where the gates b and w come from. */
typedef enum gdn2_gate {
  GDN2_GATE_GIVEN = 0,
  GDN2_GATE_SIGMOID = 1,
  GDN2_GATE_TWO_SIGMOID = 2 /* 2 sigmoid(x): b up to 2, the eigenvalues of a step may be negative */
} gdn2_gate;

typedef enum gdn2_index { GDN2_I32 = 0, GDN2_I64 = 1 } gdn2_index;

/* What forward and backward share. B, T, H >= 0; 1 <= K, V <= GDN2_MAX_DIM. Hg and Hb are HV, or H where g_key_heads or
 * b_key_heads is 1. With cu_seqlens, N below is the number of sequences; without, N = B. */
typedef struct gdn2_problem {
  int64_t B, T, H, K, V;
  gdn2_input q;        /* [B, T, H, K] */
  gdn2_input k;        /* [B, T, H, K] */
  gdn2_input v;        /* [B, T, HV, V] */
  gdn2_input g;        /* [B, T, Hg, K] or per head, natural log of the decay or raw (see decay); absent: 0, no decay */
  gdn2_input b;        /* [B, T, Hb, K] or per head, erase gate or raw (see erase); absent: 0, nothing is erased */
  gdn2_input w;        /* [B, T, HV, V] or per head, write gate or raw (see write); absent: 1 */
  gdn2_input h0;       /* [N, HV, K, V] initial state, float32; absent: zeros */
  const double *scale; /* factor on q, finite; NULL: K^-1/2 */
  /* Grouped value heads */
  int64_t HV; /* value heads, a multiple of H; 0: H */
  gdn2_head_map map;
  int g_key_heads, b_key_heads; /* 1: the gate has H heads and is read through the map, as q and k are */
  /* Variable length: B = 1 and sequence n is the tokens cu_seqlens[n] .. cu_seqlens[n+1]-1, from 0 and not falling. Tokens from
   * cu_seqlens[N] on belong to none: their outputs are 0. */
  const void *cu_seqlens; /* [N + 1]; NULL: every row of the batch is one sequence */
  gdn2_index cu_seqlens_type;
  int64_t N;
  /* Inputs finished by the library */
  gdn2_decay decay;
  gdn2_input A_log;       /* [1, 1, Hg, 1] float32, for GDN2_DECAY_SOFTPLUS and _BOUNDED; else it must be absent */
  gdn2_input dt_bias;     /* [1, 1, Hg, K] or per head, float32, the same; absent: 0 */
  double lower_bound;     /* for GDN2_DECAY_BOUNDED: the strongest log-decay, below 0 and finite; else it must be 0 */
  gdn2_gate erase, write; /* erase: any; write: given or sigmoid */
  int qk_l2norm;          /* 1: q and k are divided by sqrt(sum of squares + 1e-6) */
} gdn2_problem;

/* How a call is carried out. All zero is a good default. */
typedef struct gdn2_exec {
  int threads;     /* at most this many; 0: what OpenMP would take (OMP_NUM_THREADS); 1 where OpenMP is not built in */
  gdn2_isa isa;    /* GDN2_ISA_AUTO, or one to force */
  void *workspace; /* NULL: allocated for the call. Else 64-byte aligned, of workspace_bytes; see section 4 */
  size_t workspace_bytes;
} gdn2_exec;

/* Where the time of a call goes: the stages of the exact engine, then the kernels of the seed's pipeline. In a backward call the
 * first stages are those of the states made anew. */
typedef enum gdn2_stage {
  GDN2_STAGE_SCORES,        /* gates, running decays, what tokens of a chunk see of each other */
  GDN2_STAGE_PROJECT,       /* products with the state before the chunk */
  GDN2_STAGE_SOLVE,         /* triangular solve */
  GDN2_STAGE_OUTPUT,        /* o */
  GDN2_STAGE_UPDATE,        /* the state behind the chunk */
  GDN2_STAGE_ADJOINT,       /* backward: the solve's adjoint */
  GDN2_STAGE_BACK_PROJECT,  /* backward: products with the state and its gradient, transposed */
  GDN2_STAGE_GATES,         /* backward: pairs, gradients of q, k, g and b */
  GDN2_STAGE_VALUES,        /* backward: gradients of v and w */
  GDN2_STAGE_STATE_ADJOINT, /* backward: gradient of the state before the chunk */
  GDN2_STAGE_CHAIN,         /* backward: from finished inputs to raw ones, sums over value heads */
  GDN2_STAGE_SEED_A,
  GDN2_STAGE_SEED_B,
  GDN2_STAGE_SEED_C,
  GDN2_STAGE_SEED_D,
  GDN2_STAGE_SEED_B2,
  GDN2_STAGE_SEED_B1,
  GDN2_STAGE_SEED_B3,
  GDN2_STAGE_SEED_B4,
  GDN2_STAGE_SEED_B5,
  GDN2_STAGES
} gdn2_stage;

/* Nanoseconds in each stage, added to by the calls that are given it. Stages that threads run side by side count for each of
 * them; the seed's A to D, B2 and B1, each of which is done before the next begins, count as long as they take. */
typedef struct gdn2_profile {
  uint64_t nanoseconds[GDN2_STAGES];
} gdn2_profile;

typedef struct gdn2_forward_args {
  size_t struct_size; /* sizeof(gdn2_forward_args) */
  gdn2_problem problem;
  gdn2_output o;       /* [B, T, HV, V]; absent: not computed */
  gdn2_output h_final; /* [N, HV, K, V] float32, state after the last token; absent: not stored. No token: h0 or zeros */
  /* The states on the way, to start again from there: [B, T / snapshot_every, HV, K, V], moment i after (i + 1) snapshot_every
   * tokens. With cu_seqlens, that of sequence n is moment cu_seqlens[n] / snapshot_every + i, which is no other sequence's; the
   * moments that are left over are not written. As a pool of states for gdn2_step, moments are its slots. */
  gdn2_states snapshots;
  int64_t snapshot_every; /* a multiple of 16; 0 without snapshots */
  /* For gdn2_backward: what each token writes to the state, R of equation (17) in docs/math.md, [B, T, HV, V] float32. Not in
   * float64. */
  gdn2_output residual;
  gdn2_exec exec;
  gdn2_profile *profile; /* NULL: times are not taken */
} gdn2_forward_args;

/* o and the final state of the recurrence above. Cost: 6 K V floating-point operations per token and head and about 10 % more.
 * Errors: all of gdn2_status; nothing is written unless GDN2_OK is returned. */
GDN2_API gdn2_status gdn2_forward(const gdn2_forward_args *args);

typedef struct gdn2_backward_args {
  size_t struct_size; /* sizeof(gdn2_backward_args) */
  gdn2_problem problem;
  gdn2_input d_o;       /* [B, T, HV, V] gradient of the loss by o; absent: zeros */
  gdn2_input dh_final;  /* [N, HV, K, V] float32, gradient by the final state; absent: zeros */
  gdn2_output dq, dk;   /* [B, T, H, K]; each gradient may be absent */
  gdn2_output dv;       /* [B, T, HV, V] */
  gdn2_output dg;       /* [B, T, Hg, K], or per head (channel stride 0): the sum over the channels */
  gdn2_output db;       /* [B, T, Hb, K], or per head */
  gdn2_output dw;       /* [B, T, HV, V], or per head */
  gdn2_output dh0;      /* [N, HV, K, V] float32. No token: dh_final or zeros */
  gdn2_output dA_log;   /* [1, 1, Hg, 1] float32, for GDN2_DECAY_SOFTPLUS and _BOUNDED */
  gdn2_output ddt_bias; /* [1, 1, Hg, K] or per head, float32, the same */
  /* Memory against time; the bits of the gradients do not depend on it. The backward needs the state at the start of every
   * segment of some chunks of 16 tokens, and while it walks back over a segment a state and the intermediate values of each of
   * its chunks.
   *
   * snapshots: those that gdn2_forward kept of the same problem, float32, and its snapshot_every, which is the length of a
   * segment: the fastest way to train; 128 is a good number. Absent: computed again, by another pass, and kept in the workspace.
   *
   * checkpoint_every: chunks of a segment then. 1 keeps all states, a number from ceil(T / 16) on none but those of one segment,
   * the whole sequence; 0 is 8. It must be 0 with snapshots. In float64, where a segment keeps a state for each token, 0 is the
   * square root of the number of tokens. */
  gdn2_states snapshots;
  int64_t snapshot_every;
  int64_t checkpoint_every;
  /* The forward's, of the same problem; absent: computed again, which takes a product with the state. With it and with snapshots
   * training is fastest; the bits of the gradients do not depend on it either. It may be where dv goes, with equal strides: then
   * it needs no memory of its own. */
  gdn2_input residual;
  gdn2_exec exec;
  gdn2_profile *profile; /* NULL: times are not taken */
} gdn2_backward_args;

/* Gradients of L(o, h_final) given d_o = dL/do and dh_final = dL/dh_final; equations (20) to (33) and (39) to (41) of
 * docs/math.md. They are gradients by the tensors of the problem as they are given: where decay, erase, write or qk_l2norm finish
 * an input, by the raw one; q, k and gates of key heads get the sum over the value heads that read them, summed in float32 (or
 * float64) and in a fixed order. A gradient of an absent gate is the gradient at its neutral value, of an absent dt_bias at 0.
 * Tokens of no sequence get 0. Errors: as gdn2_forward. */
GDN2_API gdn2_status gdn2_backward(const gdn2_backward_args *args);

/* ---- 4. Workspace --------------------------------------------------------------------------------------------------------- */

/* Bytes that the same call needs as exec.workspace (which is ignored here, as overlaps are). With a workspace of that size, it
 * allocates nothing. The forward's does not grow with T; the backward's does not with snapshots; without them it grows
 * by a state for each value head and checkpoint_every chunks, and with cu_seqlens it depends on the lengths. */
GDN2_API gdn2_status gdn2_forward_workspace(const gdn2_forward_args *args, size_t *bytes);
GDN2_API gdn2_status gdn2_backward_workspace(const gdn2_backward_args *args, size_t *bytes);

/* ---- 5. Introspection ----------------------------------------------------------------------------------------------------- */

/* "0.1.0": the version of the library that is running (the macros above: of the header). */
GDN2_API const char *gdn2_version(void);

/* The instruction set a call with exec.isa = wanted runs on, in *chosen. Errors: GDN2_ERR_ISA, GDN2_ERR_ARGUMENT. */
GDN2_API gdn2_status gdn2_isa_choose(gdn2_isa wanted, gdn2_isa *chosen);

/* "generic", "avx2", "avx512", "neon", "auto"; "unknown" for anything else. */
GDN2_API const char *gdn2_isa_name(gdn2_isa isa);

/* "scores", "gates", "seed_A", ...; "unknown" for anything else. */
GDN2_API const char *gdn2_stage_name(gdn2_stage stage);

/* The threads a call with exec.threads = wanted takes at most. */
GDN2_API int gdn2_threads(int wanted);

/* Features of this processor that the operating system has enabled, one bit each. */
#define GDN2_CPU_AVX2 (1u << 0)
#define GDN2_CPU_FMA (1u << 1)
#define GDN2_CPU_F16C (1u << 2)
#define GDN2_CPU_AVX512F (1u << 3)
#define GDN2_CPU_AVX512CD (1u << 4)
#define GDN2_CPU_AVX512BW (1u << 5)
#define GDN2_CPU_AVX512DQ (1u << 6)
#define GDN2_CPU_AVX512VL (1u << 7)
#define GDN2_CPU_AVX512_BF16 (1u << 8)
#define GDN2_CPU_AVX512_FP16 (1u << 9)
#define GDN2_CPU_AMX_TILE (1u << 10)
#define GDN2_CPU_AMX_BF16 (1u << 11)
#define GDN2_CPU_NEON (1u << 12)
GDN2_API uint32_t gdn2_cpu_features(void);

/* The name of the feature with this one bit, for example "avx512bw"; NULL if there is none. */
GDN2_API const char *gdn2_cpu_feature_name(uint32_t bit);

#ifdef __cplusplus
}
#endif

/* ---- 6. Decode ------------------------------------------------------------------------------------------------------------ */

#include "gdn2_step.h"

/* ---- 7. The seed's pipeline ----------------------------------------------------------------------------------------------- */

#include "gdn2_seed.h"

/* ---- 8. The parts of a layer ---------------------------------------------------------------------------------------------- */

#include "gdn2_layer.h"

#endif
