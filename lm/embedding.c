#include "parts.h"
#include <string.h>

/* out_t = E[byte_t]: one row of the table for each byte. */
void lm_embedding_forward(float *out, const uint8_t *bytes, const float *weight, int64_t T, int64_t D) {
  for (int64_t t = 0; t < T; t++) memcpy(out + t * D, weight + bytes[t] * D, (size_t)D * sizeof(float));
}
