/* internal.h - what the files of io/ share. */
#ifndef GDN2_IO_INTERNAL_H
#define GDN2_IO_INTERNAL_H
#include "tensor_file.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian, and are read and written without swapping"
#endif

/* Writes the sentence and returns -1. */
int io_fail(io_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A pointer to at least one byte, or NULL with the sentence that memory is short. */
void *io_allocate(size_t bytes, const char *path, io_error *error);

/* Opens a regular file for reading and takes its size; no entries yet. */
int io_open_regular(const char *path, io_file **file, io_error *error);
/* Bytes at an offset that the caller has checked against file->bytes. */
int io_read_at(const io_file *file, int64_t offset, void *out, size_t bytes, io_error *error);

/* entry->count = the product of the shape, checked; where names the tensor in the sentence. */
int io_count_elements(io_entry *entry, const char *path, const char *where, io_error *error);

/* A file being written. Bytes go to a temporary file beside the target; commit renames it, abort removes it. */
typedef struct io_pending {
  int fd;
  int slot; /* in the list of files to be removed by a signal */
  char *target, *temporary;
} io_pending;

int io_pending_begin(io_pending *pending, const char *path, io_error *error);
int io_pending_write(io_pending *pending, const void *data, size_t bytes, io_error *error);
/* All bytes are on the disk afterwards. */
int io_pending_finish(io_pending *pending, io_error *error);
int io_pending_commit(io_pending *pending, io_error *error);
/* Harmless after commit, and on a zeroed structure. */
void io_pending_abort(io_pending *pending);

#endif
