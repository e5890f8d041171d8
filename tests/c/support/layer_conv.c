/* The convolution: cases, calls, and the loop in float64. */
#include <math.h>

#include "layer.h"
#include "test.h"

static const char *const in_names[] = {"x", "weight", "bias", "state", "dy", "dstate_final"};
static const char *const out_names[] = {"y", "state_final", "dx", "dweight", "dbias", "dstate"};

static tensor shaped(const conv_case *c, const char *name, char kind) {
  if (kind == 't') return (tensor){name, {c->B, c->T, 1, c->D}};
  if (kind == 'w') return (tensor){name, {1, 1, c->D, c->W}};
  if (kind == 's') return (tensor){name, {c->N, 1, c->D, c->W - 1}};
  return (tensor){name, {1, 1, 1, c->D}};
}
static char in_kind(int input) { return "twbsts"[input]; }
static char out_kind(int output) { return "tstwbs"[output]; }
tensor conv_in_tensor(const conv_case *c, int input) { return shaped(c, in_names[input], in_kind(input)); }
tensor conv_out_tensor(const conv_case *c, int output) { return shaped(c, out_names[output], out_kind(output)); }

static void draw(conv_case *c, int input, rng *r) {
  const tensor t = conv_in_tensor(c, input);
  c->in[input] = layer_normal(r, c->dtype[input], tensor_count(&t), input == C_WEIGHT ? 0.7 : 1.0);
}

conv_case conv_new(uint64_t seed, gdn2_dtype dtype, int64_t B, int64_t T, int64_t D, int64_t W, int silu) {
  conv_case c = {.B = B, .T = T, .D = D, .W = W, .silu = silu, .N = B};
  rng r = {seed};
  for (int i = 0; i < C_INPUTS; i++) c.dtype[i] = c.out_dtype[i] = dtype;
  for (int i = 0; i < C_INPUTS; i++) draw(&c, i, &r);
  return c;
}

void conv_cut(conv_case *c, const int64_t *cu, int64_t N, uint64_t seed) {
  rng r = {seed};
  c->cu = cu;
  c->N = N;
  if (c->in[C_STATE]) draw(c, C_STATE, &r);
  if (c->in[C_DLAST]) draw(c, C_DLAST, &r);
}

void conv_range(const conv_case *c, int64_t n, int64_t *batch, int64_t *start, int64_t *length) {
  *batch = c->cu ? 0 : n;
  *start = c->cu ? c->cu[n] : 0;
  *length = c->cu ? c->cu[n + 1] - c->cu[n] : c->T;
}

static double *copy(const double *from, size_t count) {
  double *to = test_doubles(count);
  if (count) memcpy(to, from, count * sizeof *to);
  return to;
}

/* Tokens start .. start+T-1 of `rows` rows from row `batch` on. */
static conv_case cut_out(const conv_case *c, int64_t batch, int64_t rows, int64_t start, int64_t T) {
  conv_case d = *c;
  d.B = d.N = rows;
  d.T = T;
  d.cu = NULL;
  for (int i = 0; i < C_INPUTS; i++) {
    if (in_kind(i) != 't' || !c->in[i]) continue;
    d.in[i] = test_doubles((size_t)(rows * T * c->D));
    for (int64_t b = 0; b < rows && T > 0; b++)
      memcpy(d.in[i] + b * T * c->D, c->in[i] + ((batch + b) * c->T + start) * c->D, (size_t)(T * c->D) * sizeof(double));
  }
  return d;
}

conv_case conv_sequence(const conv_case *c, int64_t n) {
  int64_t batch, start, length;
  conv_range(c, n, &batch, &start, &length);
  conv_case d = cut_out(c, batch, 1, start, length);
  const int64_t size = c->D * (c->W - 1);
  if (c->in[C_STATE]) d.in[C_STATE] = copy(c->in[C_STATE] + n * size, (size_t)size);
  if (c->in[C_DLAST]) d.in[C_DLAST] = copy(c->in[C_DLAST] + n * size, (size_t)size);
  return d;
}

conv_case conv_tokens(const conv_case *c, int64_t from, int64_t to) { return cut_out(c, 0, c->B, from, to - from); }

/* ---- Calls ---- */

static const slab_layout *layout_of(const conv_case *c, char kind) {
  return kind == 't' ? c->tokens : kind == 'b' ? NULL : c->grids;
}

