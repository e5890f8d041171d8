/* gdn2_mpi.h - sequences longer than one machine's memory: their tokens split over MPI ranks. Library libgdn2_mpi.
 *
 * Each rank of a communicator holds a shard, some consecutive tokens of every sequence: rank 0 the first, the last rank the last.
 * It calls gdn2_mpi_forward or gdn2_mpi_backward with the arguments of gdn2_forward or gdn2_backward for its shard as if this
 * were all there is, and gets the outputs and gradients of its tokens in the whole sequence. All options of the two functions
 * work; what must be equal on all ranks is B, HV, K, V, whether the tensors are float64, and which of dA_log and ddt_bias are
 * asked for. T may differ from rank to rank and may be 0.
 *
 * How, by `method`. Either the states go from rank to rank, one group of heads after the other, so that the ranks work on
 * different groups at a time. Or, the state after a shard being an affine function of the state before it, S -> M S + c, the
 * ranks compute M (K x K) and c (K x V) for each head, combine them in a logarithmic number of messages, and then run the shard
 * from the state that they got. Equations (M1) to (M7) of docs/math.md, where the cost is. On one rank the functions are
 * gdn2_forward and gdn2_backward.
 *
 * Every function with a communicator is collective: all its ranks call it, in the same order as their other collective calls, and
 * MPI is called by the calling thread only (MPI_THREAD_FUNNELED). The bits of a result do not depend on threads and are the same
 * from run to run. Another number of ranks, other places of the cuts, or the other method may change the last ones. States that
 * go from rank to rank leave those of one call on the whole where shards are multiples of 16 tokens, but for dA_log and ddt_bias.
 * Infinities and NaN reach the ranks behind theirs; by the scan an infinite state may arrive as NaN.
 *
 * Errors: what one rank refuses, all refuse, with its status and its sentence in gdn2_mpi_last_error(), and nothing is written on
 * any of them. GDN2_ERR_MPI: MPI is not running, or has reported an error; outputs are undefined then. The error handler of the
 * communicator is not called, and nothing aborts. What cannot be told to the others, a NULL or wrong `shard`, fails on this rank
 * alone.
 */
#ifndef GDN2_MPI_H
#define GDN2_MPI_H

#include <gdn2.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the states get from rank to rank. */
typedef enum gdn2_mpi_method {
  GDN2_MPI_AUTO = 0, /* up to three ranks GDN2_MPI_HEADS, where it can be, else GDN2_MPI_SCAN */
  GDN2_MPI_SCAN = 1, /* M and c of each shard, combined by a scan: all ranks at once, for 14 operations where one rank has 6 */
  GDN2_MPI_HEADS = 2 /* group of heads after group of heads, from rank to rank: no operation more, but a rank waits for its first
                      * heads. Not with GDN2_HEADS_TILED where HV is not H */
} gdn2_mpi_method;

/* The place of a rank's tokens among all. */
typedef struct gdn2_mpi_shard {
  size_t struct_size; /* sizeof(gdn2_mpi_shard) */
  MPI_Comm comm;      /* an intracommunicator; its ranks are in the order of time */
  /* With cu_seqlens, which are those of the shard, counted from its first token: 1 if the first sequence of this shard is the
   * rest of the last one of the rank before, whose tokens must then end at cu_seqlens[N]. It may go through any number of
   * shards, being their only sequence; of length 0 where a shard has none of its tokens. Must be 0 without cu_seqlens, where
   * every rank but the first continues the sequences of the one before. */
  int continues;
  gdn2_mpi_method method; /* the same in the backward as in the forward */
  /* What the forward leaves to the backward of the same shard: the state before it, and M; gdn2_mpi_kept_bytes. NULL in the
   * forward: not kept. In the backward, on all ranks or on none; NULL: computed again, by another pass over most shards. */
  void *kept; /* aligned as malloc aligns */
  size_t kept_bytes;
} gdn2_mpi_shard;

/* gdn2_forward of this rank's shard. The initial state h0 belongs to the beginning of a sequence: without cu_seqlens it must be
 * absent on every rank but the first; with them, h0[0] is not read where `continues` is 1. h_final, which every rank may ask for,
 * is the state after the last token of the shard; snapshots are counted from its first. exec.workspace must be NULL. */
GDN2_API gdn2_status gdn2_mpi_forward(const gdn2_forward_args *args, const gdn2_mpi_shard *shard);

/* gdn2_backward of this rank's shard, of the loss that is a function of the outputs and final states of all ranks. dh_final is
 * the gradient by what h_final is in the forward, so most callers have it on the last rank alone. dh0 is by h0: without
 * cu_seqlens, it must be absent on every rank but the first; with them, dh0[0] is 0 where `continues` is 1. dA_log and ddt_bias
 * are the sums over all ranks, added in the order of ranks, in float64; every rank gets the same bits. exec.workspace must be
 * NULL.
 */
GDN2_API gdn2_status gdn2_mpi_backward(const gdn2_backward_args *args, const gdn2_mpi_shard *shard);

/* Bytes of `kept` for a problem: those of B HV matrices of K rows and K + V columns (B is 1 with cu_seqlens). Not collective. */
GDN2_API gdn2_status gdn2_mpi_kept_bytes(const gdn2_problem *problem, size_t *bytes);

/* The causal convolution before the rule (gdn2_layer.h), whose state is the last W-1 inputs. Both functions write an array
 * [N, 1, D, W-1], contiguous, float32, or float64 where x is, for a call of gdn2_conv_forward or gdn2_conv_backward on the shard
 * that follows; N is B without cu_seqlens. A shard may have fewer than W-1 tokens. slots and fresh must be NULL; `kept` is not
 * used.
 *
 * The states before the shard: from the ranks before it, and problem->state where a sequence begins: without cu_seqlens that must
 * be absent on every rank but the first. The outputs of the whole sequence follow, to the bit. */
GDN2_API gdn2_status gdn2_mpi_conv_state(const gdn2_conv_problem *problem, const gdn2_mpi_shard *shard, void *state);

/* The gradient by the states behind the shard: args->dstate_final, and what the ranks behind it add. problem.state must be what
 * gdn2_mpi_conv_state gave; outputs of args are not written. dweight and dbias of the call that follows are this shard's part of
 * the sums; dstate of a sequence that began before the shard has been passed on, and counts for nobody else. */
GDN2_API gdn2_status gdn2_mpi_conv_dstate_final(const gdn2_conv_backward_args *args, const gdn2_mpi_shard *shard,
                                                void *dstate_final);

/* The sentence behind the last failure of a function of this header in this thread: which rank refused, and what. "" if none. */
GDN2_API const char *gdn2_mpi_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
