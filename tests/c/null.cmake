# Every exported function with NULL.
gdn2_test(test_null LIBS gdn2_test_support)
target_sources(test_null PRIVATE support/seed_functions.c)
target_compile_definitions(test_null PRIVATE GDN2_SYMBOLS="${PROJECT_SOURCE_DIR}/tests/house/symbols.txt")
