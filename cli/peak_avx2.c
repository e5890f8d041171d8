/* The peak of AVX2 with FMA: 12 sums and 2 constants of 16 registers. */
#include <immintrin.h>

typedef __m256 vf;
#define LANES 8
#define CHAINS 12
#define SET1 _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#include "peak_tmpl.h"

const peak_kernel peak_avx2 = {loop, FLOP, update};
