# Cases from public reports that no other test has.
foreach(name forward golden)
  gdn2_test(test_cases_${name} ISA LIBS gdn2_test_width)
endforeach()

# Which engine a call takes.
gdn2_test(test_cases_paths LIBS gdn2_test_width)
target_sources(test_cases_paths PRIVATE support/step_run.c)
target_link_options(test_cases_paths PRIVATE LINKER:--wrap=gdn2_drive_forward,--wrap=gdn2_drive_backward,--wrap=gdn2_drive_step
                    LINKER:--wrap=gdn2_double_forward,--wrap=gdn2_double_backward,--wrap=gdn2_double_decode)

# Threads that stop between tasks.
gdn2_test(test_cases_schedule LIBS gdn2_test_width)
target_sources(test_cases_schedule PRIVATE support/seed_functions.c)
target_link_options(test_cases_schedule PRIVATE LINKER:--wrap=gdn2_par_for)

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_cases_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
