/* One call on one rank: what forward and backward share. It opens, checks, meets the other ranks, takes all memory that it will
 * need, and agrees with the others once more before anything is written; from then on only MPI can fail. */
#ifndef GDN2_MPI_SPLIT_H
#define GDN2_MPI_SPLIT_H
#include "scan.h"
#include "states.h"

enum { GDN2_SPLIT_BUFFERS = 24 };

typedef struct gdn2_split {
  gdn2_group group;
  gdn2_problem problem;   /* the caller's */
  gdn2_exec exec;         /* of every call; its workspace is taken last, large enough for all of them */
  gdn2_block states;      /* [rows, HV, K, V]: what passes from rank to rank */
  bool packed;            /* cu_seqlens are given */
  int64_t N;              /* sequences of the shard */
  bool in, out;           /* whether states arrive from the rank before; whether the next one waits for those of this */
  bool through;           /* whether the latter depend on the former */
  gdn2_mpi_method method; /* not GDN2_MPI_AUTO */
  gdn2_scan scan;
  void *arrived;        /* [rows, HV, K, V] the state before the shard */
  void *M;              /* [rows, HV, K, K] M of the shard, if in, out and through */
  const void *identity; /* [K, K] */
  const void *zeros;    /* [K] */
  /* What summarises the shard for the ranks behind it: c, and M. struct_size is 0 where it is not needed. */
  gdn2_forward_args c_call, M_call;
  void *buffers[GDN2_SPLIT_BUFFERS];
  int buffer_count;
  bool no_memory;
} gdn2_split;

/* What this header asks of a shard beside what the functions of gdn2.h ask of the arguments. */
gdn2_status gdn2_split_check(gdn2_split *s, const gdn2_problem *problem, const gdn2_exec *exec, const gdn2_mpi_shard *shard);
/* The part of it that is about `continues`; needs packed and N. */
gdn2_status gdn2_split_check_place(const gdn2_split *s, const gdn2_mpi_shard *shard);
/* Everybody's cards; after it the topology is known. */
gdn2_status gdn2_split_meet(gdn2_split *s, const gdn2_card *mine);
/* The memory of the scan and of the summaries of the forward, and the calls that compute these. */
void gdn2_split_prepare(gdn2_split *s, const gdn2_mpi_shard *shard);

/* Memory that lives as long as the call; NULL, and no_memory, where there is none. */
void *gdn2_split_take(gdn2_split *s, size_t bytes);
/* The workspace of the call will be large enough for these; struct_size 0: no call. */
void gdn2_split_reserve_forward(gdn2_split *s, const gdn2_forward_args *args);
void gdn2_split_reserve_backward(gdn2_split *s, const gdn2_backward_args *args);
/* The workspace. An error where some memory was not there. */
gdn2_status gdn2_split_end_of_taking(gdn2_split *s);

/* Runs the call, on the workspace; struct_size 0: nothing. */
gdn2_status gdn2_split_forward(const gdn2_split *s, gdn2_forward_args args);
gdn2_status gdn2_split_backward(const gdn2_split *s, gdn2_backward_args args);
/* From the summaries in scan.own.c and M to the state that has arrived. */
gdn2_status gdn2_split_scan(gdn2_split *s);
/* The problem with the arrived state in the place of h0; all: [N, HV, K, V], where N is more than the rows. */
gdn2_problem gdn2_split_arrived(const gdn2_split *s, void *all);
/* The states of all sequences, where only one of several comes from elsewhere: memory, else NULL. */
void *gdn2_split_take_all(gdn2_split *s, bool needed);

void gdn2_split_close(gdn2_split *s);
#endif
