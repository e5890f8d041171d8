/* Every word of src/isa/vec.h, on the instruction set that GDN2_ISA names, against plain C. The bodies are in vec/, compiled for
 * each set; this file is compiled for any processor and asks first whether this one has the set. */
#include "test.h"
#include "vec/words.h"

int main(void) {
  const int missing = test_isa_missing();
  if (missing) return missing;
  const char *isa = getenv("GDN2_ISA");
#if defined(__x86_64__)
  if (isa && strcmp(isa, "avx2") == 0) return vec_words_avx2();
  if (isa && strcmp(isa, "avx512") == 0) return vec_words_avx512();
#elif defined(__aarch64__)
  if (isa && strcmp(isa, "neon") == 0) return vec_words_neon();
#endif
  if (!isa || strcmp(isa, "generic") == 0) return vec_words_generic();
  fprintf(stderr, "no test of the words of %s\n", isa);
  return 1;
}
