# Cases from public reports that no other test has.
gdn2_test(test_cases_forward ISA LIBS gdn2_test_width)

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_cases_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
