/* Two vectors of 16-bit numbers at a time, part of words_tmpl.c. */

/* Pairs of vectors: what the words for one vector do, the even numbers in one and the odd ones in the other. */
static void test_pairs(void **state) {
  (void)state;
  rng r = {7};
  uint16_t *in = (uint16_t *)(void *)test_floats(VL), *out = (uint16_t *)(void *)test_floats(VL), want[2 * VL];
  float *x = test_floats(2 * VL), even[VL], odd[VL];
  for (int h = 0; h < 65536 * 4; h += 2 * VL) {
    vf a, b;
    for (int i = 0; i < 2 * VL; i++) {
      const uint32_t bits = (uint32_t)rng_next(&r);
      in[i] = (uint16_t)(h + i);
      memcpy(x + i, &bits, sizeof bits);
      v_store_bf16(want + i, v_set1(x[i]), 1);
    }
    v_load_bf16_pair(in, &a, &b);
    v_store(even, a), v_store(odd, b);
    for (int i = 0; i < VL; i++) {
      expect_same("even of a pair", even[i], value_of(in[2 * i], 8));
      expect_same("odd of a pair", odd[i], value_of(in[2 * i + 1], 8));
    }
    v_split(x, &a, &b);
    v_store(even, a), v_store(odd, b);
    v_store_bf16_pair(out, a, b);
    for (int i = 0; i < VL; i++) {
      expect_same("even of a pair", even[i], x[2 * i]);
      expect_same("odd of a pair", odd[i], x[2 * i + 1]);
      assert_int_equal(out[2 * i], want[2 * i]);
      assert_int_equal(out[2 * i + 1], want[2 * i + 1]);
    }
  }
}

/* Two vectors one behind the other, and past the caches: what the plain words for one vector do. */
static void test_two(void **state) {
  (void)state;
  rng r = {8};
  uint16_t *half = (uint16_t *)(void *)test_floats(VL), *streamed = (uint16_t *)(void *)test_floats(VL), want[2 * VL];
  float *x = test_floats(2 * VL), *single = test_floats(VL);
  for (int n = 0; n < 20000; n++) {
    for (int i = 0; i < 2 * VL; i++) {
      const uint32_t bits = (uint32_t)rng_next(&r) << (i % 3 == 0 ? 15 : 0); /* half of these are ties */
      memcpy(x + i, &bits, sizeof bits);
      v_store_bf16(want + i, v_set1(x[i]), 1);
    }
    v_store_bf16_two(half, v_load(x), v_load(x + VL));
    v_stream_bf16_two(streamed, v_load(x), v_load(x + VL));
    v_stream(single, v_load(x));
    v_stream_end();
    assert_memory_equal(half, want, sizeof want);
    assert_memory_equal(streamed, want, sizeof want);
    assert_memory_equal(single, x, VL * sizeof *x);
  }
}
