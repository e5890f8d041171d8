# What every function refuses: NULL, numbers that are none.
foreach(name null numbers)
  gdn2_test(test_${name} LIBS gdn2_test_support)
  target_sources(test_${name} PRIVATE support/seed_functions.c)
endforeach()
target_compile_definitions(test_null PRIVATE GDN2_SYMBOLS="${PROJECT_SOURCE_DIR}/tests/house/symbols.txt")
