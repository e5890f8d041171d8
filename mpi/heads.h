/* Group of heads after group of heads, from rank to rank: "Sequences over ranks" of docs/math.md, (M7). */
#ifndef GDN2_MPI_HEADS_H
#define GDN2_MPI_HEADS_H
#include "split.h"

/* Whether the value heads of some key heads lie side by side. */
bool gdn2_heads_possible(const gdn2_problem *p);

/* The call on the key heads from first to last-1 and their value heads; struct_size 0: no call. */
gdn2_forward_args gdn2_heads_forward(const gdn2_forward_args *args, int64_t first, int64_t last);
gdn2_backward_args gdn2_heads_backward(const gdn2_backward_args *args, int64_t first, int64_t last);

/* The groups: as many key heads together as keep the threads of every rank busy. */
typedef struct gdn2_heads {
  int64_t keys, of_each; /* key heads; value heads of each of them */
  int64_t step, groups;  /* key heads of a group */
  char *made, *got;      /* what is sent, one group behind the other; what was received last: [rows, value heads, K, V] */
  MPI_Request *requests; /* [groups] */
} gdn2_heads;

void gdn2_heads_prepare(gdn2_split *s, gdn2_heads *h);
/* The workspace of the calls on the first and the last group. */
void gdn2_heads_reserve_forward(gdn2_split *s, const gdn2_heads *h, const gdn2_forward_args *args);
void gdn2_heads_reserve_backward(gdn2_split *s, const gdn2_heads *h, const gdn2_backward_args *args);

/* args: of all heads, the initial states being those of gdn2_split_arrived; struct_size 0: they only arrive. alone: what gives
 * the state that is sent where the state of args does not (its sequences do not go through); its h_final is not used. all: see
 * gdn2_split_take_all; its rows behind the first are there. The states are in s->arrived in the end. */
gdn2_status gdn2_heads_run_forward(const gdn2_split *s, const gdn2_heads *h, const gdn2_forward_args *args,
                                   const gdn2_forward_args *alone, void *all);
/* The mirror image: dh_final [N, HV, K, V], which args refers to, gets what arrives added; the dh0 of args, or of alone, is sent.
 */
gdn2_status gdn2_heads_run_backward(const gdn2_split *s, const gdn2_heads *h, const gdn2_backward_args *args,
                                    const gdn2_backward_args *alone, void *dh_final);
#endif
