/* Serving: prompts are read into a pool of states, then all requests get one new token per call, whatever slots they have. */
#include <gdn2.h>
#include <stdio.h>

enum { SLOTS = 4, K = 2, V = 1 };

static float pool[SLOTS][K][V]; /* one head; a state for each slot */
static const double scale = 1;

static int check(gdn2_status status) {
  if (status != GDN2_OK) fprintf(stderr, "%s\n", gdn2_last_error());
  return status != GDN2_OK;
}

/* A prompt of two tokens: value a under the first key, value b under the second. Its state goes to the slot. */
static int prefill(int slot, float a, float b) {
  const float k[2][K] = {{1, 0}, {0, 1}}, v[2][V] = {{a}, {b}};
  return check(gdn2_forward(&(gdn2_forward_args){
      .struct_size = sizeof(gdn2_forward_args),
      .problem = {.B = 1, .T = 2, .H = 1, .K = K, .V = V, .q = {.data = k}, .k = {.data = k}, .v = {.data = v}},
      .h_final = {.data = pool[slot]},
  }));
}

/* One token for each of n requests: it reads both keys and adds 100 to the first. */
static int decode(const char *what, int n, const int32_t *slot, const uint8_t *reset) {
  const float q[3][K] = {{1, 1}, {1, 1}, {1, 1}}, k[3][K] = {{1, 0}, {1, 0}, {1, 0}}, v[3][V] = {{100}, {100}, {100}};
  float o[3][V];
  if (check(gdn2_step(&(gdn2_step_args){
          .struct_size = sizeof(gdn2_step_args),
          .problem =
              {.B = n, .T = 1, .H = 1, .K = K, .V = V, .q = {.data = q}, .k = {.data = k}, .v = {.data = v}, .scale = &scale},
          .o = {.data = o},
          .from = {.data = pool}, /* in place */
          .to = {.data = pool},
          .slot = slot,
          .slots = SLOTS,
          .reset = reset,
      })))
    return 1;
  for (int i = 0; i < n; i++) printf("%s: slot %d reads %g\n", what, (int)slot[i], (double)o[i][0]);
  return 0;
}

int main(void) {
  if (prefill(2, 1, 2) || prefill(0, 3, 4) || prefill(3, 5, 6)) return 1;
  /* Three requests in one batch; then the second is done, and -1 keeps its place in the batch. */
  if (decode("all", 3, (const int32_t[]){2, 0, 3}, NULL)) return 1;
  if (decode("two", 3, (const int32_t[]){2, -1, 3}, NULL)) return 1;
  /* A new request takes the slot: it must not see what the old one left there. */
  if (decode("new", 1, (const int32_t[]){0}, (const uint8_t[]){1})) return 1;
  /* A slot twice in one call is an error, and nothing has happened. */
  if (decode("twice", 2, (const int32_t[]){2, 2}, NULL)) printf("refused\n");
  return 0;
}
