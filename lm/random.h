/* random.h - random numbers by counter: element `index` of stream `stream` under `seed`, in any order, the same on every machine.
 *
 *     mix(z):  z ^= z >> 30;  z *= 0xBF58476D1CE4E5B9;  z ^= z >> 27;  z *= 0x94D049BB133111EB;  z ^= z >> 31     (mod 2^64)
 *     bits(seed, stream, index) = mix(mix(mix(seed) + stream) + (index + 1) * 0x9E3779B97F4A7C15)
 *
 * mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), and a stream is SplitMix64 started at mix(mix(seed) + stream);
 * with seed = stream = 0 it is its published sequence from state 0. Every array that is filled takes a stream of its own, so that
 * adding one changes no number of the others. */
#ifndef GDN2_LM_RANDOM_H
#define GDN2_LM_RANDOM_H
#include <stdint.h>

uint64_t lm_random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in the open interval (0, 1): 52 bits and a half, exact in a double, so that its logarithm is always finite. */
double lm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Mean 0, standard deviation 1: the sum of twelve 16-bit uniform numbers, taken from the bits at 3 index .. 3 index + 2. The sum
 * is a whole number below 2^20, so the value is exact and needs no logarithm, whose last bit would depend on the C library. The
 * distribution is the normal one but for its tails, which end at 6. */
float lm_random_normal(uint64_t seed, uint64_t stream, uint64_t index);
#endif
