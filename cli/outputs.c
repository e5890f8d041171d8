#include "outputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* input: whose gradient it is, -1 for none; axes: NULL where they are those of the input. */
static const struct {
  const char *name, *axes;
  int input;
} table[OUTPUTS] = {
    [OUT_O] = {"o", "BTJV", -1},
    [OUT_H_FINAL] = {"h_final", "NJKV", -1},
    [OUT_DQ] = {"dq", NULL, IN_Q},
    [OUT_DK] = {"dk", NULL, IN_K},
    [OUT_DV] = {"dv", NULL, IN_V},
    [OUT_DG] = {"dg", NULL, IN_G},
    [OUT_DB] = {"db", NULL, IN_B},
    [OUT_DW] = {"dw", NULL, IN_W},
    [OUT_DBETA] = {"dbeta", NULL, IN_BETA},
    [OUT_DH0] = {"dh0", "NJKV", IN_H0},
    [OUT_DA_LOG] = {"dA_log", NULL, IN_A_LOG},
    [OUT_DDT_BIAS] = {"ddt_bias", NULL, IN_DT_BIAS},
};

const char *outputs_name(output_id id) { return table[id].name; }

const char *outputs_axes(const inputs *x, output_id id) {
  int input = table[id].input;
  if (table[id].axes) return table[id].axes;
  if (id == OUT_DA_LOG || id == OUT_DDT_BIAS) return x->source[input].entry ? inputs_axes(x, (input_id)input) : NULL;
  if ((id == OUT_DB || id == OUT_DW) && x->rule->needs & 1u << IN_BETA) return inputs_axes(x, IN_BETA);
  return x->rule->needs & 1u << input ? inputs_axes(x, (input_id)input) : NULL;
}

int outputs_allocate(outputs *y, const inputs *x, int gradients) {
  *y = (outputs){{NULL}};
  for (int id = 0; id < (gradients ? OUTPUTS : OUT_DQ); id++) {
    const char *axes = outputs_axes(x, (output_id)id);
    if (!axes) continue;
    int64_t count = sizes_count(&x->n, axes);
    y->data[id] = calloc((size_t)count + 1, inputs_element(x));
    if (!y->data[id]) return cli_failed("%s: not enough memory for %lld elements", table[id].name, (long long)count);
  }
  return DONE;
}

void outputs_free(outputs *y) {
  for (int id = 0; id < OUTPUTS; id++) free(y->data[id]);
}

/* ---- The destination ------------------------------------------------------------------------------------------------------ */

static int ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

static int is_one_file(const char *out) { return ends_with(out, ".safetensors"); }

static int is_directory(const char *path) {
  struct stat status;
  return !stat(path, &status) && S_ISDIR(status.st_mode);
}

static int same_file(const char *a, const char *b) {
  struct stat x, y;
  return a && !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_file(const char *path, const settings *s) {
  io_error error;
  int clash = same_file(s->in, path);
  for (int id = 0; id < INPUTS; id++) clash |= same_file(s->file[id], path);
  if (clash) return cli_wrong_use("--out: %s is also an input", path);
  return io_check_writable(path, &error) ? cli_wrong_use("--out: %s", error.text) : DONE;
}

static int check_file_in(const char *directory, const char *name, const settings *s) {
  size_t size = strlen(directory) + strlen(name) + sizeof "/.npy";
  char *path = malloc(size);
  if (!path) return cli_failed("not enough memory");
  snprintf(path, size, "%s/%s.npy", directory, name);
  int code = check_file(path, s);
  free(path);
  return code;
}

/* A directory that does not exist yet is made and removed again: only trying shows that it can be. */
static int check_new_directory(const char *path) {
  if (mkdir(path, 0777)) return cli_wrong_use("--out: %s: cannot be made: %s", path, strerror(errno));
  rmdir(path);
  return DONE;
}

int outputs_check_destination(const outputs *y, const settings *s) {
  if (!s->out) return cli_wrong_use("--out is missing: NAME.safetensors, or a directory for one .npy each");
  if (s->dtype == IO_BF16 && !is_one_file(s->out))
    return cli_wrong_use("--dtype bf16 does not exist in .npy; use --out NAME.safetensors");
  if (is_one_file(s->out)) return check_file(s->out, s);
  if (!is_directory(s->out)) {
    if (ends_with(s->out, "/")) return check_new_directory(s->out);
    return cli_wrong_use("--out %s: must end in .safetensors, or be a directory (a new one: end it with /)", s->out);
  }
  int code = DONE;
  for (int id = 0; id < OUTPUTS && !code; id++)
    if (y->data[id]) code = check_file_in(s->out, table[id].name, s);
  return code;
}

/* ---- Writing -------------------------------------------------------------------------------------------------------------- */

/* The elements in the wanted type, in memory of their own; *lost more of them became infinite. */
static void *converted(const inputs *x, const void *data, int64_t count, io_dtype dtype, int64_t *lost) {
  void *copy = malloc((size_t)count * io_dtype_bytes(dtype) + 1);
  if (copy) *lost += x->f64 ? io_from_f64(dtype, data, copy, count) : io_from_f32(dtype, data, copy, count);
  return copy;
}

/* The list of tensors to write; copies[] hold what must be freed. Returns their number, or -1 when memory is short. */
static int list_tensors(const outputs *y, const inputs *x, io_dtype dtype, io_tensor *list, void **copies, int64_t *lost) {
  int n = 0;
  for (int id = 0; id < OUTPUTS; id++) {
    if (!y->data[id]) continue;
    const char *axes = outputs_axes(x, (output_id)id);
    list[n] = (io_tensor){.name = table[id].name, .dtype = dtype, .data = y->data[id]};
    list[n].rank = sizes_shape(&x->n, axes, list[n].shape);
    if (dtype != (x->f64 ? IO_F64 : IO_F32))
      list[n].data = copies[n] = converted(x, y->data[id], sizes_count(&x->n, axes), dtype, lost);
    if (!list[n++].data) return -1;
  }
  return n;
}

static int write_list(const io_tensor *list, int count, const char *out) {
  io_error error;
  if (is_one_file(out)) return io_write_safetensors(out, list, count, &error) ? cli_failed("--out: %s", error.text) : DONE;
  int made = !mkdir(out, 0777);
  if (!io_write_npy(out, list, count, &error)) return DONE;
  if (made) rmdir(out);
  return cli_failed("--out: %s", error.text);
}

/* The element type that is written. */
static io_dtype dtype_of(const inputs *x, const settings *s) {
  if (options_given(s, "dtype")) return (io_dtype)s->dtype;
  return x->f64 ? IO_F64 : IO_F32;
}

int outputs_write(const outputs *y, const inputs *x, const settings *s) {
  io_tensor list[OUTPUTS];
  void *copies[OUTPUTS] = {NULL};
  int64_t lost = 0;
  int n = list_tensors(y, x, dtype_of(x, s), list, copies, &lost);
  int code = n < 0 ? cli_failed("not enough memory to convert the outputs") : write_list(list, n, s->out);
  if (lost) cli_note("%lld finite elements of the outputs are beyond --dtype and were written as infinity", (long long)lost);
  for (int i = 0; i < OUTPUTS; i++) free(copies[i]);
  return code;
}
