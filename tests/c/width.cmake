# The forward with all its options: element types, grouped heads, variable length, gates from raw input, layouts.
set(width_tests alternate backward bounds comparator convert dtypes gates heads layout norm sequences validation)
add_library(gdn2_test_width STATIC support/width_case.c support/width_number.c support/width_run.c support/gradient_run.c
                                   support/gradient_oracle.c)
target_link_libraries(gdn2_test_width PUBLIC gdn2_test_support)
foreach(name ${width_tests})
  gdn2_test(test_width_${name} ISA LIBS gdn2_test_width)
endforeach()
target_compile_definitions(test_width_bounds PRIVATE GDN2_BUDGETS="${PROJECT_SOURCE_DIR}/tests/budgets_width.csv")

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_width_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
