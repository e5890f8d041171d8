/* Speculative decoding: four drafted tokens are checked in one call that keeps the state after each; two of them hold, and the
 * next call starts from there. Nothing is computed twice. */
#include <gdn2.h>
#include <stdio.h>

enum { DRAFTS = 4, K = 1, V = 1 };

static const double scale = 1;

int main(void) {
  float state[K][V] = {{1}};
  float history[DRAFTS][K][V]; /* one row, one head: the state after each draft */
  const float one[DRAFTS] = {1, 1, 1, 1}, drafts[DRAFTS] = {10, 20, 30, 40}, right = 5;
  float o[DRAFTS];

  gdn2_step_args args = {
      .struct_size = sizeof args,
      .problem = {.B = 1, .T = DRAFTS, .H = 1, .K = K, .V = V, .q = {.data = one}, .k = {.data = one}, .v = {.data = drafts}},
      .o = {.data = o},
      .from = {.data = state},
      .each = {.data = history}, /* `to` is absent: the state itself stays as it is before the drafts */
  };
  args.problem.scale = &scale;
  if (gdn2_step(&args) != GDN2_OK) goto failed;
  printf("drafts read %g %g %g %g\n", (double)o[0], (double)o[1], (double)o[2], (double)o[3]);

  const int32_t accepted = 2;
  args.problem.T = 1; /* the token that follows the accepted ones */
  args.problem.v.data = &right;
  args.history = args.each;
  args.history_length = DRAFTS;
  args.accepted = &accepted;
  args.each = (gdn2_states){.data = NULL};
  args.to = (gdn2_output){.data = state};
  if (gdn2_step(&args) != GDN2_OK) goto failed;
  printf("after %d of them the next token reads %g\n", (int)accepted, (double)o[0]);
  return 0;

failed:
  fprintf(stderr, "%s\n", gdn2_last_error());
  return 1;
}
