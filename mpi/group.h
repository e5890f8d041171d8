/* The ranks of a call: what they know of each other, and how they agree. */
#ifndef GDN2_MPI_GROUP_H
#define GDN2_MPI_GROUP_H
#include "gdn2_mpi.h"
#include <stdbool.h>

/* What must be equal on all ranks; its names are in group.c. */
enum {
  GDN2_SAME_CALL,   /* the function */
  GDN2_SAME_PACKED, /* 1: cu_seqlens are given */
  GDN2_SAME_WIDE,   /* 1: float64 */
  GDN2_SAME_ROWS,   /* sequences that go through: B, or 1 with cu_seqlens */
  GDN2_SAME_HV,
  GDN2_SAME_K,
  GDN2_SAME_V,
  GDN2_SAME_METHOD,
  GDN2_SAME_KEPT, /* of a backward: 1: kept is given */
  GDN2_SAME_A,    /* numbers of dA_log that are asked for */
  GDN2_SAME_DT,   /* of ddt_bias */
  GDN2_SAME_FIELDS
};

enum { GDN2_CALL_FORWARD, GDN2_CALL_BACKWARD, GDN2_CALL_CONV_STATE, GDN2_CALL_CONV_DSTATE };

/* What a rank tells all others. */
typedef struct gdn2_card {
  int64_t same[GDN2_SAME_FIELDS];
  int64_t N;         /* sequences */
  int64_t continues; /* 1: the first of them is the last of the rank before */
  int64_t threads;   /* of its calls, at most */
} gdn2_card;

typedef struct gdn2_group {
  MPI_Comm comm; /* a duplicate of the caller's, whose errors are returned */
  int rank, ranks;
  gdn2_card *cards; /* [ranks] */
} gdn2_group;

/* Fails on this rank alone where there is no communicator to be told about; else every rank has to go on to gdn2_group_agree. */
gdn2_status gdn2_group_open(const gdn2_mpi_shard *shard, gdn2_group *group);
void gdn2_group_close(gdn2_group *group);

/* The status of the first rank whose own is not GDN2_OK, and its sentence, on every rank; GDN2_OK if there is none. */
gdn2_status gdn2_group_agree(const gdn2_group *group, gdn2_status mine);
/* Fills cards; an error where they do not fit together. */
gdn2_status gdn2_group_meet(gdn2_group *group, const gdn2_card *mine);

/* A message of `matrices` blocks of `numbers` float32 or float64 numbers, sent or received without waiting. */
typedef struct gdn2_message {
  void *data;
  int64_t matrices, numbers;
  gdn2_dtype dtype;
  int peer, tag;
} gdn2_message;

gdn2_status gdn2_group_send(const gdn2_group *group, const gdn2_message *message, MPI_Request *request);
gdn2_status gdn2_group_receive(const gdn2_group *group, const gdn2_message *message, MPI_Request *request);

/* Whether the state passes from the rank before to this one; false for a rank that there is not. */
bool gdn2_group_continues(const gdn2_group *group, int rank);
/* Whether the state after the rank's tokens depends on the one before them. */
bool gdn2_group_through(const gdn2_group *group, int rank);
#endif
