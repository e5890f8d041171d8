/* Solving problems of every width: by the library, by the oracle; and judging the one by the other. */
#include <math.h>

#include "ref.h"
#include "test.h"
#include "width.h"

/* ---- The library ---- */

tensor width_o_tensor(const width_case *c) { return (tensor){"o", {c->B, c->T, c->HV, c->V}}; }
tensor width_h_tensor(const width_case *c) { return (tensor){"h_final", {c->N, c->HV, c->K, c->V}}; }

gdn2_states width_snapshots_new(const width_case *c, int64_t moments, gdn2_dtype dtype, bool by_rows) {
  const size_t count = (size_t)(c->B * moments * c->HV * c->K * c->V);
  gdn2_states s = {.data = test_floats((count + (dtype != GDN2_F32)) / (dtype == GDN2_F32 ? 1 : 2)), .dtype = dtype};
  const int64_t head = c->K * c->V,
                stride[5] = {moments * c->HV * head, c->HV * head, head, by_rows ? 1 : c->V, by_rows ? c->K : 1};
  memcpy(s.stride, stride, sizeof stride);
  return s;
}

static void *offsets_of(const width_case *c) {
  if (!c->cu) return NULL;
  const size_t count = (size_t)c->N + 1;
  int32_t *narrow = (int32_t *)(void *)test_floats(c->cu_type == GDN2_I64 ? 0 : count);
  int64_t *wide = (int64_t *)(void *)test_doubles(c->cu_type == GDN2_I64 ? count : 0);
  for (size_t n = 0; n < count; n++)
    if (c->cu_type == GDN2_I64)
      wide[n] = c->cu[n];
    else
      narrow[n] = (int32_t)c->cu[n];
  void *offsets = c->cu_type == GDN2_I64 ? (void *)wide : narrow;
  test_lock(offsets);
  return offsets;
}

static gdn2_problem problem_of(const width_case *c, const width_call *call) {
  gdn2_problem p = {.B = c->B, .T = c->T, .H = c->H, .K = c->K, .V = c->V, .scale = c->scale};
  gdn2_input *const inputs[W_INPUTS] = {&p.q, &p.k, &p.v, &p.g, &p.b, &p.w, &p.h0, &p.A_log, &p.dt_bias};
  const int count = c->decay == GDN2_DECAY_LOG ? W_A : W_INPUTS; /* parameters are those of a raw decay */
  for (int i = 0; i < count; i++)
    if (c->in[i]) *inputs[i] = width_input(&call->in[i]);
  p.HV = c->HV;
  p.map = c->map;
  p.g_key_heads = c->g_key_heads;
  p.b_key_heads = c->b_key_heads;
  p.cu_seqlens = call->cu;
  p.cu_seqlens_type = c->cu_type;
  p.N = c->cu ? c->N : 0;
  p.decay = c->decay;
  p.lower_bound = c->decay == GDN2_DECAY_BOUNDED ? c->lower_bound : 0;
  p.erase = c->erase;
  p.write = c->write;
  p.qk_l2norm = c->l2norm;
  return p;
}

width_call width_call_new(const width_case *c, gdn2_dtype o_dtype, const width_layout *layout) {
  width_call call = {.cu = offsets_of(c)};
  for (int i = 0; i < W_INPUTS; i++) {
    if (!c->in[i]) continue;
    call.in[i] = width_buffer_new(width_tensor(c, i), c->dtype[i], layout, i == W_H0, c->per_head[i]);
    width_buffer_store(&call.in[i], c->in[i]);
    test_lock(call.in[i].base);
  }
  call.o = width_buffer_new(width_o_tensor(c), o_dtype, layout, false, false);
  call.h_final = width_buffer_new(width_h_tensor(c), o_dtype == GDN2_F64 ? GDN2_F64 : GDN2_F32, layout, true, false);
  call.args = (gdn2_forward_args){.struct_size = sizeof call.args,
                                  .problem = problem_of(c, &call),
                                  .o = width_output(&call.o),
                                  .h_final = width_output(&call.h_final)};
  return call;
}

width_result width_call_run(const width_case *c, width_call *call) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  const gdn2_status status = gdn2_forward(&call->args);
  if (status != GDN2_OK) fail_msg("gdn2_forward: %s: %s", gdn2_status_name(status), gdn2_last_error());
  width_buffer_expect_gaps(&call->o);
  width_buffer_expect_gaps(&call->h_final);
  width_result r = {.dtype = call->o.dtype, .o = test_floats(tensor_count(&o)), .h_final = test_floats(tensor_count(&h))};
  if (r.dtype != GDN2_F32) r.bits = (uint16_t *)(void *)test_floats((tensor_count(&o) + 1) / 2);
  width_buffer_load(&call->o, r.o, r.bits);
  width_buffer_load(&call->h_final, r.h_final, NULL);
  return r;
}

width_result width_run_as(const width_case *c, gdn2_dtype o_dtype, const width_layout *layout, gdn2_exec exec) {
  width_call call = width_call_new(c, o_dtype, layout);
  call.args.exec = exec;
  return width_call_run(c, &call);
}

width_result width_run(const width_case *c, gdn2_dtype o_dtype) {
  return width_run_as(c, o_dtype, &width_contiguous, (gdn2_exec){0});
}

/* ---- The oracle ---- */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

