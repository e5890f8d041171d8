/* inputs.h - the rules of the family, and the tensors that run and check read from files. */
#ifndef GDN2_CLI_INPUTS_H
#define GDN2_CLI_INPUTS_H
#include "options.h"
#include "tensor_file.h"

/* A member of the family: the inputs it needs (bits 1 << input_id), and whether its g is per head. */
typedef struct rule {
  const char *name;
  unsigned needs;
  int g_per_head;
} rule;

extern const rule rules[];
extern const char *const rule_names[]; /* ends with NULL */

/* Axes of a tensor: four letters of B T H K V at most, J for HV, G and E for the heads of g and b, N states, S = N + 1. */
enum { MAX_AXES = 4 };

typedef struct sizes {
  int64_t B, T, H, K, V, HV, G, E, N;
} sizes;

/* "BTHK" -> {B, T, H, K}; returns the rank. */
int sizes_shape(const sizes *n, const char *axes, int64_t *shape);
/* The product, or -1 if it overflows. */
int64_t sizes_count(const sizes *n, const char *axes);

typedef struct inputs {
  const rule *rule;
  sizes n;
  io_file *opened[INPUTS + 1]; /* the .npy files, and last the file of --in */
  struct {
    const io_file *file; /* NULL: absent */
    const io_entry *entry;
  } source[INPUTS];
  unsigned per_head;  /* bits 1 << input_id of those that lack their last axis */
  int f64;            /* every tensor given is float64, and so is the arithmetic; else all is float32 */
  void *data[INPUTS]; /* contiguous float or double; NULL: absent */
} inputs;

/* Checks the options that finish an input, opens the files and checks names, element types and shapes; no data yet. gradients:
 * the gradients of the outputs are wanted. Returns an exit code, its sentence printed. */
int inputs_open(inputs *x, const settings *s, int gradients);
/* Reads the data and closes the files. */
int inputs_read(inputs *x);
void inputs_free(inputs *x);

/* Bytes of an element, and element i of an array, of the inputs and of the outputs. */
size_t inputs_element(const inputs *x);
double inputs_number(const inputs *x, const void *data, int64_t i);

/* A rule without files, each of its gates as the rule has it. */
inputs inputs_plain(const rule *r);

/* The axes of an input, for example "BTHK". */
const char *inputs_axes(const inputs *x, input_id id);
const char *inputs_name(input_id id);

#endif
