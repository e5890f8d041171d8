# The language model. gdn2_lm_f64 is the same model in float64, for the check of gradients.
if(TARGET gdn2_lm)
  foreach(part data init optimiser sample snapshots text)
    gdn2_test(test_lm_${part} LIBS gdn2_lm gdn2_internal)
  endforeach()
  gdn2_test(test_lm_gradient LIBS gdn2_lm_f64 gdn2_internal)
endif()
