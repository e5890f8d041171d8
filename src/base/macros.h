/* Compiler words used by the stage templates. */
#ifndef GDN2_BASE_MACROS_H
#define GDN2_BASE_MACROS_H

/* Inlined into its caller always, so that constant arguments become constants of the code. */
#define INLINE static inline __attribute__((always_inline, unused))
/* A stage: reached through the table only. */
#define STAGE static __attribute__((noinline))

/* UNROLL unrolls the loop that follows; its trip count must be a constant after inlining. UNROLL_4: four times, any count. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

#endif
