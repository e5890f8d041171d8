#include "base/macros.h"

#include "isa/vec_avx512.h"
#include "isa/vec.h"

#define FUSED 1 /* one rounding in v_fma and v_fnma */
#define WORDS vec_words_avx512
#include "words_tmpl.c"
