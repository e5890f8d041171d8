# The parts of a layer: convolution and norm against plain float64 loops, finite differences and themselves.
set(layer_tests conv_values conv_gradients conv_sequences conv_states conv_bits conv_validation norm_values norm_gradients
                norm_bits norm_validation layer_stream layer_half)
foreach(name ${layer_tests})
  gdn2_test(test_${name} ISA LIBS gdn2_test_support)
endforeach()
gdn2_test(test_layer_bf16 LIBS gdn2_test_support)
set_tests_properties(test_layer_bf16 PROPERTIES SKIP_RETURN_CODE 77)
foreach(name ${layer_tests} layer_bf16)
  target_sources(test_${name} PRIVATE support/layer_buffer.c support/layer_conv.c support/layer_norm.c support/width_number.c)
endforeach()

# Many small calls, as in exact.cmake.
get_property(tests DIRECTORY PROPERTY TESTS)
list(FILTER tests INCLUDE REGEX "^test_(conv|norm|layer)_")
set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT OMP_WAIT_POLICY=passive)
