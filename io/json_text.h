/* json_text.h - what cJSON leaves open about the text of a JSON header. */
#ifndef GDN2_IO_JSON_TEXT_H
#define GDN2_IO_JSON_TEXT_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The offset of the first byte that is not UTF-8, of a control character, of an escaped zero, or of a number that is not a plain
 * decimal integer, with the reason; -1 if there is none. cJSON takes any bytes, ends a string at an escaped zero, so that two
 * keys could look equal, and takes 007, 1.0 and 1e2 for sizes. */
int64_t json_text_check(const char *text, size_t length, const char **reason);

/* The string in quotes, escaped. */
void json_text_print(FILE *out, const char *string);

#endif
