/* The peak of AVX-512. */
#include <immintrin.h>

typedef __m512 vf;
#define LANES 16
#define CHAINS 16
#define SET1 _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#include "peak_tmpl.h"

const peak_kernel peak_avx512 = {loop, FLOP, update};