static gdn2_input place_input(const conv_case *c, int input) {
  if (!c->in[input]) return (gdn2_input){.data = NULL};
  const slab x = slab_new(conv_in_tensor(c, input), c->dtype[input], layout_of(c, in_kind(input)));
  slab_put(&x, c->in[input]);
  test_lock(x.base);
  return slab_input(&x);
}

static const void *place_cu(const conv_case *c) {
  if (!c->cu) return NULL;
  int64_t *wide = (int64_t *)(void *)test_doubles((size_t)(c->N + 1));
  int32_t *narrow = (int32_t *)(void *)wide;
  for (int64_t n = 0; n <= c->N; n++)
    if (c->cu_type == GDN2_I64)
      wide[n] = c->cu[n];
    else
      narrow[n] = (int32_t)c->cu[n];
  test_lock(wide);
  return wide;
}

static gdn2_conv_problem problem_of(const conv_case *c) {
  return (gdn2_conv_problem){.B = c->B,
                             .T = c->T,
                             .D = c->D,
                             .W = c->W,
                             .silu = c->silu,
                             .x = place_input(c, C_X),
                             .weight = place_input(c, C_WEIGHT),
                             .bias = place_input(c, C_BIAS),
                             .state = place_input(c, C_STATE),
                             .cu_seqlens = place_cu(c),
                             .cu_seqlens_type = c->cu_type,
                             .N = c->N};
}

static void expect_ok(gdn2_status status) {
  if (status != GDN2_OK) fail_msg("%s: %s", gdn2_status_name(status), gdn2_last_error());
}

static void call_backward(const conv_case *c, const gdn2_conv_problem *p, const slab *out, gdn2_exec exec) {
  gdn2_conv_backward_args args = {.struct_size = sizeof args, .problem = *p, .exec = exec};
  args.dy = place_input(c, C_DY);
  args.dstate_final = place_input(c, C_DLAST);
  args.dx = slab_output(&out[C_DX]);
  args.dweight = slab_output(&out[C_DWEIGHT]);
  args.dbias = slab_output(&out[C_DBIAS]);
  args.dstate = slab_output(&out[C_DSTATE]);
  expect_ok(gdn2_conv_backward_workspace(&args, &args.exec.workspace_bytes));
  if (args.exec.workspace_bytes) args.exec.workspace = test_workspace(args.exec.workspace_bytes);
  expect_ok(gdn2_conv_backward(&args));
}

conv_result conv_run_some(const conv_case *c, unsigned wanted, gdn2_exec exec) {
  conv_result r = {{NULL}};
  slab out[C_OUTPUTS];
  const gdn2_conv_problem p = problem_of(c);
  for (int i = 0; i < C_OUTPUTS; i++) {
    out[i] = (slab){.first = NULL};
    if (wanted >> i & 1) out[i] = slab_new(conv_out_tensor(c, i), c->out_dtype[i], layout_of(c, out_kind(i)));
  }
  if (wanted & 3) {
    const gdn2_conv_forward_args args = {sizeof args, p, slab_output(&out[C_Y]), slab_output(&out[C_LAST]), exec};
    expect_ok(gdn2_conv_forward(&args));
  }
  if (wanted >> 2) call_backward(c, &p, out, exec);
  for (int i = 0; i < C_OUTPUTS; i++) {
    if (!(wanted >> i & 1)) continue;
    slab_expect_gaps(&out[i]);
    r.out[i] = slab_get(&out[i]);
  }
  return r;
}

conv_result conv_run(const conv_case *c, gdn2_exec exec) { return conv_run_some(c, (1u << C_OUTPUTS) - 1, exec); }
conv_result conv_run_forward(const conv_case *c, gdn2_exec exec) { return conv_run_some(c, 3, exec); }

/* ---- The loop ---- */

/* One channel of one sequence: all its inputs in a row, the W-1 before the first token in front. */
typedef struct channel {
  const conv_case *c;
  conv_fault fault;
  int64_t n, d, batch, start, T;
} channel;

static double *token(const channel *k, double *x, int64_t t) { return x + (k->batch * k->c->T + k->start + t) * k->c->D + k->d; }
static int64_t grid(const channel *k, int64_t i) { return (k->n * k->c->D + k->d) * (k->c->W - 1) + i; }

static double input_at(const channel *k, int64_t t) {
  const conv_case *c = k->c;
  const int64_t i = t + c->W - 1;
  if (t >= 0) return *token(k, c->in[C_X], t);
  if (!c->in[C_STATE] || k->fault == CONV_STATE_IGNORED) return 0;
  return c->in[C_STATE][grid(k, k->fault == CONV_STATE_REVERSED ? c->W - 2 - i : i)];
}

