/* Variable length: three texts of 3, 0 and 2 tokens, one behind the other in one call, each with a state of its own. */
#include <gdn2.h>
#include <stdio.h>

enum { T = 5, N = 3, K = 2, V = 1 };

int main(void) {
  const int32_t starts[N + 1] = {0, 3, 3, 5}; /* text n is the tokens starts[n] .. starts[n+1]-1 */
  const float k[T][K] = {{1, 0}, {0, 1}, {1, 0}, {1, 0}, {0, 1}};
  const float v[T][V] = {{1}, {2}, {3}, {10}, {20}};
  const float g[T] = {0, 0, 0, 0, -0.6931472f}; /* the last token halves what is there: e^g = 1/2 */
  const float h0[N][K][V] = {{{0}, {0}}, {{7}, {8}}, {{100}, {0}}};
  float h_final[N][K][V];

  const gdn2_forward_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1,
                  .T = T,
                  .H = 1,
                  .K = K,
                  .V = V,
                  .q = {.data = k},
                  .k = {.data = k},
                  .v = {.data = v},
                  .g = gdn2_per_head(g, GDN2_F32, T, 1),
                  .h0 = {.data = h0},
                  .cu_seqlens = starts,
                  .N = N},
      .h_final = {.data = h_final},
  };
  if (gdn2_forward(&args) != GDN2_OK) {
    fprintf(stderr, "%s\n", gdn2_last_error());
    return 1;
  }
  for (int n = 0; n < N; n++) printf("text %d ends with %g and %g\n", n, (double)h_final[n][0][0], (double)h_final[n][1][0]);
  return 0;
}
