/* Gradients by the library, and how they are judged. */
#include <math.h>

#include "gradient.h"
#include "test.h"

static const char *const names[GRADIENTS] = {"dq", "dk", "dv", "dg", "db", "dw", "dh0", "dA_log", "ddt_bias"};

static double *normal(uint64_t seed, size_t count, double deviation) {
  rng r = {seed};
  double *x = test_doubles(count);
  for (size_t i = 0; i < count; i++) x[i] = (double)(float)(deviation * rng_normal(&r));
  return x;
}

gradient_case gradient_of(width_case c, uint64_t seed) {
  gradient_case x = {.c = c, .wanted = GRADIENTS_ALL};
  x.d_o = normal(seed, width_count(&c, W_V), 1);
  x.dh_final = normal(seed + 1, width_count(&c, W_H0), 0.5);
  return x;
}

gradient_case gradient_with_options(uint64_t seed, int64_t B, int64_t T, int64_t K, int64_t V, const int64_t *cu, int64_t N) {
  width_case c = width_new(seed, B, T, 2, 6, K, V);
  width_make_key_gate(&c, W_G);
  width_make_raw_decay(&c, GDN2_DECAY_SOFTPLUS, seed + 1);
  width_make_raw_gates(&c, GDN2_GATE_TWO_SIGMOID, GDN2_GATE_SIGMOID, seed + 2);
  c.l2norm = true;
  if (cu) width_cut(&c, cu, N, seed + 3);
  return gradient_of(c, seed + 4);
}

void gradient_set_type(gradient_case *x, gdn2_dtype type) {
  width_set_dtypes(&x->c, type);
  x->d_o_type = type;
  for (size_t i = 0; i < width_count(&x->c, W_V); i++) x->d_o[i] = width_round(type, x->d_o[i]);
}

bool gradient_has(const gradient_case *x, int gradient) {
  return (x->wanted >> gradient & 1) && (gradient < D_A || x->c.decay != GDN2_DECAY_LOG);
}

tensor gradient_tensor(const gradient_case *x, int gradient) {
  tensor t = width_tensor(&x->c, gradient);
  t.name = names[gradient];
  return t;
}

static double *copy_of(const double *from, size_t count) {
  double *to = test_doubles(count);
  if (count) memcpy(to, from, count * sizeof *to);
  return to;
}

gradient_case gradient_sequence(const gradient_case *x, int64_t n) {
  gradient_case part = *x;
  const int64_t start = x->c.cu ? x->c.cu[n] : n * x->c.T, row = x->c.HV * x->c.V, states = x->c.HV * x->c.K * x->c.V;
  part.c = width_sequence(&x->c, n);
  if (x->d_o) part.d_o = copy_of(x->d_o + start * row, (size_t)(part.c.T * row));
  if (x->dh_final) part.dh_final = copy_of(x->dh_final + n * states, (size_t)states);
  return part;
}

gradient_case gradient_repeated(const gradient_case *x) {
  gradient_case whole = *x;
  whole.c = width_repeated(&x->c);
  return whole;
}

/* ---- The call ---- */

static gdn2_output *output_of(gdn2_backward_args *args, int gradient) {
  gdn2_output *const all[GRADIENTS] = {&args->dq, &args->dk,  &args->dv,     &args->dg,      &args->db,
                                       &args->dw, &args->dh0, &args->dA_log, &args->ddt_bias};
  return all[gradient];
}

static width_buffer given_of(const tensor *t, const double *values, gdn2_dtype type, const width_layout *layout, bool is_state) {
  const width_buffer x = width_buffer_new(*t, type, layout, is_state, false);
  width_buffer_store(&x, values);
  test_lock(x.base);
  return x;
}

