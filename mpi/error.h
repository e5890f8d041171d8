/* The sentence behind a failed status of this library. */
#ifndef GDN2_MPI_ERROR_H
#define GDN2_MPI_ERROR_H
#include "gdn2_mpi.h"

enum { GDN2_MPI_TEXT = 600 };

/* Formats the sentence that gdn2_mpi_last_error() of this thread returns from now on, and returns status. */
gdn2_status gdn2_mpi_fail(gdn2_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The sentence of libgdn2 becomes that of this library; GDN2_OK changes nothing. */
gdn2_status gdn2_mpi_pass(gdn2_status status);
/* The first of two that is not GDN2_OK. */
gdn2_status gdn2_mpi_first(gdn2_status a, gdn2_status b);
/* What an MPI function has returned, as a status. */
gdn2_status gdn2_mpi_code(int code, const char *function);
#endif
