/* safetensors.c - the .safetensors format.
 *
 * The length of the header in 8 bytes (little-endian), the header, a JSON object padded with spaces, then the data:
 *     {"q": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, "__metadata__": {"made by": "text"}}
 * Offsets count from the end of the header; the tensors cover the data without gap or overlap. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "json_text.h"

enum { PREFIX = 8 };
static const int64_t MAX_HEADER = 100000000; /* the format's own limit */
static const char metadata[] = "__metadata__";

/* ---- One value of the header ---------------------------------------------------------------------------------------------- */

/* Numbers arrive as double, and json_text_check has seen that they are whole. Those beyond 2^53 may have been rounded, and no
 * size or offset of a real file is so large. */
static int whole_number(const cJSON *item, int64_t *value) {
  if (!cJSON_IsNumber(item) || signbit(item->valuedouble) || !(item->valuedouble <= 0x1p53)) return 0;
  *value = (int64_t)item->valuedouble;
  return 1;
}

/* The member of that name; NULL with a sentence when it is missing or given twice. */
static const cJSON *member(const cJSON *object, const char *name, const char *path, io_error *error) {
  const cJSON *found = NULL;
  for (const cJSON *item = object->child; item; item = item->next) {
    if (strcmp(item->string, name)) continue;
    if (found) {
      io_fail(error, "%s: %s: %s is given twice", path, object->string, name);
      return NULL;
    }
    found = item;
  }
  if (!found) io_fail(error, "%s: %s: %s is missing", path, object->string, name);
  return found;
}

static int read_dtype(const cJSON *item, const char *path, io_entry *entry, io_error *error) {
  const cJSON *dtype = member(item, "dtype", path, error);
  if (!dtype) return -1;
  if (!cJSON_IsString(dtype)) return io_fail(error, "%s: %s: dtype is not a string", path, item->string);
  snprintf(entry->dtype_name, sizeof entry->dtype_name, "%s", dtype->valuestring);
  entry->dtype = IO_F32;
  while (entry->dtype != IO_OTHER && strcmp(dtype->valuestring, io_dtype_name(entry->dtype))) entry->dtype++;
  return 0;
}

static int read_shape(const cJSON *item, const char *path, io_entry *entry, io_error *error) {
  const cJSON *shape = member(item, "shape", path, error);
  if (!shape) return -1;
  if (!cJSON_IsArray(shape)) return io_fail(error, "%s: %s: shape is not a list", path, item->string);
  for (const cJSON *size = shape->child; size; size = size->next) {
    if (entry->rank == IO_MAX_RANK)
      return io_fail(error, "%s: %s: shape has more than %d dimensions", path, item->string, IO_MAX_RANK);
    if (!whole_number(size, &entry->shape[entry->rank]))
      return io_fail(error, "%s: %s: shape[%d] is not a whole number from 0 to 2^53", path, item->string, entry->rank);
    entry->rank++;
  }
  return io_count_elements(entry, path, item->string, error);
}

/* start: of the data in the file. *end: where the tensor ends, in bytes from there. */
static int read_offsets(const cJSON *item, const io_file *file, int64_t start, io_entry *entry, int64_t *end, io_error *error) {
  const char *path = file->path, *key = item->string;
  const cJSON *offsets = member(item, "data_offsets", path, error);
  int64_t begin;
  if (!offsets) return -1;
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !whole_number(offsets->child, &begin) ||
      !whole_number(offsets->child->next, end))
    return io_fail(error, "%s: %s: data_offsets is not a pair of whole numbers from 0 to 2^53", path, key);
  if (begin > *end)
    return io_fail(error, "%s: %s: data_offsets begin at %lld after their end %lld", path, key, (long long)begin,
                   (long long)*end);
  if (*end > file->bytes - start)
    return io_fail(error, "%s: %s: data_offsets end at %lld, the data of the file at %lld", path, key, (long long)*end,
                   (long long)(file->bytes - start));
  int64_t wanted = entry->count * (int64_t)io_dtype_bytes(entry->dtype);
  if (entry->dtype != IO_OTHER && *end - begin != wanted)
    return io_fail(error, "%s: %s: data_offsets hold %lld bytes, shape and dtype ask for %lld", path, key,
                   (long long)(*end - begin), (long long)wanted);
  entry->offset = start + begin;
  return 0;
}

/* ---- The whole header ----------------------------------------------------------------------------------------------------- */

/* Where each tensor lies, to be sorted: the entries themselves are sorted by name. */
typedef struct span {
  int64_t begin, end;
  const char *name;
} span;

