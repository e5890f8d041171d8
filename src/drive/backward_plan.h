/* How a backward call is cut into tasks, and how the memory of a worker lies. */
#ifndef GDN2_DRIVE_BACKWARD_PLAN_H
#define GDN2_DRIVE_BACKWARD_PLAN_H
#include "chunk/layout.h"
#include "drive/chunks.h"

/* Gradients that may wait, in the order of gdn2_layout_wait. */
enum { GDN2_WAIT_Q, GDN2_WAIT_K, GDN2_WAIT_G, GDN2_WAIT_B, GDN2_WAITS };

/* A unit of heads is what shares gradients; a task is some units of one block of sequences. It adds up what the value heads of a
 * unit and its sequences have in common, in their order: sums do not depend on the threads. */
typedef struct gdn2_backward_plan {
  int64_t heads; /* value heads of a unit: those of one key head where a gradient is a sum over them, else 1 */
  int64_t units; /* HV / heads */
  int64_t group; /* units of a task */
  int64_t groups;
  int64_t block; /* sequences of a task: 1, or as many as keep the partial sums of A_log and dt_bias few */
  int64_t blocks;
  int waits[GDN2_WAITS]; /* the gradient waits before it is stored; see gdn2_wait */
  int g_shared;          /* the heads of a unit have one g */
  int64_t parts;         /* doubles of partial sums for each block and head of g: A_log, then dt_bias */
  int workers;
} gdn2_backward_plan;

/* A sequence in segments of chunks: a state is kept at the start of each. */
typedef struct gdn2_segments {
  int64_t chunks, length, count;
} gdn2_segments;

/* A worker's part of the workspace. */
typedef struct gdn2_backward_slot {
  gdn2_grad grad;
  gdn2_chunk passing; /* a chunk that is not kept; X for those that are */
  gdn2_wait wait;     /* rows of a segment */
  float *dS;          /* [group heads][Kp][Sp] gradients of the states behind the chunk at hand */
  float *checkpoints; /* [group heads][segments - 1][K][V]; none with the forward's snapshots */
  char *replay;       /* a record for each chunk of a segment and one more: the chunk and the state before it */
  size_t replay_bytes;
} gdn2_backward_slot;

gdn2_backward_plan gdn2_backward_plan_of(const gdn2_backward_call *call);
gdn2_segments gdn2_segments_of(const gdn2_backward_call *call, int64_t tokens);
gdn2_backward_slot gdn2_backward_lay(gdn2_arena *arena, const gdn2_backward_call *call, gdn2_shape s,
                                     const gdn2_backward_plan *plan, gdn2_segments segments);

/* A replay record: returns the state before the chunk. */
float *gdn2_backward_lay_record(gdn2_arena *arena, gdn2_shape s, gdn2_chunk *c);

/* Bytes of the partial sums, and of one worker. */
size_t gdn2_backward_sum_bytes(const gdn2_backward_call *call, const gdn2_backward_plan *plan);
size_t gdn2_backward_slot_bytes(const gdn2_backward_call *call, const gdn2_backward_plan *plan);
#endif
