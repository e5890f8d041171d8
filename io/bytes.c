/* bytes.c - a file of any kind, written whole or not at all. */
#include "internal.h"

int io_write_bytes(const char *path, const void *data, size_t bytes, io_error *error) {
  io_pending pending = {.fd = -1};
  int failed = io_pending_begin(&pending, path, error) || io_pending_write(&pending, data, bytes, error) ||
               io_pending_finish(&pending, error) || io_pending_commit(&pending, error);
  io_pending_abort(&pending);
  return failed ? -1 : 0;
}
