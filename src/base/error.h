/* The sentence behind a failed status. */
#ifndef GDN2_BASE_ERROR_H
#define GDN2_BASE_ERROR_H
#include "gdn2.h"

/* Formats the sentence that gdn2_last_error() of this thread returns from now on, and returns status. */
gdn2_status gdn2_fail(gdn2_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
