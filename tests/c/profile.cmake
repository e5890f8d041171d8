# The times of stages.
gdn2_test(test_profile LIBS gdn2_test_width)
