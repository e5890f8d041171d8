/* The tests of the vector words, one function for each instruction set: what cmocka returns. */
#ifndef TEST_VEC_WORDS_H
#define TEST_VEC_WORDS_H

int vec_words_generic(void);
int vec_words_avx2(void);
int vec_words_avx512(void);
int vec_words_neon(void);
#endif
