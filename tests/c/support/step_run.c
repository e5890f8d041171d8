/* Decode: making calls and judging them. */
#include "step.h"
#include "test.h"

const width_layout step_rows = {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 0, 0, 0}, {1, 1, 1, 1}, TEST_AT_END};
const width_layout step_spread = {{0, 1, 2, 3}, {2, 0, 3, 1}, {3, 1, 2, 0}, {-1, 1, -1, 1}, TEST_AT_START};

void *step_indices(const int64_t *values, size_t count, gdn2_index type) {
  int32_t *narrow = (int32_t *)(void *)test_floats(type == GDN2_I64 ? 0 : count);
  int64_t *wide = (int64_t *)(void *)test_doubles(type == GDN2_I64 ? count : 0);
  for (size_t n = 0; n < count; n++)
    if (type == GDN2_I64)
      wide[n] = values[n];
    else
      narrow[n] = (int32_t)values[n];
  return type == GDN2_I64 ? (void *)wide : narrow;
}

static int64_t slot_of(const step_how *how, int64_t n) { return how->slot ? how->slot[n] : n; }

static size_t state_count(const width_case *c) { return (size_t)(c->HV * c->K * c->V); }

static tensor pool_tensor(const width_case *c, const step_how *how, const char *name) {
  return (tensor){name, {how->slots ? how->slots : c->N, c->HV, c->K, c->V}};
}

/* What a slot holds that no row has, and a skipped row must not read. */
static double *pool_numbers(const width_case *c, const step_how *how) {
  const tensor t = pool_tensor(c, how, "pool");
  double *numbers = test_doubles(tensor_count(&t));
  for (int64_t n = 0; n < c->N; n++)
    if (slot_of(how, n) >= 0)
      memcpy(numbers + (size_t)slot_of(how, n) * state_count(c), c->in[W_H0] + (size_t)n * state_count(c),
             state_count(c) * sizeof *numbers);
  return numbers;
}

step_call step_call_new(const width_case *c, gdn2_dtype o_dtype, const step_how *how) {
  step_call call = {.inputs = width_call_new(c, o_dtype, &width_contiguous)};
  call.from =
      width_buffer_new(pool_tensor(c, how, "from"), how->dtype, how->layout ? how->layout : &width_contiguous, true, false);
  if (c->in[W_H0]) width_buffer_store(&call.from, pool_numbers(c, how));
  call.to = how->to ? width_buffer_new(pool_tensor(c, how, "to"), how->to_dtype, how->to, true, false) : call.from;
  if (how->slot) call.slot = step_indices(how->slot, (size_t)c->N, how->slot_type);
  call.args = (gdn2_step_args){.struct_size = sizeof call.args,
                               .problem = call.inputs.args.problem,
                               .o = call.inputs.args.o,
                               .from = width_input(&call.from),
                               .to = width_output(&call.to),
                               .slot = call.slot,
                               .slot_type = how->slot_type,
                               .slots = how->slots,
                               .exec = how->exec};
  call.args.problem.h0 = (gdn2_input){.data = NULL};
  if (!c->in[W_H0]) call.args.from.data = NULL;
  if (how->to && c->in[W_H0]) test_lock(call.from.base);
  return call;
}

width_result step_call_run(const width_case *c, step_call *call, const step_how *how) {
  const gdn2_status status = gdn2_step(&call->args);
  if (status != GDN2_OK) fail_msg("gdn2_step: %s: %s", gdn2_status_name(status), gdn2_last_error());
  const tensor o = width_o_tensor(c), pool = pool_tensor(c, how, "to");
  width_buffer_expect_gaps(&call->inputs.o);
  width_buffer_expect_gaps(&call->to);
  width_result r = {.dtype = call->inputs.o.dtype, .o = test_floats(tensor_count(&o))};
  r.h_final = test_floats((size_t)c->N * state_count(c));
  if (r.dtype != GDN2_F32) r.bits = (uint16_t *)(void *)test_floats((tensor_count(&o) + 1) / 2);
  width_buffer_load(&call->inputs.o, r.o, r.bits);
  float *states = test_floats(tensor_count(&pool));
  width_buffer_load(&call->to, states, NULL);
  for (int64_t n = 0; n < c->N; n++) {
    float *to = r.h_final + (size_t)n * state_count(c);
    const int64_t slot = slot_of(how, n);
    memset(to, 0, state_count(c) * sizeof *to);
    if (slot >= 0) memcpy(to, states + (size_t)slot * state_count(c), state_count(c) * sizeof *to);
  }
  return r;
}

width_result step_run(const width_case *c, gdn2_dtype o_dtype, const step_how *how) {
  step_call call = step_call_new(c, o_dtype, how);
  return step_call_run(c, &call, how);
}

width_case step_tokens(const width_case *c, int64_t first, int64_t count) {
  width_case part = *c;
  part.T = count;
  for (int i = W_Q; i <= W_W; i++) {
    if (!c->in[i]) continue;
    const tensor t = width_tensor(c, i);
    const size_t row = (size_t)(t.shape[2] * t.shape[3]);
    part.in[i] = test_doubles(width_count(&part, i));
    for (int64_t b = 0; b < c->B; b++)
      memcpy(part.in[i] + (size_t)(b * count) * row, c->in[i] + (size_t)(b * c->T + first) * row,
             (size_t)count * row * sizeof(double));
  }
  return part;
}

void step_take_states(width_case *c, const float *states) {
  c->in[W_H0] = test_doubles((size_t)c->N * state_count(c));
  for (size_t i = 0; i < (size_t)c->N * state_count(c); i++) c->in[W_H0][i] = (double)states[i];
}

void step_expect_right(const width_case *c, const width_result *got, const width_truth *want, gdn2_dtype state, double bound) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  const double o_rounding = got->dtype == GDN2_F32 ? 0 : width_rounding_error(got->dtype, want->o, tensor_count(&o));
  const double h_rounding = state == GDN2_F32 ? 0 : width_rounding_error(state, want->h_final, tensor_count(&h));
  expect_close(&o, got->o, want->o, o_rounding + bound);
  expect_close(&h, got->h_final, want->h_final, h_rounding + bound);
}
