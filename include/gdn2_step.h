/* gdn2_step.h - decode: a few new tokens for every row of a batch, on states that live on in the caller's memory.
 *
 * Included by gdn2.h; the recurrence and the tensors are described there. A state is streamed through once per call: a call takes
 * as long as reading and writing the states takes.
 *
 * In float32, n tokens in one call give the bits of n calls of one token, and prefill (gdn2_forward) the same within rounding.
 * From 4 tokens on, a row whose state goes to float32, K x V with V a multiple of 16, is taken in chunks, which costs less: it
 * gives the bits of gdn2_forward, and those of calls of one token within rounding; not so with `each`. The bits of a row do not
 * depend on the rows around it, on slots or on threads.
 *
 * Numbers below 1.2e-38 in magnitude count as 0 here, so that a state that fades away costs no time: on x86 and AArch64, whatever
 * the caller's floating-point mode, which is as before when the call returns. */
#include "gdn2.h" /* includes this file at its end, whichever of the two comes first */

#ifndef GDN2_STEP_H
#define GDN2_STEP_H

#ifdef __cplusplus
extern "C" {
#endif

/* N rows: the B rows of the batch with T tokens each, or the sequences of cu_seqlens. All options of a problem but h0, and all
 * element types. float64, which wants float64 states too, is slow, for comparison, and gives the bits of the float64 forward. */
typedef struct gdn2_step_args {
  size_t struct_size;   /* sizeof(gdn2_step_args) */
  gdn2_problem problem; /* the new tokens; h0 must be absent */
  gdn2_output o;        /* [B, T, HV, V]; absent: not computed. Tokens of rows that are skipped, and of no row: 0 */

  /* Where the states are. float32, bfloat16 or float16; arithmetic is in float32, and a state is rounded once per call. Strides
   * are free; fast are K x V and V x K, that is, a value stride or a key stride of 1. */
  gdn2_input from; /* [slots, HV, K, V] before the first token; absent: zeros */
  gdn2_output to;  /* [slots, HV, K, V] after the last; absent: not stored. It may be `from` itself, with its type and strides: in
                    * place. No token: from */
  const void *slot; /* [N] the slot of each row, no two alike; -1: the row is skipped, its states are neither read nor written.
                     * NULL: row n has slot n */
  gdn2_index slot_type;
  int64_t slots;        /* states in `from` and `to`; 0: N */
  const uint8_t *reset; /* [N]; not 0: the row starts from zeros, whatever its slot holds. NULL: no row does */

  /* Drafts that may be rejected. `each` keeps the state after every token; the next call starts from one of them. */
  gdn2_states each;    /* [N, T, HV, K, V], or the longest row's tokens; absent: not stored */
  gdn2_states history; /* [N, history_length, HV, K, V], the `each` of an earlier call; may be this call's `each` itself, with its
                        * type and strides */
  int64_t history_length;
  const void *accepted; /* [N] tokens of history that hold: the row starts from the state after so many of them; 0: from `from`.
                         * NULL: all 0 */
  gdn2_index accepted_type;
  int drafts_by_slot; /* 1: the first axis of each and history is [slots], and a row has its slot's */

  gdn2_exec exec; /* the workspace is not used: a step allocates nothing. Little work starts no threads */
} gdn2_step_args;

/* Errors: all of gdn2_status but GDN2_ERR_MEMORY and GDN2_ERR_WORKSPACE; nothing is written unless GDN2_OK is returned. */
GDN2_API gdn2_status gdn2_step(const gdn2_step_args *args);

#ifdef __cplusplus
}
#endif
#endif
