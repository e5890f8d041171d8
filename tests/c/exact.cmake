# The exact rule: the library against the float64 oracle, closed forms and itself.
add_library(gdn2_test_support STATIC support/compare.c support/exact_case.c support/exact_run.c support/loop.c support/memory.c
                                     support/test.c support/view.c)
target_include_directories(gdn2_test_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/support)
target_link_libraries(gdn2_test_support PUBLIC gdn2_internal gdn2_ref gdn2_flags cmocka m)

foreach(name bounds closed comparator decay gradients invariance memory overlap shapes subsets threads validation)
  gdn2_test(test_exact_${name} ISA LIBS gdn2_test_support)
endforeach()
gdn2_test(test_exact_isas LIBS gdn2_test_support)
target_compile_definitions(test_exact_bounds PRIVATE GDN2_BUDGETS="${PROJECT_SOURCE_DIR}/tests/budgets.csv")

# Hundreds of small calls: threads that spin between them starve each other where other work shares the cores.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_exact_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
