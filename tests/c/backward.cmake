# The backward with all its options: grouped heads, variable length, gates from raw input, the L2 norm, any subset, any memory.
# The width tests' support library is made by width.cmake, which comes later in the alphabet.
foreach(name differences gates heads memory residual sequences snapshots subsets)
  gdn2_test(test_backward_${name} ISA LIBS gdn2_test_width)
endforeach()

get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_backward_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