static int compare_spans(const void *x, const void *y) {
  const span *a = x, *b = y;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return (a->end > b->end) - (a->end < b->end);
}

static int compare_entries(const void *a, const void *b) {
  return strcmp(((const io_entry *)a)->name, ((const io_entry *)b)->name);
}

static int check_cover(const io_file *file, span *spans, int64_t data_bytes, io_error *error) {
  int64_t at = 0;
  if (file->count) qsort(spans, (size_t)file->count, sizeof *spans, compare_spans);
  for (int i = 0; i < file->count; at = spans[i++].end)
    if (spans[i].begin != at)
      return io_fail(error, "%s: %s: data_offsets begin at %lld, %s the end %lld of the tensor before", file->path, spans[i].name,
                     (long long)spans[i].begin, spans[i].begin < at ? "overlapping" : "leaving a gap after", (long long)at);
  if (at == data_bytes) return 0;
  return io_fail(error, "%s: the tensors end at byte %lld of the data, the file holds %lld", file->path, (long long)at,
                 (long long)data_bytes);
}

static int check_names(const io_file *file, io_error *error) {
  for (int i = 1; i < file->count; i++)
    if (!strcmp(file->entries[i - 1].name, file->entries[i].name))
      return io_fail(error, "%s: key %s is given twice", file->path, file->entries[i].name);
  return 0;
}

static int check_metadata(const cJSON *item, const char *path, int *seen, io_error *error) {
  if ((*seen)++) return io_fail(error, "%s: key %s is given twice", path, metadata);
  int good = cJSON_IsObject(item);
  for (const cJSON *text = item->child; good && text; text = text->next) good = cJSON_IsString(text);
  return good ? 0 : io_fail(error, "%s: %s is not an object of strings", path, metadata);
}

static int read_entry(const cJSON *item, io_file *file, int64_t start, span *spans, io_error *error) {
  if (!cJSON_IsObject(item))
    return io_fail(error, "%s: %s: is not an object of dtype, shape and data_offsets", file->path, item->string);
  int i = file->count;
  io_entry *entry = &file->entries[i];
  if (read_dtype(item, file->path, entry, error) || read_shape(item, file->path, entry, error) ||
      read_offsets(item, file, start, entry, &spans[i].end, error))
    return -1;
  spans[i].begin = entry->offset - start;
  entry->name = strdup(item->string);
  if (!entry->name) return io_fail(error, "%s: not enough memory", file->path);
  spans[i].name = entry->name;
  file->count++;
  return 0;
}

static int read_entries(const cJSON *root, io_file *file, int64_t start, span *spans, io_error *error) {
  int seen = 0;
  for (const cJSON *item = root->child; item; item = item->next)
    if (!strcmp(item->string, metadata) ? check_metadata(item, file->path, &seen, error)
                                        : read_entry(item, file, start, spans, error))
      return -1;
  if (check_cover(file, spans, file->bytes - start, error)) return -1;
  if (file->count) qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_entries);
  return check_names(file, error);
}

static int read_object(const cJSON *root, io_file *file, int64_t start, io_error *error) {
  size_t count = 0;
  for (const cJSON *item = root->child; item; item = item->next) count++;
  span *spans = io_allocate(count * sizeof *spans, file->path, error);
  file->entries = calloc(count + 1, sizeof *file->entries);
  int failed = -1;
  if (spans && file->entries)
    failed = read_entries(root, file, start, spans, error);
  else
    io_fail(error, "%s: not enough memory for %zu keys", file->path, count);
  free(spans);
  return failed;
}

/* text has a zero after its last byte. */
static int parse_text(io_file *file, const char *text, size_t length, io_error *error) {
  const char *reason, *end = NULL;
  int64_t bad = json_text_check(text, length, &reason);
  if (bad >= 0) return io_fail(error, "%s: byte %lld: %s", file->path, (long long)(PREFIX + bad), reason);
  if (!length || text[0] != '{') return io_fail(error, "%s: byte %d: the header does not begin with {", file->path, PREFIX);
  cJSON *root = cJSON_ParseWithLengthOpts(text, length + 1, &end, 0);
  size_t at = end ? (size_t)(end - text) : 0;
  int failed = -1;
  while (root && at < length && strchr(" \t\r\n", text[at])) at++;
  if (root && at == length)
    failed = read_object(root, file, PREFIX + (int64_t)length, error);
  else
    io_fail(error, "%s: byte %zu: the header is not valid JSON", file->path, PREFIX + at);
  cJSON_Delete(root);
  return failed;
}

