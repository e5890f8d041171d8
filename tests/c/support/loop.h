/* The recurrence once more, in the plainest form, independent of the library and of ref/: what it is to compute, what each older
 * rule of the family computes in the notation of its own paper, and what a kernel with a known fault would compute. */
#ifndef TEST_LOOP_H
#define TEST_LOOP_H
#include "exact.h"

typedef enum loop_fault {
  LOOP_RIGHT,
  LOOP_NO_DECAY,         /* the state is not decayed */
  LOOP_NO_ERASE,         /* nothing is erased */
  LOOP_DECAY_AFTER_READ, /* the key reads the state before it is decayed */
  LOOP_OLD_STATE,        /* the output comes from the state before the write */
  LOOP_BASE_TWO,         /* 2^g instead of e^g */
  LOOP_NO_WRITE_GATE,
  LOOP_H0_TRANSPOSED, /* K = V only */
  LOOP_H0_IGNORED,
  LOOP_FAULTS
} loop_fault;

/* o and h_final in float64. Every input of the case must be given in full (no gate per head, none absent). */
void loop_forward(const exact_case *c, loop_fault fault, double *o, double *h_final);

/* The same in float32: what rounding alone costs the recurrence. */
void loop_forward_f32(const exact_case *c, float *o, float *h_final);

typedef enum loop_rule { RULE_DELTANET, RULE_GDN, RULE_KDA, RULE_GLA } loop_rule;

/* DeltaNet S' = (I - beta k k^T) S + beta k v^T; GDN S' = alpha (I - beta k k^T) S + beta k v^T; KDA S' = (I - beta k k^T)
 * diag(alpha) S
 * + beta k v^T; GLA S' = diag(alpha) S + k v^T. alpha = exp(g), beta = b; each is read at the stride that the case has it in. */
void loop_rule_forward(const exact_case *c, loop_rule rule, double *o, double *h_final);
#endif
