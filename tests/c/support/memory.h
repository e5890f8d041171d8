/* Memory for tests. Every array lies between two pages that may not be touched, and ends exactly at the second (or begins exactly
 * after the first), so one element too many, read or written, is a fault. The bytes left over on its pages are checked. */
#ifndef TEST_MEMORY_H
#define TEST_MEMORY_H
#include <stddef.h>
#include <stdint.h>

/* Bits of the NaN that fills fresh float arrays and gaps; nothing that the library computes has this payload. */
#define TEST_POISON 0x7fc0deadu

typedef enum test_place { TEST_AT_END, TEST_AT_START } test_place;

/* Where the arrays made from now on lie between their guard pages; TEST_AT_END after every test. */
void test_set_place(test_place place);

/* Arrays live until the test ends. count may be 0: the pointer is not NULL and may not be read. */
float *test_floats(size_t count);   /* filled with TEST_POISON */
double *test_doubles(size_t count); /* filled with NaN */
/* 64-byte aligned; every 4 bytes hold TEST_POISON; the last byte is within 63 bytes of the guard page. */
void *test_workspace(size_t bytes);

/* The pages of an array made here become read-only, or writable again. */
void test_lock(const void *array);
void test_unlock(const void *array);

/* Frees every array made since the mark, and fails the test if something next to one of them was written. */
const void *test_mark(void);
void test_release_to(const void *mark);

/* For cmocka: the end of each test. */
int test_release(void **state);

/* A test whose arrays are checked and freed when it ends. */
#define TEST(f) cmocka_unit_test_setup_teardown(f, NULL, test_release)
#endif
