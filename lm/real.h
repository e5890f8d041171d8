/* real.h - the number type of the model, and what depends on it.
 *
 * The sources of the model are compiled twice: in float32 for use, and with LM_FLOAT64 in float64, where finite differences can
 * check every gradient. The two are libraries of their own with the same names; a program links one of them. */
#ifndef GDN2_LM_REAL_H
#define GDN2_LM_REAL_H
#include <math.h>
#include <stdint.h>

#ifdef LM_FLOAT64
typedef double real;
#define LM_DTYPE GDN2_F64
#define lm_exp exp
#define lm_sqrt sqrt
#define lm_cblas_gemm cblas_dgemm
#define lm_cblas_gemv cblas_dgemv
#else
typedef float real;
#define LM_DTYPE GDN2_F32
#define lm_exp expf
#define lm_sqrt sqrtf
#define lm_cblas_gemm cblas_sgemm
#define lm_cblas_gemv cblas_sgemv
#endif

/* Before a loop whose rounds are independent and alike. Which thread takes which round changes no bit. work: operations of all
 * rounds; threads would lose more time than they save on a small loop. */
#ifdef _OPENMP
#define LM_PRAGMA(text) _Pragma(#text)
#define LM_PARALLEL_FOR(work) LM_PRAGMA(omp parallel for schedule(static) if ((work) > INT64_C(200000)))
#else
#define LM_PARALLEL_FOR(work)
#endif

#endif
