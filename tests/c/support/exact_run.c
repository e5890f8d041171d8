/* Solving problems: by the library, by the oracle; and judging the one by the other. */
#include "exact.h"
#include "ref.h"
#include "test.h"

/* ---- The library ---- */

results results_new(const exact_case *c, unsigned wanted) {
  results r = {{NULL}};
  for (int i = 0; i < OUTPUTS; i++)
    if (wanted & (1u << i)) r.out[i] = test_floats(output_count(c, i));
  return r;
}

static gdn2_input input_of(const exact_case *c, int i) {
  if (c->in[i] && c->per_head[i]) return gdn2_per_head(c->in[i], GDN2_F32, c->T, c->H);
  return (gdn2_input){.data = c->in[i], .dtype = GDN2_F32};
}

static gdn2_output output_of(const exact_case *c, const results *r, int i) {
  if (r->out[i] && c->summed[i]) return gdn2_per_head_out(r->out[i], GDN2_F32, c->T, c->H);
  return (gdn2_output){.data = r->out[i], .dtype = GDN2_F32};
}

static gdn2_problem problem_of(const exact_case *c) {
  return (gdn2_problem){.B = c->B,
                        .T = c->T,
                        .H = c->H,
                        .K = c->K,
                        .V = c->V,
                        .q = input_of(c, IN_Q),
                        .k = input_of(c, IN_K),
                        .v = input_of(c, IN_V),
                        .g = input_of(c, IN_G),
                        .b = input_of(c, IN_B),
                        .w = input_of(c, IN_W),
                        .h0 = input_of(c, IN_H0),
                        .scale = c->scale};
}

gdn2_forward_args forward_args(const exact_case *c, const results *r) {
  return (gdn2_forward_args){.struct_size = sizeof(gdn2_forward_args),
                             .problem = problem_of(c),
                             .o = output_of(c, r, OUT_O),
                             .h_final = output_of(c, r, OUT_HF)};
}

gdn2_backward_args backward_args(const exact_case *c, const results *r) {
  return (gdn2_backward_args){.struct_size = sizeof(gdn2_backward_args),
                              .problem = problem_of(c),
                              .d_o = input_of(c, IN_DO),
                              .dh_final = input_of(c, IN_DHF),
                              .dq = output_of(c, r, OUT_DQ),
                              .dk = output_of(c, r, OUT_DK),
                              .dv = output_of(c, r, OUT_DV),
                              .dg = output_of(c, r, OUT_DG),
                              .db = output_of(c, r, OUT_DB),
                              .dw = output_of(c, r, OUT_DW),
                              .dh0 = output_of(c, r, OUT_DH0)};
}

static void must_be_ok(gdn2_status status, const char *call) {
  if (status != GDN2_OK) fail_msg("%s: %s: %s", call, gdn2_status_name(status), gdn2_last_error());
}

results engine_run_some(const exact_case *c, unsigned wanted, gdn2_exec exec) {
  results r = results_new(c, wanted);
  for (int i = 0; i < INPUTS; i++)
    if (c->in[i]) test_lock(c->in[i]);
  if (wanted & OUT_FORWARD) {
    gdn2_forward_args args = forward_args(c, &r);
    args.exec = exec;
    must_be_ok(gdn2_forward(&args), "gdn2_forward");
  }
  if (wanted & OUT_BACKWARD) {
    gdn2_backward_args args = backward_args(c, &r);
    args.exec = exec;
    must_be_ok(gdn2_backward(&args), "gdn2_backward");
  }
  for (int i = 0; i < INPUTS; i++)
    if (c->in[i]) test_unlock(c->in[i]);
  return r;
}

results engine_run(const exact_case *c) { return engine_run_some(c, OUT_ALL, (gdn2_exec){0}); }

uint64_t results_hash(const exact_case *c, const results *r) {
  uint64_t hash = TEST_HASH;
  for (int i = 0; i < OUTPUTS; i++)
    if (r->out[i]) hash = hash_bits(hash, r->out[i], output_count(c, i));
  return hash;
}

/* ---- The oracle ---- */

/* The input in float64, one number per channel; the neutral value where it is absent. */
static double *widened(const exact_case *c, int input) {
  exact_case whole = *c;
  whole.per_head[input] = false;
  const size_t count = input_count(&whole, input), channels = (size_t)input_tensor(&whole, input).shape[3];
  const double neutral = input == IN_W ? 1 : 0;
  double *x = test_doubles(count);
  for (size_t i = 0; i < count; i++) x[i] = !c->in[input] ? neutral : (double)c->in[input][c->per_head[input] ? i / channels : i];
  return x;
}

