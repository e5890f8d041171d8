gdn2_test(test_ref)
gdn2_test(test_ref_closed)
