/* npy.c - NumPy's .npy format, versions 1.0, 2.0 and 3.0.
 *
 * "\x93NUMPY", two bytes of version, the length of the header in 2 bytes (1.0) or 4 (2.0, 3.0), then the header, a Python
 * dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } padded with spaces, then the elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* NumPy's own limit on a header that it reads is 10000 bytes; a plain dtype and 8 dimensions need fewer than 300. */
enum { PREFIX = 8, MAX_HEADER = 10000, TYPES = 5 };
static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
static const struct {
  const char *descr;
  io_dtype dtype;
} types[TYPES] = {{"<f4", IO_F32}, {"<f8", IO_F64}, {"<f2", IO_F16}, {"<i4", IO_I32}, {"<i8", IO_I64}};

/* The header text while it is being read: at is the next byte, base the offset of text[0] in the file. */
typedef struct reader {
  const char *path, *text;
  int length, at, base;
  io_error *error;
} reader;

static int fail_at(const reader *r, int at, const char *what) {
  return io_fail(r->error, "%s: byte %d: %s", r->path, r->base + at, what);
}

static void skip_spaces(reader *r) {
  while (r->at < r->length && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
}

static int next_is(reader *r, char c) {
  skip_spaces(r);
  if (r->at >= r->length || r->text[r->at] != c) return 0;
  r->at++;
  return 1;
}

/* A quoted Python string without escapes, into word (cut to what fits). */
static int read_string(reader *r, char *word, int size, const char *what) {
  skip_spaces(r);
  char quote = r->at < r->length ? r->text[r->at] : 0;
  if (quote != '\'' && quote != '"') return fail_at(r, r->at, what);
  int n = 0;
  for (r->at++; r->at < r->length && r->text[r->at] != quote; r->at++)
    if (n < size - 1) word[n++] = r->text[r->at];
  word[n] = 0;
  return r->at++ < r->length ? 0 : fail_at(r, r->length, "the header ends within a string");
}

static int read_descr(reader *r, io_entry *entry) {
  static const char wanted[] =
      "descr must be '<f4', '<f8', '<f2', '<i4' or '<i8' (little-endian float32, float64, float16, int32, int64)";
  skip_spaces(r);
  int start = r->at;
  if (read_string(r, entry->dtype_name, sizeof entry->dtype_name, wanted)) return -1;
  for (int i = 0; i < TYPES; i++)
    if (!strcmp(entry->dtype_name, types[i].descr)) {
      entry->dtype = types[i].dtype;
      return 0;
    }
  return fail_at(r, start, wanted);
}

static int read_order(reader *r) {
  static const char *const words[] = {"False", "True"};
  skip_spaces(r);
  for (int i = 0; i < 2; i++) {
    int n = (int)strlen(words[i]);
    if (r->length - r->at < n || strncmp(r->text + r->at, words[i], (size_t)n)) continue;
    if (i) return fail_at(r, r->at, "fortran_order is True; the array must be in C order (numpy.ascontiguousarray)");
    r->at += n;
    return 0;
  }
  return fail_at(r, r->at, "fortran_order must be False");
}

static int read_size(reader *r, int64_t *size) {
  skip_spaces(r);
  int start = r->at;
  *size = 0;
  for (; r->at < r->length && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
    if (__builtin_mul_overflow(*size, 10, size) || __builtin_add_overflow(*size, r->text[r->at] - '0', size))
      return fail_at(r, start, "a size in shape is too large");
  return r->at > start ? 0 : fail_at(r, start, "shape must hold sizes that are whole and not negative");
}

/* A Python tuple: (), (2,), (2, 3) and (2, 3,), but not (2), which is a number. */
static int read_shape(reader *r, io_entry *entry) {
  if (!next_is(r, '(')) return fail_at(r, r->at, "shape must be a tuple");
  int comma = 1;
  while (!next_is(r, ')')) {
    if (!comma) return fail_at(r, r->at, "a comma or a closing parenthesis is missing in shape");
    if (entry->rank == IO_MAX_RANK) return fail_at(r, r->at, "shape has more than 8 dimensions");
    if (read_size(r, &entry->shape[entry->rank++])) return -1;
    comma = next_is(r, ',');
  }
  return entry->rank == 1 && !comma ? fail_at(r, r->at - 1, "shape must be a tuple") : 0;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4 };

static int read_item(reader *r, io_entry *entry, int *seen) {
  char key[16];
  skip_spaces(r);
  int start = r->at;
  if (read_string(r, key, sizeof key, "a key in quotes is missing")) return -1;
  int bit = !strcmp(key, "descr") ? DESCR : !strcmp(key, "fortran_order") ? ORDER : !strcmp(key, "shape") ? SHAPE : 0;
  if (!bit) return fail_at(r, start, "the key is not descr, fortran_order or shape");
  if (*seen & bit) return fail_at(r, start, "the key is given twice");
  *seen |= bit;
  if (!next_is(r, ':')) return fail_at(r, r->at, "a colon is missing after the key");
  return bit == DESCR ? read_descr(r, entry) : bit == ORDER ? read_order(r) : read_shape(r, entry);
}

static int read_dictionary(reader *r, io_entry *entry) {
  int seen = 0, comma = 1;
  if (!next_is(r, '{')) return fail_at(r, r->at, "the header must begin with {");
  while (!next_is(r, '}')) {
    if (!comma) return fail_at(r, r->at, "a comma or } is missing in the header");
    if (read_item(r, entry, &seen)) return -1;
    comma = next_is(r, ',');
  }
  skip_spaces(r);
  if (r->at < r->length) return fail_at(r, r->at, "bytes follow the dictionary of the header");
  if (!(seen & DESCR)) return fail_at(r, 0, "the header lacks the key descr");
  if (!(seen & ORDER)) return fail_at(r, 0, "the header lacks the key fortran_order");
  return seen & SHAPE ? 0 : fail_at(r, 0, "the header lacks the key shape");
}

/* The offset and the length of the header. */
static int read_prefix(const io_file *file, int *base, int *length, io_error *error) {
  unsigned char start[PREFIX + 4];
  if (file->bytes < PREFIX + 2)
    return io_fail(error, "%s: byte %lld: the file ends before its header", file->path, (long long)file->bytes);
  if (io_read_at(file, 0, start, PREFIX + 2, error)) return -1;
  if (memcmp(start, magic, sizeof magic)) return io_fail(error, "%s: byte 0: not a .npy file (no \\x93NUMPY)", file->path);
  if (start[6] < 1 || start[6] > 3 || start[7])
    return io_fail(error, "%s: byte 6: version %d.%d is not 1.0, 2.0 or 3.0", file->path, start[6], start[7]);
  int wide = start[6] > 1;
  *base = PREFIX + (wide ? 4 : 2);
  if (file->bytes < *base)
    return io_fail(error, "%s: byte %lld: the file ends before its header", file->path, (long long)file->bytes);
  if (wide && io_read_at(file, PREFIX + 2, start + PREFIX + 2, 2, error)) return -1;
  uint32_t n = (uint32_t)start[8] | (uint32_t)start[9] << 8;
  if (wide) n |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
  if (n > MAX_HEADER) return io_fail(error, "%s: byte 8: header length %u is above %d", file->path, n, MAX_HEADER);
  *length = (int)n;
  if (file->bytes - *base >= *length) return 0;
  return io_fail(error, "%s: byte 8: header length %u goes beyond the end of the file at byte %lld", file->path, n,
                 (long long)file->bytes);
}

static int read_header(io_file *file, io_entry *entry, io_error *error) {
  int base = 0, length = 0;
  if (read_prefix(file, &base, &length, error)) return -1;
  char *text = io_allocate((size_t)length, file->path, error);
  if (!text) return -1;
  reader r = {file->path, text, length, 0, base, error};
  int failed = io_read_at(file, base, text, (size_t)length, error) || read_dictionary(&r, entry);
  free(text);
  if (failed || io_count_elements(entry, file->path, "shape", error)) return -1;
  entry->offset = base + length;
  int64_t wanted = entry->count * (int64_t)io_dtype_bytes(entry->dtype), held = file->bytes - entry->offset;
  if (held == wanted) return 0;
  return io_fail(error, "%s: the shape asks for %lld bytes of data after byte %lld, the file holds %lld", file->path,
                 (long long)wanted, (long long)entry->offset, (long long)held);
}

int io_open_npy(const char *path, io_file **out, io_error *error) {
  if (io_open_regular(path, out, error)) return -1;
  io_file *file = *out;
  file->entries = calloc(1, sizeof *file->entries);
  char *name = strdup("");
  if (file->entries && name) {
    file->entries[0].name = name;
    file->count = 1;
    if (!read_header(file, &file->entries[0], error)) return 0;
  } else {
    free(name);
    io_fail(error, "%s: not enough memory", path);
  }
  io_close(file);
  *out = NULL;
  return -1;
}

/* ---- Writing -------------------------------------------------------------------------------------------------------------- */

static const char *descr_of(io_dtype dtype) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].dtype == dtype) return types[i].descr;
  return NULL;
}

