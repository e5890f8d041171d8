/* The float64 path: problems of every width whose numbers need all 53 bits, their calls, and oracles that share no code with the
 * library: ref/ where it has the option, else the recurrence once more, on complex numbers. */
#ifndef TEST_DOUBLE_H
#define TEST_DOUBLE_H
#include "width.h"

/* Results of a call by bits of `wanted`: gradient i, by input W_i, is 1 << i. */
#define DOUBLE_O (1u << W_INPUTS)
#define DOUBLE_H_FINAL (1u << (W_INPUTS + 1))
#define DOUBLE_GRADIENTS (DOUBLE_O - 1)

typedef struct double_problem {
  width_case c;
  double *d_o, *dh_final; /* [B,T,HV,V], [N,HV,K,V]; NULL: absent */
  bool summed[W_INPUTS];  /* of g, b, w, dt_bias: the gradient is wanted per head though the gate is not */
} double_problem;

typedef struct double_result {
  double *o, *h_final, *grad[W_INPUTS]; /* contiguous; NULL: not wanted */
} double_result;

/* Makes every present input of the case float64 and moves it off the float32 grid, and draws d_o and dh_final. */
double_problem double_new(const width_case *c, uint64_t seed);

/* A problem with a random choice of all options, small enough for an oracle that is called once per element. */
double_problem double_any(uint64_t seed);
/* The options in words, for messages. */
const char *double_options(const double_problem *x, char text[256]);

tensor double_tensor(const double_problem *x, int gradient);
/* All gradients that the problem has. */
unsigned double_gradients(const double_problem *x);

/* A call whose buffers are laid out and marked, on one thread; exec and everything else may be changed before it is run. */
typedef struct double_call {
  unsigned wanted;
  width_call width; /* inputs, o, h_final, forward arguments */
  width_buffer d_o, dh_final, grad[W_INPUTS];
  gdn2_backward_args backward;
} double_call;

double_call double_call_new(const double_problem *x, unsigned wanted, const width_layout *layout);
/* Forward if o or h_final is wanted, backward if a gradient is. Fails on any status but GDN2_OK and on a write to a gap. */
double_result double_call_run(const double_problem *x, double_call *call);
double_result double_run(const double_problem *x, unsigned wanted);

/* ---- Oracles ---- */

/* o and h_final, and with them the gradient of the loss sum(o d_o) + sum(h_final dh_final) by every element of every input, each
 * from one run of the recurrence with that element moved by i 1e-30: its imaginary part is the derivative, without a difference.
 */
double_result double_oracle(const double_problem *x);
/* The loss from results. */
double double_loss(const double_problem *x, const double_result *r);

/* Relative L2 error at most bound; fails where the reference is small. */
void double_expect_close(const tensor *t, const double *got, const double *want, double bound);
/* The same, where the reference may vanish: ||error|| at most bound * max(||want||, unit sqrt(count)). */
void double_expect_near(const tensor *t, const double *got, const double *want, double bound, double unit);
/* Every result that both hold, to the bit. */
void double_expect_equal(const double_problem *x, const double_result *got, const double_result *want);
#endif
