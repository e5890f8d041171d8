/* tensor_file.h - reading and writing of .npy and .safetensors files, for the program and the language model.
 *
 * Every function returns 0, or -1 with a sentence in *error that names the file and the byte or key at fault. */
#ifndef GDN2_IO_TENSOR_FILE_H
#define GDN2_IO_TENSOR_FILE_H
#include <stddef.h>
#include <stdint.h>

#define IO_MAX_RANK 8

typedef enum io_dtype { IO_F32, IO_F64, IO_F16, IO_BF16 } io_dtype;

typedef struct io_error {
  char text[512];
} io_error;

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

#endif
