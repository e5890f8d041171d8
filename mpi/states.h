/* States and parameters between the caller's strides and contiguous arrays, and parts of a problem. */
#ifndef GDN2_MPI_STATES_H
#define GDN2_MPI_STATES_H
#include "gdn2_mpi.h"

/* Arrays of shape [d0, d1, d2, d3], float32 or float64. */
typedef struct gdn2_block {
  int64_t shape[4];
  gdn2_dtype dtype;
} gdn2_block;

/* Bytes of a number. */
size_t gdn2_number_bytes(gdn2_dtype dtype);
size_t gdn2_block_bytes(const gdn2_block *b);
/* The strides that are meant: four zeros stand for contiguous. */
void gdn2_block_strides(const gdn2_block *b, const int64_t given[4], int64_t meant[4]);
/* Between a contiguous array and a part of the caller's that starts at index `row` of its first axis. NULL in the place of an
 * input: zeros. */
void gdn2_block_put(const gdn2_block *b, const void *from, const gdn2_output *to, int64_t row);
void gdn2_block_get(const gdn2_block *b, const gdn2_input *from, int64_t row, void *to);
/* An output as an input; and where an output lies once it has been cut as one. */
gdn2_input gdn2_as_input(gdn2_output x);
gdn2_output gdn2_cut_as(gdn2_output x, gdn2_input cut);
/* The part of a tensor of the block's shape that starts at index `first` of an axis, with its strides spelt out. */
gdn2_input gdn2_block_from(const gdn2_block *b, gdn2_input x, int axis, int64_t first);
gdn2_output gdn2_block_out_from(const gdn2_block *b, gdn2_output x, int axis, int64_t first);
/* to += from, both contiguous. */
void gdn2_block_add(const gdn2_block *b, const void *from, void *to);

/* cu_seqlens[n]. */
int64_t gdn2_offset_at(const void *cu_seqlens, gdn2_index type, int64_t n);
/* Sequence n of a problem with cu_seqlens as a problem without: B = 1. */
gdn2_problem gdn2_problem_sequence(const gdn2_problem *p, int64_t n);
/* A token tensor [1, T, heads, channels] of the problem, from where sequence n begins. */
gdn2_input gdn2_problem_tokens(const gdn2_problem *p, gdn2_input x, int64_t heads, int64_t channels, int64_t n);
int64_t gdn2_problem_heads(const gdn2_problem *p);
/* What states are kept in: float64 in a float64 call, else float32. */
gdn2_dtype gdn2_state_type(gdn2_dtype of_call);
#endif
