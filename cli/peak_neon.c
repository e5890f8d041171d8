/* The peak of Advanced SIMD on AArch64. */
#include <arm_neon.h>

typedef float32x4_t vf;
#define LANES 4
#define CHAINS 16
#define SET1 vdupq_n_f32
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#include "peak_tmpl.h"

const peak_kernel peak_neon = {loop, FLOP, update};