static int read_header(io_file *file, io_error *error) {
  uint64_t length;
  if (file->bytes < PREFIX)
    return io_fail(error, "%s: byte %lld: the file ends before the length of its header", file->path, (long long)file->bytes);
  if (io_read_at(file, 0, &length, PREFIX, error)) return -1;
  if (length > (uint64_t)(file->bytes - PREFIX))
    return io_fail(error, "%s: byte 0: header length %llu goes beyond the end of the file at byte %lld", file->path,
                   (unsigned long long)length, (long long)file->bytes);
  if (length > (uint64_t)MAX_HEADER)
    return io_fail(error, "%s: byte 0: header length %llu is above %lld", file->path, (unsigned long long)length,
                   (long long)MAX_HEADER);
  char *text = io_allocate((size_t)length + 1, file->path, error);
  if (!text) return -1;
  text[length] = 0;
  int failed = io_read_at(file, PREFIX, text, (size_t)length, error) || parse_text(file, text, (size_t)length, error);
  free(text);
  return failed ? -1 : 0;
}

int io_open_safetensors(const char *path, io_file **file, io_error *error) {
  if (io_open_regular(path, file, error)) return -1;
  if (!read_header(*file, error)) return 0;
  io_close(*file);
  *file = NULL;
  return -1;
}

/* ---- Writing -------------------------------------------------------------------------------------------------------------- */

/* Tensors of wide elements come first, so that each begins at a multiple of its element. */
static int before(const io_tensor *a, const io_tensor *b) { return io_dtype_bytes(a->dtype) > io_dtype_bytes(b->dtype); }

static const io_tensor **in_file_order(const io_tensor *tensors, int count, const char *path, io_error *error) {
  const io_tensor **order = io_allocate((size_t)count * sizeof(*order), path, error);
  for (int i = 0; order && i < count; i++) {
    int at = i;
    for (; at > 0 && before(&tensors[i], order[at - 1]); at--) order[at] = order[at - 1];
    order[at] = &tensors[i];
  }
  return order;
}

static int tensor_bytes(const io_tensor *tensor, const char *path, int64_t *bytes, io_error *error) {
  io_entry entry = {.rank = tensor->rank};
  memcpy(entry.shape, tensor->shape, sizeof entry.shape);
  if (io_count_elements(&entry, path, tensor->name, error)) return -1;
  *bytes = entry.count * (int64_t)io_dtype_bytes(tensor->dtype);
  return 0;
}

static int print_header(FILE *out, const io_tensor *const *order, int count, const char *path, io_error *error) {
  int64_t at = 0, bytes;
  for (int i = 0; i < count; i++) {
    const io_tensor *t = order[i];
    if (tensor_bytes(t, path, &bytes, error)) return -1;
    fputs(i ? "," : "{", out);
    json_text_print(out, t->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", io_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) fprintf(out, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    fprintf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + bytes));
    at += bytes;
  }
  fputs(count ? "}" : "{}", out);
  while (ftell(out) % 8) fputc(' ', out);
  return 0;
}

static int write_header(io_pending *pending, const io_tensor *const *order, int count, const char *path, io_error *error) {
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  if (!out) return io_fail(error, "%s: not enough memory", path);
  int failed = print_header(out, order, count, path, error);
  if ((ferror(out) | fclose(out)) && !failed) failed = io_fail(error, "%s: not enough memory", path);
  uint64_t prefix = length;
  failed = failed || io_pending_write(pending, &prefix, PREFIX, error) || io_pending_write(pending, text, length, error);
  free(text);
  return failed ? -1 : 0;
}

static int write_all(io_pending *pending, const io_tensor *const *order, int count, const char *path, io_error *error) {
  if (io_pending_begin(pending, path, error) || write_header(pending, order, count, path, error)) return -1;
  for (int i = 0; i < count; i++) {
    int64_t bytes;
    if (tensor_bytes(order[i], path, &bytes, error) || io_pending_write(pending, order[i]->data, (size_t)bytes, error)) return -1;
  }
  return io_pending_finish(pending, error) || io_pending_commit(pending, error) ? -1 : 0;
}

int io_write_safetensors(const char *path, const io_tensor *tensors, int count, io_error *error) {
  const io_tensor **order = in_file_order(tensors, count, path, error);
  if (!order) return -1;
  io_pending pending = {.fd = -1};
  int failed = write_all(&pending, order, count, path, error);
  io_pending_abort(&pending);
  free(order);
  return failed;
}
