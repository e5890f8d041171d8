#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>

/* Per thread, as errno is: calls in other threads never change what this thread reads. */
static _Thread_local char sentence[512];

gdn2_status gdn2_fail(gdn2_status status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  (void)vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  return status;
}

const char *gdn2_last_error(void) { return sentence; }

const char *gdn2_status_name(gdn2_status status) {
  switch (status) {
  case GDN2_OK: return "GDN2_OK";
  case GDN2_ERR_ARGUMENT: return "GDN2_ERR_ARGUMENT";
  case GDN2_ERR_SHAPE: return "GDN2_ERR_SHAPE";
  case GDN2_ERR_DTYPE: return "GDN2_ERR_DTYPE";
  case GDN2_ERR_STRIDE: return "GDN2_ERR_STRIDE";
  case GDN2_ERR_MEMORY: return "GDN2_ERR_MEMORY";
  case GDN2_ERR_WORKSPACE: return "GDN2_ERR_WORKSPACE";
  case GDN2_ERR_ISA: return "GDN2_ERR_ISA";
  case GDN2_ERR_MPI: return "GDN2_ERR_MPI";
  }
  return "unknown status";
}
