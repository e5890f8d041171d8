/* Diagnostics of the forward. */
#ifndef GDN2_STAGED_REPORT_H
#define GDN2_STAGED_REPORT_H
#include "staged/frame.h"

/* Looks at the n numbers that `stage` has made and calls the callback of the frame's call, if there is one and something to say.
 */
void gdn2_seed_inspect(const gdn2_seed_frame *frame, const char *stage, int64_t n, const float *x, int64_t replaced);
#endif
