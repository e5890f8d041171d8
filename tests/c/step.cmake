# Decode: gdn2_step against the float64 oracle, the forward and itself.
set(step_tests drafts layout long pool snapshots validation values)
foreach(name ${step_tests})
  gdn2_test(test_step_${name} ISA LIBS gdn2_test_support)
  target_sources(test_step_${name} PRIVATE support/step_run.c support/width_case.c support/width_number.c support/width_run.c)
endforeach()

gdn2_test(test_step_bf16 LIBS gdn2_test_support)
set_tests_properties(test_step_bf16 PROPERTIES SKIP_RETURN_CODE 77)

gdn2_test(test_step_double LIBS gdn2_test_width)
target_sources(test_step_double PRIVATE support/double_case.c support/double_oracle.c)

# Counts what the library itself asks of the allocator.
gdn2_test(test_step_allocations LIBS gdn2_test_support)
target_link_options(test_step_allocations PRIVATE LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
                                                  LINKER:--wrap=posix_memalign,--wrap=free)

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_step_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
