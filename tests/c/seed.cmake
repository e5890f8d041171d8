# The seed's pipeline: every kernel against float64, its checks, its diagnostics. Parity with the seed itself: tests/python.
foreach(name kernels values errors gradient)
  gdn2_test(test_seed_${name} ISA LIBS gdn2_test_support)
  target_sources(test_seed_${name} PRIVATE support/seed_case.c support/seed_model.c)
endforeach()
# Arguments, whatever the instruction set.
gdn2_test(test_seed_overlap LIBS gdn2_test_support)
target_sources(test_seed_overlap PRIVATE support/seed_functions.c)
# It asks for more memory than there is; a sanitizer is to say so by NULL, as the C library does.
foreach(isa generic avx2 avx512)
  if(TEST test_seed_errors/${isa})
    set_property(TEST test_seed_errors/${isa} APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=allocator_may_return_null=1)
  endif()
endforeach()
