/* Values are written under keys, one of them is overwritten, and both keys are read back. */
#include <gdn2.h>
#include <stdio.h>

enum { T = 4, K = 2, V = 2 }; /* one sequence of four tokens, one head */

int main(void) {
  const float k[T][K] = {{1, 0}, {0, 1}, {1, 0}, {0, 0}}; /* token 2 uses the key of token 0 again */
  const float v[T][V] = {{1, 2}, {3, 4}, {5, 6}, {0, 0}};
  const float q[T][K] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
  const float b[T] = {1, 1, 1, 1}; /* a key's old value is erased before the new one is written */
  const double scale = 1;
  float o[T][V];

  const gdn2_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1,
                  .T = T,
                  .H = 1,
                  .K = K,
                  .V = V,
                  .q = {.data = q},
                  .k = {.data = k},
                  .v = {.data = v},
                  .b = gdn2_per_head(b, GDN2_F32, T, 1),
                  .scale = &scale},
      .o = {.data = o},
  };
  if (gdn2_forward(&args) != GDN2_OK) {
    fprintf(stderr, "%s\n", gdn2_last_error());
    return 1;
  }
  for (int t = 0; t < T; t++) printf("token %d reads %g %g\n", t, (double)o[t][0], (double)o[t][1]);
  return 0;
}
