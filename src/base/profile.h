/* Times of stages, where a call asks for them. */
#ifndef GDN2_BASE_PROFILE_H
#define GDN2_BASE_PROFILE_H
#include "gdn2.h"
#include <time.h>

static inline uint64_t gdn2_profile_now(const gdn2_profile *profile) {
  struct timespec now;
  if (!profile) return 0;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Adds the time since `since` to the stage; returns now. Several threads may do so at once. */
static inline uint64_t gdn2_profile_lap(gdn2_profile *profile, gdn2_stage stage, uint64_t since) {
  if (!profile) return 0;
  const uint64_t now = gdn2_profile_now(profile);
  (void)__atomic_fetch_add(&profile->nanoseconds[stage], now - since, __ATOMIC_RELAXED);
  return now;
}
#endif
