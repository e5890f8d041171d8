/* cmocka, with the headers that it needs before itself, and what every test program of this folder shares. */
#ifndef TEST_TEST_H
#define TEST_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gdn2.h"
#include "memory.h"

/* The return code for CTest when GDN2_ISA names a set that this machine lacks; 0 where the tests can run. A library that
 * wrongly says that a set is missing does not skip its tests: it fails them. */
int test_isa_missing(void);

/* Whether the library asks the machine to take subnormal numbers for zeros: 0 where it cannot. */
#if defined(__SSE__) || defined(__aarch64__)
#define TEST_FLUSHES 1
#else
#define TEST_FLUSHES 0
#endif

/* x / 2, a subnormal number of FLT_MIN, or 0 in a mode that makes it so: the compiler knows nothing of the mode. */
float test_halved(float x);

/* What main returns: the tests run on the set named by GDN2_ISA. */
#define TEST_RUN(tests) (test_isa_missing() ? test_isa_missing() : cmocka_run_group_tests(tests, NULL, NULL))
#endif