static double tap(const channel *k, int64_t j) {
  return k->c->in[C_WEIGHT][k->d * k->c->W + (k->fault == CONV_TAPS_REVERSED ? k->c->W - 1 - j : j)];
}

static double z_at(const channel *k, int64_t t) {
  double z = k->c->in[C_BIAS] && k->fault != CONV_NO_BIAS ? k->c->in[C_BIAS][k->d] : 0;
  for (int64_t j = 0; j < k->c->W; j++) z += tap(k, j) * input_at(k, t - (k->c->W - 1) + j);
  return z;
}

static double dz_at(const channel *k, int64_t t) {
  const double dy = k->c->in[C_DY] ? *token(k, k->c->in[C_DY], t) : 0, z = z_at(k, t), s = 1 / (1 + exp(-z));
  if (!k->c->silu) return dy;
  return dy * (k->fault == CONV_NO_SLOPE ? s : s + z * s * (1 - s));
}

static void loop_forward(const channel *k, conv_result *r) {
  const int64_t W = k->c->W, early = k->fault == CONV_LAST_TOO_EARLY;
  for (int64_t t = 0; t < k->T; t++) {
    const double z = z_at(k, t);
    *token(k, r->out[C_Y], t) = k->c->silu ? z / (1 + exp(-z)) : z;
  }
  for (int64_t i = 0; i < W - 1; i++) {
    const int64_t t = k->T - (W - 1) + i - early;
    r->out[C_LAST][grid(k, i)] = t < 1 - W ? 0 : input_at(k, t);
  }
}

/* Every input scatters what it gets to all that it touched. */
static void loop_backward(const channel *k, conv_result *r) {
  const int64_t W = k->c->W;
  double dx[k->T + W - 1]; /* the inputs of the state in front */
  for (int64_t i = 0; i < k->T + W - 1; i++) dx[i] = 0;
  for (int64_t t = 0; t < k->T; t++) {
    const double dz = dz_at(k, t);
    for (int64_t j = 0; j < W; j++) {
      dx[t + j] += tap(k, j) * dz;
      r->out[C_DWEIGHT][k->d * W + j] += dz * input_at(k, t - (W - 1) + j);
    }
    r->out[C_DBIAS][k->d] += dz;
  }
  for (int64_t i = 0; k->c->in[C_DLAST] && i < W - 1; i++) dx[k->T + i] += k->c->in[C_DLAST][grid(k, i)];
  for (int64_t i = 0; i < W - 1; i++) r->out[C_DSTATE][grid(k, i)] = dx[i];
  for (int64_t t = 0; t < k->T; t++) *token(k, r->out[C_DX], t) = dx[t + W - 1];
}

conv_result conv_loop(const conv_case *c, conv_fault fault) {
  conv_result r;
  for (int i = 0; i < C_OUTPUTS; i++) {
    const tensor t = conv_out_tensor(c, i);
    r.out[i] = test_doubles(tensor_count(&t));
    for (size_t e = 0; e < tensor_count(&t); e++) r.out[i][e] = 0;
  }
  for (int64_t n = 0; n < c->N; n++)
    for (int64_t d = 0; d < c->D; d++) {
      channel k = {.c = c, .fault = fault, .n = n, .d = d};
      conv_range(c, n, &k.batch, &k.start, &k.T);
      loop_forward(&k, &r);
      loop_backward(&k, &r);
    }
  return r;
}

void conv_expect_right(const conv_case *c, const conv_result *got, const conv_result *want) {
  for (int i = 0; i < C_OUTPUTS; i++) {
    if (!got->out[i]) continue;
    const tensor t = conv_out_tensor(c, i);
    /* Hundreds of numbers of either sign are added up: their roundings are a random walk, and what they belong to may be less. */
    const double bound = layer_bound(c->out_dtype[i]) * (i == C_DWEIGHT || i == C_DBIAS ? 4 : 1);
    layer_expect_close(t, c->out_dtype[i], got->out[i], want->out[i], bound);
  }
}

void conv_expect_equal(const conv_case *c, const conv_result *got, const conv_result *want) {
  for (int i = 0; i < C_OUTPUTS; i++)
    if (got->out[i] && want->out[i]) layer_expect_equal(conv_out_tensor(c, i), got->out[i], want->out[i]);
}
