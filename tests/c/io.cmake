# Tensor files: conversions and writing. Broken files are given to the program (tests/python/test_files.py).
if(TARGET gdn2_io)
  gdn2_test(test_io LIBS gdn2_io)
endif()
