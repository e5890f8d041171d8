/* States and parameters between the caller's strides and contiguous arrays, and parts of a problem. */
#ifndef GDN2_MPI_STATES_H
#define GDN2_MPI_STATES_H
#include "gdn2_mpi.h"

/* Arrays of shape [d0, d1, d2, d3], float32 or float64. */
typedef struct gdn2_block {
  int64_t shape[4];
  gdn2_dtype dtype;
} gdn2_block;

size_t gdn2_block_bytes(const gdn2_block *b);
/* The strides that are meant: four zeros stand for contiguous. */
void gdn2_block_strides(const gdn2_block *b, const int64_t given[4], int64_t meant[4]);
/* Between a contiguous array and a part of the caller's that starts at index `row` of its first axis. NULL in the place of an
 * input: zeros. */
void gdn2_block_put(const gdn2_block *b, const void *from, const gdn2_output *to, int64_t row);
void gdn2_block_get(const gdn2_block *b, const gdn2_input *from, int64_t row, void *to);
/* The part of a tensor of the block's shape that starts at index `first` of an axis, with its strides spelt out. */
gdn2_input gdn2_block_from(const gdn2_block *b, gdn2_input x, int axis, int64_t first);
gdn2_output gdn2_block_out_from(const gdn2_block *b, gdn2_output x, int axis, int64_t first);
/* to += from, both contiguous. */
void gdn2_block_add(const gdn2_block *b, const void *from, void *to);

/* Sequence n of a problem with cu_seqlens as a problem without: B = 1. */
gdn2_problem gdn2_problem_sequence(const gdn2_problem *p, int64_t n);
/* A token tensor [1, T, heads, channels] of the problem, from where sequence n begins. */
gdn2_input gdn2_problem_tokens(const gdn2_problem *p, gdn2_input x, int64_t heads, int64_t channels, int64_t n);
int64_t gdn2_problem_heads(const gdn2_problem *p);
#endif
