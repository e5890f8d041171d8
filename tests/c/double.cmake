# The float64 path. It does not depend on the instruction set; the engine is held against it on each.
# The width tests' support library is made by width.cmake, which comes later in the alphabet.
foreach(name forward gradients invariance validation)
  gdn2_test(test_double_${name} LIBS gdn2_test_width)
endforeach()
gdn2_test(test_double_engine ISA LIBS gdn2_test_width)
foreach(name engine forward gradients invariance validation)
  target_sources(test_double_${name} PRIVATE support/double_case.c support/double_oracle.c)
endforeach()

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_double_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