static double finished_decay(const width_case *c, int64_t head, int64_t d, double x) {
  if (c->decay == GDN2_DECAY_LOG) return x;
  const double A = exp(c->in[W_A][head]);
  const double bias = c->in[W_DT] ? width_row(c, W_DT, 0, 0, head)[c->per_head[W_DT] ? 0 : d] : 0;
  return c->decay == GDN2_DECAY_SOFTPLUS ? -A * softplus(x + bias) : c->lower_bound * sigmoid(A * (x + bias));
}

static double finished_gate(gdn2_gate form, double x) {
  return form == GDN2_GATE_GIVEN ? x : form == GDN2_GATE_SIGMOID ? sigmoid(x) : 2 * sigmoid(x);
}

/* One number of the finished problem of a whole sequence: value head j, channel d. */
static double finished(const width_case *c, int input, int64_t t, int64_t j, int64_t d) {
  const bool by_key = input <= W_K || (input == W_G && c->g_key_heads) || (input == W_B && c->b_key_heads);
  const int64_t head = by_key ? width_key_head(c, j) : j;
  if (!c->in[input]) return input == W_W ? 1 : 0;
  const double x = width_row(c, input, 0, t, head)[c->per_head[input] ? 0 : d];
  if (input == W_G) return finished_decay(c, head, d, x);
  if (input == W_B || input == W_W) return finished_gate(input == W_B ? c->erase : c->write, x);
  return x;
}

double *width_finished(const width_case *c, int input) {
  const int64_t channels = input == W_V || input == W_W ? c->V : c->K;
  double *array = test_doubles((size_t)(c->T * c->HV * channels)), *to = array;
  for (int64_t t = 0; t < c->T; t++)
    for (int64_t j = 0; j < c->HV; j++, to += channels) {
      double sum = 1e-6;
      for (int64_t d = 0; d < channels; d++) to[d] = finished(c, input, t, j, d), sum += to[d] * to[d];
      for (int64_t d = 0; c->l2norm && input <= W_K && d < channels; d++) to[d] /= sqrt(sum);
    }
  return array;
}

/* One sequence: B = 1, no cu. */
static void solve(const width_case *c, double *o, double *h_final) {
  const ref_problem p = {.B = 1,
                         .T = c->T,
                         .H = c->HV,
                         .K = c->K,
                         .V = c->V,
                         .q = width_finished(c, W_Q),
                         .k = width_finished(c, W_K),
                         .v = width_finished(c, W_V),
                         .g = width_finished(c, W_G),
                         .b = width_finished(c, W_B),
                         .w = width_finished(c, W_W),
                         .h0 = c->in[W_H0],
                         .scale = c->scale ? *c->scale : 1 / sqrt((double)c->K)};
  assert_int_equal(ref_forward(&p, o, h_final), 0);
}

width_truth width_oracle(const width_case *c) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  const width_truth truth = {test_doubles(tensor_count(&o)), test_doubles(tensor_count(&h))};
  for (size_t i = 0; i < tensor_count(&o); i++) truth.o[i] = 0;
  for (int64_t n = 0; n < c->N; n++) {
    const void *mark = test_mark();
    const width_case part = width_sequence(c, n);
    const int64_t start = c->cu ? c->cu[n] : n * c->T;
    solve(&part, truth.o + start * c->HV * c->V, truth.h_final + n * c->HV * c->K * c->V);
    test_release_to(mark);
  }
  return truth;
}

/* ---- The judgement ---- */

double width_rounding_error(gdn2_dtype dtype, const double *want, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    const double error = width_round(dtype, want[i]) - want[i];
    sum += error * error;
  }
  return count ? sqrt(sum / (double)count) / root_mean_square(want, count) : 0;
}

double width_error(const width_case *c, const width_result *got, const width_truth *want) {
  const tensor o = width_o_tensor(c);
  return relative_error(got->o, want->o, tensor_count(&o));
}

void width_expect_right(const width_case *c, const width_result *got, const width_truth *want, double bound) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  const double rounding = got->dtype == GDN2_F32 ? 0 : width_rounding_error(got->dtype, want->o, tensor_count(&o));
  expect_close(&o, got->o, want->o, rounding + bound);
  expect_close(&h, got->h_final, want->h_final, bound);
}

static void expect_same_halves(const tensor *t, const uint16_t *got, const uint16_t *want) {
  for (size_t i = 0; i < tensor_count(t); i++)
    if (got[i] != want[i]) fail_msg("%s: element %zu is %#06x, must be %#06x", t->name, i, got[i], want[i]);
}

void width_expect_equal(const width_case *c, const width_result *got, const width_result *want) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  assert_int_equal(got->dtype, want->dtype);
  if (got->bits)
    expect_same_halves(&o, got->bits, want->bits);
  else
    expect_same_bits(&o, got->o, want->o);
  expect_same_bits(&h, got->h_final, want->h_final);
}

void width_expect_equal_part(const width_case *c, const width_result *got, const width_case *part, const width_result *want,
                             int64_t n) {
  const int64_t start = c->cu ? c->cu[n] : n * c->T, row = c->HV * c->V;
  width_result rows = *got;
  rows.o += start * row;
  if (rows.bits) rows.bits += start * row;
  rows.h_final += n * c->HV * c->K * c->V;
  width_expect_equal(part, &rows, want);
}

void width_expect_rounded(const width_case *c, const width_result *half, const width_result *single) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  for (size_t i = 0; i < tensor_count(&o); i++) {
    const uint16_t want = width_encode(half->dtype, (double)single->o[i]);
    if (half->bits[i] != want)
      fail_msg("o: element %zu is %#06x, must be %#06x, %.9g rounded", i, half->bits[i], want, (double)single->o[i]);
  }
  expect_same_bits(&h, half->h_final, single->h_final);
}
