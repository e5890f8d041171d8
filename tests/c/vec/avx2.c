#include "base/macros.h"

#include "isa/vec_avx2.h"
#include "isa/vec.h"

#define FUSED 1 /* one rounding in v_fma and v_fnma */
#define WORDS vec_words_avx2
#include "words_tmpl.c"
