/* The norm: cases, calls, and the loop in float64. */
#include <math.h>

#include "layer.h"
#include "test.h"

static const char *const in_names[] = {"x", "z", "weight", "dy"};
static const char *const out_names[] = {"y", "dx", "dz", "dweight"};

static tensor shaped(const norm_case *c, const char *name, int is_row) {
  if (is_row) return (tensor){name, {1, 1, 1, c->D}};
  return (tensor){name, {c->B, c->T, c->H, c->D}};
}
tensor norm_in_tensor(const norm_case *c, int input) { return shaped(c, in_names[input], input == N_WEIGHT); }
tensor norm_out_tensor(const norm_case *c, int output) { return shaped(c, out_names[output], output == N_DWEIGHT); }

norm_case norm_new(uint64_t seed, gdn2_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t D) {
  norm_case c = {.B = B, .T = T, .H = H, .D = D, .eps = 1e-3};
  rng r = {seed};
  for (int i = 0; i < N_INPUTS; i++) {
    const tensor t = norm_in_tensor(&c, i);
    c.dtype[i] = c.out_dtype[i] = dtype;
    c.in[i] = layer_normal(&r, dtype, tensor_count(&t), i == N_X ? 2.0 : 1.0);
  }
  return c;
}

static gdn2_input place_input(const norm_case *c, int input) {
  if (!c->in[input]) return (gdn2_input){.data = NULL};
  const slab x = slab_new(norm_in_tensor(c, input), c->dtype[input], input == N_WEIGHT ? NULL : c->layout);
  slab_put(&x, c->in[input]);
  test_lock(x.base);
  return slab_input(&x);
}

static void expect_ok(gdn2_status status) {
  if (status != GDN2_OK) fail_msg("%s: %s", gdn2_status_name(status), gdn2_last_error());
}

static void call_backward(const norm_case *c, const gdn2_norm_problem *p, const slab *out, gdn2_exec exec) {
  gdn2_norm_backward_args args = {.struct_size = sizeof args, .problem = *p, .exec = exec};
  args.dy = place_input(c, N_DY);
  args.dx = slab_output(&out[N_DX]);
  args.dz = slab_output(&out[N_DZ]);
  args.dweight = slab_output(&out[N_DWEIGHT]);
  expect_ok(gdn2_norm_backward_workspace(&args, &args.exec.workspace_bytes));
  args.exec.workspace = test_workspace(args.exec.workspace_bytes);
  expect_ok(gdn2_norm_backward(&args));
}

norm_result norm_run_some(const norm_case *c, unsigned wanted, gdn2_exec exec) {
  norm_result r = {{NULL}};
  slab out[N_OUTPUTS];
  const gdn2_norm_problem p = {.B = c->B,
                               .T = c->T,
                               .H = c->H,
                               .D = c->D,
                               .gate = c->gate,
                               .plus_one = c->plus_one,
                               .eps = c->eps,
                               .x = place_input(c, N_X),
                               .z = place_input(c, N_Z),
                               .weight = place_input(c, N_WEIGHT)};
  for (int i = 0; i < N_OUTPUTS; i++) {
    out[i] = (slab){.first = NULL};
    if (i == N_DZ && !c->in[N_Z]) wanted &= ~(1u << N_DZ);
    if (wanted >> i & 1) out[i] = slab_new(norm_out_tensor(c, i), c->out_dtype[i], i == N_DWEIGHT ? NULL : c->layout);
  }
  if (wanted & 1) {
    const gdn2_norm_forward_args args = {sizeof args, p, slab_output(&out[N_Y]), exec};
    expect_ok(gdn2_norm_forward(&args));
  }
  if (wanted >> 1) call_backward(c, &p, out, exec);
  for (int i = 0; i < N_OUTPUTS; i++) {
    if (!(wanted >> i & 1)) continue;
    slab_expect_gaps(&out[i]);
    r.out[i] = slab_get(&out[i]);
  }
  return r;
}

