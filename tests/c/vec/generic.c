#include "base/macros.h"

#include "isa/vec_generic.h"
#include "isa/vec.h"

#define FUSED 0 /* two roundings in v_fma and v_fnma */
#define WORDS vec_words_generic
#include "words_tmpl.c"
