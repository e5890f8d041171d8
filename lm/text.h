/* text.h - the bytes of text files, one after the other. */
#ifndef GDN2_LM_TEXT_H
#define GDN2_LM_TEXT_H
#include <stddef.h>
#include <stdint.h>

typedef struct lm_text_error {
  char text[512];
} lm_text_error;

/* Reads the files in their order into bytes, up to capacity bytes in all; what lies beyond is not read, but every file must open.
 * Returns the number of bytes read, or -1 with a sentence that names the file. No bytes at all is an error. */
int64_t lm_text_read(uint8_t *bytes, int64_t capacity, const char *const *paths, int count, lm_text_error *error);
#endif