norm_result norm_run(const norm_case *c, gdn2_exec exec) { return norm_run_some(c, (1u << N_OUTPUTS) - 1, exec); }

/* ---- The loop ---- */

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

static double weight_at(const norm_case *c, int64_t m) { return (c->in[N_WEIGHT] ? c->in[N_WEIGHT][m] : 1) + c->plus_one; }

static double gate_at(const norm_case *c, int64_t i) {
  if (!c->in[N_Z]) return 1;
  return sigmoid(c->in[N_Z][i]) * (c->gate == GDN2_NORM_SILU ? c->in[N_Z][i] : 1);
}

static double slope_at(const norm_case *c, int64_t i, norm_fault fault) {
  const double z = c->in[N_Z][i], s = sigmoid(z), curve = fault == NORM_NO_SLOPE ? 0 : s * sigmoid(-z);
  return c->gate == GDN2_NORM_SILU ? s + z * curve : curve;
}

static double root_of(const norm_case *c, norm_fault fault, const double *x) {
  double sum = 0;
  const double eps = fault == NORM_NO_EPS ? 0 : c->eps == 0 ? 1e-6 : c->eps;
  for (int64_t m = 0; m < c->D; m++) sum += x[m] * x[m];
  return 1 / sqrt(sum / (fault == NORM_SUM ? 1 : (double)c->D) + eps);
}

static void loop_row(const norm_case *c, norm_fault fault, int64_t row, norm_result *r) {
  const int64_t D = c->D, i = row * D;
  double x[D], dn[D], mean = 0;
  for (int64_t m = 0; m < D; m++) x[m] = c->in[N_X][i + m] * (fault == NORM_GATE_FIRST ? gate_at(c, i + m) : 1);
  const double root = root_of(c, fault, x);
  for (int64_t m = 0; m < D; m++) {
    const double gate = fault == NORM_GATE_FIRST ? 1 : gate_at(c, i + m), n = x[m] * root;
    const double dy = c->in[N_DY] ? c->in[N_DY][i + m] : 0;
    r->out[N_Y][i + m] = n * weight_at(c, m) * gate;
    r->out[N_DWEIGHT][m] += dy * gate * n;
    r->out[N_DZ][i + m] = c->in[N_Z] ? dy * n * weight_at(c, m) * slope_at(c, i + m, fault) : 0;
    dn[m] = dy * weight_at(c, m) * gate;
    mean += dn[m] * n / (double)D;
  }
  if (fault == NORM_NO_MEAN) mean = 0;
  for (int64_t m = 0; m < D; m++) r->out[N_DX][i + m] = root * (dn[m] - x[m] * root * mean);
}

norm_result norm_loop(const norm_case *c, norm_fault fault) {
  norm_result r;
  for (int i = 0; i < N_OUTPUTS; i++) {
    const tensor t = norm_out_tensor(c, i);
    r.out[i] = test_doubles(tensor_count(&t));
    for (size_t e = 0; e < tensor_count(&t); e++) r.out[i][e] = 0;
  }
  for (int64_t row = 0; row < c->B * c->T * c->H; row++) loop_row(c, fault, row, &r);
  return r;
}

void norm_expect_right(const norm_case *c, const norm_result *got, const norm_result *want) {
  for (int i = 0; i < N_OUTPUTS; i++) {
    if (!got->out[i]) continue;
    /* As in conv_expect_right. */
    const double bound = layer_bound(c->out_dtype[i]) * (i == N_DWEIGHT ? 4 : 1);
    layer_expect_close(norm_out_tensor(c, i), c->out_dtype[i], got->out[i], want->out[i], bound);
  }
}

void norm_expect_equal(const norm_case *c, const norm_result *got, const norm_result *want) {
  for (int i = 0; i < N_OUTPUTS; i++)
    if (got->out[i] && want->out[i]) layer_expect_equal(norm_out_tensor(c, i), got->out[i], want->out[i]);
}