static int write_header(io_pending *pending, const io_tensor *tensor, io_error *error) {
  char text[512] = {0};
  int n =
      snprintf(text + PREFIX + 2, 64, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr_of(tensor->dtype)) + PREFIX + 2;
  for (int i = 0; i < tensor->rank; i++) n += snprintf(text + n, 32, i ? " %lld," : "%lld,", (long long)tensor->shape[i]);
  if (tensor->rank > 1) n--; /* the last comma is needed by one dimension only */
  n += snprintf(text + n, 8, "), }");
  while ((n + 1) % 64) text[n++] = ' '; /* elements begin at a multiple of 64 bytes */
  text[n++] = '\n';
  memcpy(text, magic, sizeof magic);
  text[6] = 1;
  text[8] = (char)((n - PREFIX - 2) & 255);
  text[9] = (char)((n - PREFIX - 2) >> 8);
  return io_pending_write(pending, text, (size_t)n, error);
}

static int write_one(io_pending *pending, const char *directory, const io_tensor *tensor, io_error *error) {
  io_entry entry = {.rank = tensor->rank};
  memcpy(entry.shape, tensor->shape, sizeof entry.shape);
  if (!descr_of(tensor->dtype))
    return io_fail(error, "%s: element type %s does not exist in .npy", tensor->name, io_dtype_name(tensor->dtype));
  if (io_count_elements(&entry, directory, tensor->name, error)) return -1;
  size_t size = strlen(directory) + strlen(tensor->name) + sizeof "/.npy";
  char *path = io_allocate(size, directory, error);
  if (!path) return -1;
  snprintf(path, size, "%s/%s.npy", directory, tensor->name);
  int failed = io_pending_begin(pending, path, error);
  free(path);
  if (failed || write_header(pending, tensor, error)) return -1;
  if (io_pending_write(pending, tensor->data, (size_t)entry.count * io_dtype_bytes(tensor->dtype), error)) return -1;
  return io_pending_finish(pending, error);
}

int io_write_npy(const char *directory, const io_tensor *tensors, int count, io_error *error) {
  io_pending *pending = calloc((size_t)count + 1, sizeof *pending);
  if (!pending) return io_fail(error, "%s: not enough memory", directory);
  int failed = 0;
  for (int i = 0; i < count && !failed; i++) failed = write_one(&pending[i], directory, &tensors[i], error);
  for (int i = 0; i < count && !failed; i++) failed = io_pending_commit(&pending[i], error);
  for (int i = 0; i < count; i++) io_pending_abort(&pending[i]);
  free(pending);
  return failed;
}
