#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

#define SLACK 0xa5

/* One array: map = guard page, body, guard page; data lies in the body. */
typedef struct block {
  struct block *older;
  unsigned char *map, *body, *data;
  size_t map_bytes, body_bytes, bytes;
} block;

static block *newest;
static test_place where = TEST_AT_END;

void test_set_place(test_place place) { where = place; }

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* What a guard page forbids: any access. But qemu-user (7.2) reads a whole vector where x86 has a masked load of a part; there,
 * only writing. */
static int guard(void) {
#if defined(__x86_64__)
  if (getenv("GDN2_TEST_EMULATOR")) return PROT_READ;
#endif
  return PROT_NONE;
}

static void *give(size_t bytes, size_t align, test_place place) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  block *b = malloc(sizeof *b);
  if (!b) fail_msg("test memory: out of memory");
  const size_t body_bytes = round_up(bytes, page);
  *b = (block){.older = newest, .body_bytes = body_bytes, .map_bytes = body_bytes + 2 * page, .bytes = bytes};
  b->map = mmap(NULL, b->map_bytes, guard(), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (b->map == MAP_FAILED) fail_msg("test memory: mmap of %zu bytes failed", b->map_bytes);
  b->body = b->map + page;
  if (body_bytes && mprotect(b->body, body_bytes, PROT_READ | PROT_WRITE) != 0) fail_msg("test memory: mprotect failed");
  b->data = place == TEST_AT_END ? b->body + body_bytes - round_up(bytes, align) : b->body;
  memset(b->body, SLACK, body_bytes);
  newest = b;
  return b->data;
}

static void poison(void *data, size_t words) {
  uint32_t *bits = data;
  for (size_t i = 0; i < words; i++) bits[i] = TEST_POISON;
}

float *test_floats(size_t count) {
  float *data = give(count * sizeof(float), sizeof(float), where);
  poison(data, count);
  return data;
}

double *test_doubles(size_t count) {
  double *data = give(count * sizeof(double), sizeof(double), TEST_AT_END);
  memset(data, 0xff, count * sizeof(double));
  return data;
}

void *test_workspace(size_t bytes) {
  void *data = give(bytes, 64, TEST_AT_END);
  poison(data, bytes / 4);
  return data;
}

static void protect(const void *array, int protection) {
  for (block *b = newest; b; b = b->older)
    if (b->data == array) {
      if (b->body_bytes && mprotect(b->body, b->body_bytes, protection) != 0) fail_msg("test memory: mprotect failed");
      return;
    }
  fail_msg("test memory: not an array made here");
}

void test_lock(const void *array) { protect(array, PROT_READ); }
void test_unlock(const void *array) { protect(array, PROT_READ | PROT_WRITE); }

static bool slack_is_intact(const block *b) {
  for (size_t i = 0; i < b->body_bytes; i++) {
    const unsigned char *at = b->body + i;
    const bool inside = at >= b->data && at < b->data + b->bytes;
    if (!inside && *at != SLACK) return false;
  }
  return true;
}

/* Frees down to the mark; false if something beside an array was written. */
static bool release(const void *mark) {
  bool intact = true;
  while (newest && newest != mark) {
    block *b = newest;
    newest = b->older;
    intact = intact && slack_is_intact(b);
    munmap(b->map, b->map_bytes);
    free(b);
  }
  return intact;
}

const void *test_mark(void) { return newest; }

void test_release_to(const void *mark) {
  if (!release(mark)) fail_msg("bytes beside an array were written");
}

int test_release(void **state) {
  (void)state;
  where = TEST_AT_END;
  if (release(NULL)) return 0;
  print_error("bytes beside an array were written\n");
  return -1;
}