static double *summed(const exact_case *c, int output, const double *whole) {
  const size_t count = output_count(c, output), channels = (size_t)(output == OUT_DW ? c->V : c->K);
  double *sums = test_doubles(count);
  for (size_t i = 0; i < count; i++) {
    sums[i] = 0;
    for (size_t d = 0; d < channels; d++) sums[i] += whole[i * channels + d];
  }
  return sums;
}

oracle oracle_run(const exact_case *c) {
  const double *in[INPUTS];
  oracle want;
  for (int i = 0; i < INPUTS; i++) in[i] = widened(c, i);
  for (int i = 0; i < OUTPUTS; i++) {
    exact_case whole = *c;
    whole.summed[i] = false;
    want.out[i] = test_doubles(output_count(&whole, i));
  }
  const ref_problem p = {.B = c->B,
                         .T = c->T,
                         .H = c->H,
                         .K = c->K,
                         .V = c->V,
                         .q = in[IN_Q],
                         .k = in[IN_K],
                         .v = in[IN_V],
                         .g = in[IN_G],
                         .b = in[IN_B],
                         .w = in[IN_W],
                         .h0 = in[IN_H0],
                         .scale = c->scale ? *c->scale : 1 / sqrt((double)c->K)};
  const ref_gradients grad = {want.out[OUT_DQ], want.out[OUT_DK], want.out[OUT_DV], want.out[OUT_DG],
                              want.out[OUT_DB], want.out[OUT_DW], want.out[OUT_DH0]};
  if (ref_forward(&p, want.out[OUT_O], want.out[OUT_HF]) != 0) fail_msg("the oracle's forward failed");
  if (ref_backward(&p, in[IN_DO], in[IN_DHF], &grad) != 0) fail_msg("the oracle's backward failed");
  for (int i = 0; i < OUTPUTS; i++)
    if (c->summed[i]) want.out[i] = summed(c, i, want.out[i]);
  return want;
}

/* ---- Judgement ---- */

void expect_right(const exact_case *c, const results *r, const oracle *want, double forward, double backward) {
  for (int i = 0; i < OUTPUTS; i++) {
    if (!r->out[i]) continue;
    const tensor t = output_tensor(c, i);
    expect_close(&t, r->out[i], want->out[i], OUT_FORWARD & (1u << i) ? forward : backward);
  }
}

void expect_right_to_unit(const exact_case *c, const results *r, const oracle *want, double bound, double unit) {
  for (int i = 0; i < OUTPUTS; i++) {
    if (!r->out[i]) continue;
    const tensor t = output_tensor(c, i);
    expect_close_to_unit(&t, r->out[i], want->out[i], bound, unit);
  }
}

void expect_equal(const exact_case *c, const results *got, const results *want) {
  for (int i = 0; i < OUTPUTS; i++) {
    if (!got->out[i] || !want->out[i]) continue;
    const tensor t = output_tensor(c, i);
    expect_same_bits(&t, got->out[i], want->out[i]);
  }
}

/* One batch row of a token output, cut to the rows [from, to). */
static tensor rows_of(const exact_case *c, int output, int64_t from, int64_t to) {
  tensor t = output_tensor(c, output);
  t.shape[0] = 1;
  t.shape[1] = to - from;
  return t;
}

static size_t row_offset(const exact_case *c, int output, int64_t b, int64_t t) {
  const tensor whole = output_tensor(c, output);
  return (size_t)((b * c->T + t) * whole.shape[2] * whole.shape[3]);
}

void expect_equal_rows(const exact_case *c, int output, const float *got, const exact_case *d, const float *want, int64_t from,
                       int64_t to) {
  const tensor rows = rows_of(c, output, from, to);
  for (int64_t b = 0; b < c->B; b++)
    expect_same_bits(&rows, got + row_offset(c, output, b, from), want + row_offset(d, output, b, from));
}

void expect_zero_rows(const exact_case *c, int output, const float *got, int64_t from, int64_t to) {
  const tensor rows = rows_of(c, output, from, to);
  for (int64_t b = 0; b < c->B; b++) expect_all_zero(&rows, got + row_offset(c, output, b, from));
}
