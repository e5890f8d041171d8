/* tensor_file.h - reading and writing of .npy and .safetensors files, for the program and the language model.
 *
 * Every function that can fail returns 0, or -1 with a sentence in *error that names the file and the byte or key at fault.
 * Files are untrusted: no length is believed before it is checked against the size of the file. docs/files.md says what is
 * accepted. */
#ifndef GDN2_IO_TENSOR_FILE_H
#define GDN2_IO_TENSOR_FILE_H
#include <stddef.h>
#include <stdint.h>

#define IO_MAX_RANK 8

/* IO_OTHER: an element type that a .safetensors file may hold but that is not read here. */
/* Integers are read, never written. */
typedef enum io_dtype { IO_F32, IO_F64, IO_F16, IO_BF16, IO_I32, IO_I64, IO_OTHER } io_dtype;

typedef struct io_error {
  char text[512];
} io_error;

/* Replaces control characters: names come from files, and none of their bytes may command a terminal. Done in every io_error. */
void io_make_printable(char *text);

/* Bytes of one element (0 for IO_OTHER), and the name as .safetensors files spell it. */
size_t io_dtype_bytes(io_dtype dtype);
const char *io_dtype_name(io_dtype dtype);

/* ---- Conversions ---------------------------------------------------------------------------------------------------------- */

/* Exact. */
float io_f16_to_f32(uint16_t x);
float io_bf16_to_f32(uint16_t x);
/* Rounded to the nearest, ties to even; too large becomes infinite; NaN stays NaN. */
uint16_t io_f32_to_f16(float x);
uint16_t io_f32_to_bf16(float x);

/* count elements of dtype at from -> float32. Returns the index of the first finite element that does not fit, or -1. */
int64_t io_to_f32(io_dtype dtype, const void *from, float *to, int64_t count);
/* count float32 -> elements of dtype. Returns how many finite elements became infinite. */
int64_t io_from_f32(io_dtype dtype, const float *from, void *to, int64_t count);
/* The same of float64, rounded once. */
int64_t io_from_f64(io_dtype dtype, const double *from, void *to, int64_t count);

/* ---- Reading -------------------------------------------------------------------------------------------------------------- */

/* A tensor in a file. */
typedef struct io_entry {
  char *name; /* the key; "" in a .npy file */
  io_dtype dtype;
  char dtype_name[16]; /* as the file spells it, cut if longer */
  int rank;
  int64_t shape[IO_MAX_RANK];
  int64_t count;  /* elements */
  int64_t offset; /* of the first element, in bytes from the start of the file */
} io_entry;

/* An open file: its header is read and checked against the size of the file, its data is not read yet. */
typedef struct io_file {
  char *path;
  int fd;
  int64_t bytes;
  io_entry *entries; /* .npy: one; .safetensors: by name */
  int count;
} io_file;

/* *file is NULL after a failure. */
int io_open_npy(const char *path, io_file **file, io_error *error);
int io_open_safetensors(const char *path, io_file **file, io_error *error);
/* NULL is allowed. */
void io_close(io_file *file);

/* The tensor of that name, or NULL. */
const io_entry *io_find(const io_file *file, const char *name);

/* All elements of an entry of the file, to out[entry->count]. A finite number beyond float32 is an error. */
int io_read_f32(const io_file *file, const io_entry *entry, float *out, io_error *error);
/* The same of an entry whose elements are float64. */
int io_read_f64(const io_file *file, const io_entry *entry, double *out, io_error *error);

/* The same of an entry of int32 or int64. */
int io_read_i64(const io_file *file, const io_entry *entry, int64_t *out, io_error *error);

/* ---- Writing -------------------------------------------------------------------------------------------------------------- */

/* A contiguous tensor in C order. data holds elements of dtype. */
typedef struct io_tensor {
  const char *name;
  io_dtype dtype;
  int rank;
  int64_t shape[IO_MAX_RANK];
  const void *data;
} io_tensor;

/* Writes count tensors to path as one .safetensors file, atomically: a temporary file beside it is renamed when it is whole, so
 * that nothing half-written is ever found at path. */
int io_write_safetensors(const char *path, const io_tensor *tensors, int count, io_error *error);

/* Writes each tensor to directory/NAME.npy in the same way; all are whole before the first is renamed. The directory exists. */
int io_write_npy(const char *directory, const io_tensor *tensors, int count, io_error *error);

/* Writes a file of any kind in the same way. */
int io_write_bytes(const char *path, const void *data, size_t bytes, io_error *error);

/* Whether a file could be written at path, by creating and removing a temporary file beside it. */
int io_check_writable(const char *path, io_error *error);

/* From now on SIGHUP, SIGINT, SIGPIPE and SIGTERM remove the temporary files before they end the process, and a file that grows
 * beyond a limit of the system is an error of the write. For programs: it changes the signal handlers of the process. */
void io_clean_up_on_signals(void);

#endif
