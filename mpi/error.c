#include "error.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[GDN2_MPI_TEXT];

const char *gdn2_mpi_last_error(void) { return text; }

gdn2_status gdn2_mpi_fail(gdn2_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status;
}

gdn2_status gdn2_mpi_pass(gdn2_status status) {
  return status == GDN2_OK ? GDN2_OK : gdn2_mpi_fail(status, "%s", gdn2_last_error());
}

gdn2_status gdn2_mpi_first(gdn2_status a, gdn2_status b) { return a != GDN2_OK ? a : b; }

gdn2_status gdn2_mpi_code(int code, const char *function) {
  if (code == MPI_SUCCESS) return GDN2_OK;
  char reason[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)MPI_Error_string(code, reason, &length);
  return gdn2_mpi_fail(GDN2_ERR_MPI, "%s has failed: %s", function, reason);
}
