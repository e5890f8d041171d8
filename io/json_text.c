#include "json_text.h"

#include <string.h>

/* Bytes of the well-formed UTF-8 sequence (Unicode, table 3-7) at s, or 0. */
static size_t sequence(const unsigned char *s, size_t left) {
  size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
  if (n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  int overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
  int surrogate = s[0] == 0xed && s[1] > 0x9f, beyond = s[0] == 0xf4 && s[1] > 0x8f;
  return n > 1 && (overlong || surrogate || beyond) ? 0 : n;
}

static int is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* Outside strings: does the byte at s[i] make a number other than -?(0|[1-9][0-9]*)? The rest of the grammar is cJSON's. */
static int spoils_number(const unsigned char *s, size_t i, size_t length) {
  int after_digit = i > 0 && is_digit(s[i - 1]), before_digit = i + 1 < length && is_digit(s[i + 1]);
  return s[i] == '+' || s[i] == '.' || (after_digit && (s[i] == 'e' || s[i] == 'E')) ||
         (s[i] == '0' && before_digit && !after_digit);
}

/* Why the byte at s[i], which begins a sequence of n bytes (0: none), cannot be there; NULL if it can. */
static const char *fault_at(const unsigned char *s, size_t i, size_t length, size_t n, int in_string) {
  if (!n) return "the header is not UTF-8";
  if (s[i] < 0x20 && (in_string || !s[i] || !strchr("\t\r\n", s[i]))) return "the header holds a control character";
  if (in_string && length - i >= 6 && !memcmp(s + i, "\\u0000", 6)) return "the header holds an escaped zero character";
  return !in_string && spoils_number(s, i, length) ? "a number of the header is not a plain decimal integer" : NULL;
}

int64_t json_text_check(const char *text, size_t length, const char **reason) {
  const unsigned char *s = (const unsigned char *)text;
  int in_string = 0;
  size_t n;
  for (size_t i = 0; i < length; i += n) {
    n = sequence(s + i, length - i);
    *reason = fault_at(s, i, length, n, in_string);
    if (*reason) return (int64_t)i;
    if (s[i] == '"') in_string = !in_string;
    if (s[i] == '\\' && in_string && i + 1 < length && (s[i + 1] == '"' || s[i + 1] == '\\')) n = 2; /* not the string's end */
  }
  return -1;
}

void json_text_print(FILE *out, const char *string) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
    if (*c < 0x20)
      fprintf(out, "\\u%04x", *c);
    else
      fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  }
  fputc('"', out);
}
