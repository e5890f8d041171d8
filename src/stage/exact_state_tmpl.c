/* The state between the caller's layout and the engine's: S [K][Sp], padding columns 0. No arithmetic. */
#include "stage/exact.h"
#include <string.h>

STAGE void state_load(gdn2_shape s, gdn2_state from, float *S) {
  memset(S, 0, (size_t)s.K * (size_t)s.Sp * sizeof *S);
  if (!from.at) return;
  if (from.value_step == 1) {
    for (int i = 0; i < s.K; i++) memcpy(S + (ptrdiff_t)i * s.Sp, from.at + i * from.key_step, (size_t)s.V * sizeof *S);
  } else if (from.key_step == 1) {
    transpose(s.V, s.K, from.at, (ptrdiff_t)from.value_step, S, s.Sp);
  } else {
    for (int i = 0; i < s.K; i++)
      for (int j = 0; j < s.V; j++) S[(ptrdiff_t)i * s.Sp + j] = from.at[i * from.key_step + j * from.value_step];
  }
}

STAGE void state_store(gdn2_shape s, const float *S, gdn2_state_out to) {
  if (to.value_step == 1) {
    for (int i = 0; i < s.K; i++) memcpy(to.at + i * to.key_step, S + (ptrdiff_t)i * s.Sp, (size_t)s.V * sizeof *S);
  } else if (to.key_step == 1) {
    transpose(s.K, s.V, S, s.Sp, to.at, (ptrdiff_t)to.value_step);
  } else {
    for (int i = 0; i < s.K; i++)
      for (int j = 0; j < s.V; j++) to.at[i * to.key_step + j * to.value_step] = S[(ptrdiff_t)i * s.Sp + j];
  }
}
