# The language model's layer.
if(TARGET gdn2_lm)
  foreach(part parts init layer text)
    gdn2_test(test_lm_${part} LIBS gdn2_lm)
  endforeach()
  # It asks for more memory than there is; AddressSanitizer would stop there instead of refusing.
  set_tests_properties(test_lm_layer PROPERTIES ENVIRONMENT ASAN_OPTIONS=allocator_may_return_null=1)
endif()
