/* The float64 path: the recurrence token by token, every option included. Slow, for gradient checks. It shares no arithmetic with
 * the engine, so that each can be held against the other, and does not depend on the instruction set. */
#ifndef GDN2_DOUBLE_DOUBLE_H
#define GDN2_DOUBLE_DOUBLE_H
#include "drive/drive.h"
#include "drive/step.h"

/* Bytes of workspace. */
size_t gdn2_double_forward_bytes(const gdn2_call *call);
size_t gdn2_double_backward_bytes(const gdn2_backward_call *call);

/* workspace: GDN2_ALIGN-aligned, of that many bytes. */
void gdn2_double_forward(const gdn2_forward_call *call, void *workspace);
void gdn2_double_backward(const gdn2_backward_call *call, void *workspace);

void gdn2_double_decode(const gdn2_step_call *call);
#endif
