/* checkpoint.c - weights, optimiser and step as one .safetensors file. */
#include "lm/trainer.h"
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "checkpoint.safetensors"
#define STEP "training.step"
#define MEAN "adamw.mean."
#define SQUARE "adamw.square."

char *lm_path(const char *folder, const char *name, io_error *error) {
  size_t size = strlen(folder) + strlen(name) + 2;
  char *path = malloc(size);
  if (path)
    snprintf(path, size, "%s/%s", folder, name);
  else
    snprintf(error->text, sizeof error->text, "%s: not enough memory", name);
  return path;
}

/* A name with what comes before it; the list of names outlives the tensors. */
typedef struct long_name {
  char text[96];
} long_name;

static void describe(io_tensor *tensor, long_name *name, const char *prefix, const lm_param *p, const real *buffer) {
  snprintf(name->text, sizeof name->text, "%s%s", prefix, p->name);
  *tensor = (io_tensor){.name = name->text, .dtype = IO_F32, .rank = p->rank, .data = buffer + p->offset};
  memcpy(tensor->shape, p->shape, sizeof p->shape);
}

int lm_checkpoint_write(const char *folder, const lm_model *m, const lm_adamw *a, int64_t step, io_error *error) {
  const int64_t params = m->params.count;
  const float step_number = (float)step;
  char *path = lm_path(folder, FILE_NAME, error);
  io_tensor *tensors = calloc((size_t)(3 * params + 1), sizeof *tensors);
  long_name *names = calloc((size_t)(3 * params), sizeof *names);
  int failed = -1, count = 0;
  if (path && tensors && names) {
    for (int64_t n = 0; n < params; n++) {
      const lm_param *p = &m->params.list[n];
      describe(&tensors[count], &names[count], "", p, m->value), count++;
      describe(&tensors[count], &names[count], MEAN, p, a->mean), count++;
      describe(&tensors[count], &names[count], SQUARE, p, a->square), count++;
    }
    tensors[count++] = (io_tensor){.name = STEP, .dtype = IO_F32, .rank = 1, .shape = {1}, .data = &step_number};
    failed = io_write_safetensors(path, tensors, count, error);
  } else if (path) {
    snprintf(error->text, sizeof error->text, "%s: not enough memory", path);
  }
  free(names);
  free(tensors);
  free(path);
  return failed;
}

static int fail(io_error *error, const io_file *file, const char *name, const char *what) {
  snprintf(error->text, sizeof error->text, "%s: %s: %s", file->path, name, what);
  io_make_printable(error->text);
  return -1;
}

static int read_one(const io_file *file, const char *prefix, const lm_param *p, real *buffer, io_error *error) {
  long_name name;
  snprintf(name.text, sizeof name.text, "%s%s", prefix, p->name);
  const io_entry *entry = io_find(file, name.text);
  if (!entry) return fail(error, file, name.text, "is missing");
  if (entry->rank != p->rank || memcmp(entry->shape, p->shape, (size_t)p->rank * sizeof *p->shape) != 0)
    return fail(error, file, name.text, "has not the shape that config.json asks for");
  return io_read_f32(file, entry, buffer + p->offset, error);
}

static int read_all(const io_file *file, lm_model *m, lm_adamw *a, int64_t *step, io_error *error) {
  const io_entry *entry = io_find(file, STEP);
  float step_number;
  if (!entry || entry->count != 1) return fail(error, file, STEP, "is missing or not one number");
  if (io_read_f32(file, entry, &step_number, error)) return -1;
  if (!(step_number >= 0 && step_number <= 0x1p24f)) return fail(error, file, STEP, "is not a number of steps");
  *step = (int64_t)step_number;
  for (int64_t n = 0; n < m->params.count; n++) {
    const lm_param *p = &m->params.list[n];
    if (read_one(file, "", p, m->value, error)) return -1;
    if (a && (read_one(file, MEAN, p, a->mean, error) || read_one(file, SQUARE, p, a->square, error))) return -1;
  }
  return 0;
}

int lm_checkpoint_read(const char *folder, lm_model *m, lm_adamw *a, int64_t *step, io_error *error) {
  char *path = lm_path(folder, FILE_NAME, error);
  io_file *file = NULL;
  int failed = !path || io_open_safetensors(path, &file, error) || read_all(file, m, a, step, error);
  io_close(file);
  free(path);
  return failed ? -1 : 0;
}