gradient_call gradient_call_new(const gradient_case *x, gdn2_dtype type, const width_layout *layout) {
  const width_case *c = &x->c;
  gradient_call call = {.inputs = width_call_new(c, GDN2_F32, layout)};
  const tensor d_o = {"d_o", {c->B, c->T, c->HV, c->V}}, state = {"dh_final", {c->N, c->HV, c->K, c->V}};
  call.args = (gdn2_backward_args){.struct_size = sizeof call.args, .problem = call.inputs.args.problem};
  if (x->d_o) {
    call.d_o = given_of(&d_o, x->d_o, x->d_o_type, layout, false);
    call.args.d_o = width_input(&call.d_o);
  }
  if (x->dh_final) {
    call.dh_final = given_of(&state, x->dh_final, GDN2_F32, layout, true);
    call.args.dh_final = width_input(&call.dh_final);
  }
  for (int i = 0; i < GRADIENTS; i++) {
    if (!gradient_has(x, i)) continue;
    const bool per_head = i != D_H0 && i != D_A && c->per_head[i];
    call.out[i] = width_buffer_new(gradient_tensor(x, i), i < D_H0 ? type : GDN2_F32, layout, i == D_H0, per_head);
    *output_of(&call.args, i) = width_output(&call.out[i]);
  }
  return call;
}

gradients gradient_call_run(const gradient_case *x, gradient_call *call) {
  gradients got = {.values = {NULL}};
  const gdn2_status status = gdn2_backward(&call->args);
  if (status != GDN2_OK) fail_msg("gdn2_backward: %s: %s", gdn2_status_name(status), gdn2_last_error());
  for (int i = 0; i < GRADIENTS; i++) {
    if (!gradient_has(x, i)) continue;
    const size_t count = tensor_count(&call->out[i].t);
    width_buffer_expect_gaps(&call->out[i]);
    got.values[i] = test_floats(count);
    if (call->out[i].dtype != GDN2_F32) got.bits[i] = (uint16_t *)(void *)test_floats((count + 1) / 2);
    width_buffer_load(&call->out[i], got.values[i], got.bits[i]);
  }
  return got;
}

gradients gradient_run_as(const gradient_case *x, gdn2_dtype type, const width_layout *layout, gdn2_exec exec) {
  gradient_call call = gradient_call_new(x, type, layout);
  call.args.exec = exec;
  return gradient_call_run(x, &call);
}

gradients gradient_run(const gradient_case *x) { return gradient_run_as(x, GDN2_F32, &width_contiguous, (gdn2_exec){0}); }

/* ---- The judgement ---- */

void gradient_expect_right(const gradient_case *x, const gradients *got, const gradient_truth *want, double bound) {
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    if (!gradient_has(x, i)) continue;
    if (i >= D_A)
      expect_close_to_unit(&t, got->values[i], want->values[i], bound, want->spread[i]);
    else
      expect_close(&t, got->values[i], want->values[i], bound);
  }
}

void gradient_expect_right_to_unit(const gradient_case *x, const gradients *got, const gradient_truth *want, double bound,
                                   double unit) {
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    if (gradient_has(x, i)) expect_close_to_unit(&t, got->values[i], want->values[i], bound, fmax(unit, want->spread[i]));
  }
}

void gradient_expect_equal(const gradient_case *x, const gradients *got, const gradients *want) {
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    if (got->values[i] && want->values[i]) expect_same_bits(&t, got->values[i], want->values[i]);
  }
}

void gradient_expect_equal_part(const gradient_case *x, const gradients *got, const gradient_case *part, const gradients *alone,
                                int64_t n) {
  const int64_t start = x->c.cu ? x->c.cu[n] : n * x->c.T;
  for (int i = 0; i <= D_H0; i++) {
    if (!got->values[i] || !alone->values[i]) continue;
    const tensor t = gradient_tensor(part, i);
    const int64_t row = t.shape[2] * t.shape[3], first = i == D_H0 ? n * t.shape[1] * row : start * row;
    expect_same_bits(&t, got->values[i] + first, alone->values[i]);
  }
}

void gradient_expect_finite(const gradient_case *x, const gradients *got) {
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    for (size_t n = 0; got->values[i] && n < tensor_count(&t); n++)
      if (!isfinite(got->values[i][n])) fail_msg("%s: element %zu is %g", t.name, n, (double)got->values[i][n]);
  }
}

uint64_t gradient_hash(const gradient_case *x, const gradients *got) {
  uint64_t hash = TEST_HASH;
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    if (got->values[i]) hash = hash_bits(hash, got->values[i], tensor_count(&t));
  }
  return hash;
}
