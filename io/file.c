/* file.c - an open tensor file: opening, bytes at an offset, and the elements of an entry as float32. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

void io_make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

int io_fail(io_error *error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  io_make_printable(error->text);
  return -1;
}

void *io_allocate(size_t bytes, const char *path, io_error *error) {
  void *p = malloc(bytes ? bytes : 1);
  if (!p) io_fail(error, "%s: not enough memory for %zu bytes", path, bytes);
  return p;
}

static int take_descriptor(io_file *file, const char *path, io_error *error) {
  struct stat status;
  file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a named pipe must not hang before it is refused */
  if (file->fd < 0) return io_fail(error, "%s: cannot be opened: %s", path, strerror(errno));
  if (fstat(file->fd, &status)) return io_fail(error, "%s: cannot be examined: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode)) return io_fail(error, "%s: is not a regular file", path);
  file->bytes = status.st_size;
  return 0;
}

int io_open_regular(const char *path, io_file **out, io_error *error) {
  *out = NULL;
  io_file *file = calloc(1, sizeof *file);
  if (!file || !(file->path = strdup(path))) {
    free(file);
    return io_fail(error, "%s: not enough memory", path);
  }
  file->fd = -1;
  if (take_descriptor(file, path, error)) {
    io_close(file);
    return -1;
  }
  *out = file;
  return 0;
}

void io_close(io_file *file) {
  if (!file) return;
  for (int i = 0; i < file->count; i++) free(file->entries[i].name);
  free(file->entries);
  free(file->path);
  if (file->fd >= 0) close(file->fd);
  free(file);
}

static int compare_name(const void *name, const void *entry) { return strcmp(name, ((const io_entry *)entry)->name); }

const io_entry *io_find(const io_file *file, const char *name) {
  return file->count ? bsearch(name, file->entries, (size_t)file->count, sizeof *file->entries, compare_name) : NULL;
}

int io_read_at(const io_file *file, int64_t offset, void *out, size_t bytes, io_error *error) {
  char *to = out;
  while (bytes > 0) {
    ssize_t n = pread(file->fd, to, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_fail(error, "%s: cannot be read at byte %lld: %s", file->path, (long long)offset, strerror(errno));
    if (n == 0) return io_fail(error, "%s: ends at byte %lld while it is being read", file->path, (long long)offset);
    to += n;
    offset += n;
    bytes -= (size_t)n;
  }
  return 0;
}

int io_count_elements(io_entry *entry, const char *path, const char *where, io_error *error) {
  int64_t count = 1;
  int overflow = 0;
  for (int i = 0; i < entry->rank; i++) {
    if (entry->shape[i] == 0) {
      entry->count = 0;
      return 0;
    }
    overflow |= __builtin_mul_overflow(count, entry->shape[i], &count);
  }
  if (overflow || count > INT64_MAX / 8) return io_fail(error, "%s: %s: the product of the shape overflows", path, where);
  entry->count = count;
  return 0;
}

enum { BLOCK = 1 << 16 }; /* elements converted at a time */

static int read_block(const io_file *file, const io_entry *entry, int64_t first, int64_t count, void *buffer, float *out,
                      io_error *error) {
  size_t size = io_dtype_bytes(entry->dtype);
  if (io_read_at(file, entry->offset + first * (int64_t)size, buffer, (size_t)count * size, error)) return -1;
  int64_t bad = io_to_f32(entry->dtype, buffer, out + first, count);
  if (bad < 0) return 0;
  return io_fail(error, "%s: %s%selement %lld is %g, which does not fit float32", file->path, entry->name,
                 *entry->name ? ": " : "", (long long)(first + bad), ((const double *)buffer)[bad]);
}

int io_read_f64(const io_file *file, const io_entry *entry, double *out, io_error *error) {
  if (entry->dtype == IO_F64) return io_read_at(file, entry->offset, out, (size_t)entry->count * sizeof *out, error);
  return io_fail(error, "%s: %s: element type %s is not F64", file->path, entry->name, entry->dtype_name);
}

int io_read_i64(const io_file *file, const io_entry *entry, int64_t *out, io_error *error) {
  if (entry->dtype == IO_I64) return io_read_at(file, entry->offset, out, (size_t)entry->count * sizeof *out, error);
  if (entry->dtype != IO_I32)
    return io_fail(error, "%s: %s: element type %s is not I32 or I64", file->path, entry->name, entry->dtype_name);
  int32_t *narrow = io_allocate((size_t)entry->count * sizeof *narrow, file->path, error);
  if (!narrow) return -1;
  int failed = io_read_at(file, entry->offset, narrow, (size_t)entry->count * sizeof *narrow, error);
  for (int64_t i = 0; i < entry->count && !failed; i++) out[i] = narrow[i];
  free(narrow);
  return failed;
}

int io_read_f32(const io_file *file, const io_entry *entry, float *out, io_error *error) {
  if (entry->dtype > IO_BF16)
    return io_fail(error, "%s: %s: element type %s is not F32, F64, F16 or BF16", file->path, entry->name, entry->dtype_name);
  if (entry->dtype == IO_F32) return io_read_at(file, entry->offset, out, (size_t)entry->count * sizeof *out, error);
  double *buffer = io_allocate(BLOCK * sizeof *buffer, file->path, error);
  if (!buffer) return -1;
  int failed = 0;
  for (int64_t first = 0; first < entry->count && !failed; first += BLOCK) {
    int64_t left = entry->count - first;
    failed = read_block(file, entry, first, left < BLOCK ? left : BLOCK, buffer, out, error);
  }
  free(buffer);
  return failed;
}
