#include "seed_case.h"

#include "test.h"

static tensor chunked(const seed_case *c, const char *name, int64_t rows, int64_t columns) {
  return (tensor){name, {c->call.B * c->call.H, c->chunks, rows, columns}};
}
tensor seed_scores(const seed_case *c, const char *name) { return chunked(c, name, c->config.bt, c->config.bt); }
tensor seed_keys(const seed_case *c, const char *name) { return chunked(c, name, c->config.bt, c->call.K); }
tensor seed_values(const seed_case *c, const char *name) { return chunked(c, name, c->config.bt, c->call.V); }
tensor seed_states(const seed_case *c, const char *name) { return chunked(c, name, c->call.K, c->call.V); }
tensor seed_last(const seed_case *c, const char *name) { return chunked(c, name, 1, c->call.K); }
tensor seed_state(const seed_case *c, const char *name) { return (tensor){name, {c->call.B, c->call.H, c->call.K, c->call.V}}; }
tensor seed_key_tokens(const seed_case *c, const char *name) {
  return (tensor){name, {c->call.B, c->call.L, c->call.H, c->call.K}};
}
tensor seed_value_tokens(const seed_case *c, const char *name) {
  return (tensor){name, {c->call.B, c->call.L, c->call.H, c->call.V}};
}

float *seed_array(tensor t) { return test_floats(tensor_count(&t)); }

double *seed_wide(const float *x, tensor t) {
  const size_t count = tensor_count(&t);
  double *y = test_doubles(count);
  for (size_t i = 0; i < count; i++) y[i] = (double)x[i];
  return y;
}

enum fill { NORMAL, GATE, DECAY };

static float *filled(rng *r, tensor t, enum fill fill, double strongest) {
  const size_t count = tensor_count(&t);
  float *x = test_floats(count);
  for (size_t i = 0; i < count; i++)
    x[i] = (float)(fill == NORMAL ? rng_normal(r)
                   : fill == GATE ? rng_uniform(r, 0.05, 0.95)
                                  : -exp(rng_uniform(r, log(1e-3), log(strongest))));
  return x;
}

/* Unit rows; a row is half of its head's first row. */
static void resemble(const seed_case *c, float *k) {
  const int64_t L = c->call.L, H = c->call.H, K = c->call.K;
  for (int64_t row = 0; row < c->call.B * L * H; row++) {
    const int64_t first = (row / (L * H) * L * H + row % H) * K;
    double length = 0;
    for (int64_t d = 0; d < K; d++) {
      if (row * K != first) k[row * K + d] = 0.5f * k[row * K + d] + k[first + d];
      length += (double)k[row * K + d] * (double)k[row * K + d];
    }
    for (int64_t d = 0; d < K && row * K != first; d++) k[row * K + d] /= (float)sqrt(length);
  }
  for (int64_t row = 0; row < c->call.B * L * H; row++)
    for (int64_t d = 0; d < K && row % (L * H) < H; d++) k[row * K + d] /= (float)sqrt((double)K);
}

void seed_case_init(seed_case *c, uint64_t seed, const int64_t sizes[5], gdn2_seed_config config, double strongest) {
  rng r = {seed};
  *c = (seed_case){.config = config, .scale = 0.25};
  c->call = (gdn2_seed_call){.struct_size = sizeof c->call,
                             .B = sizes[0],
                             .L = sizes[1],
                             .H = sizes[2],
                             .K = sizes[3],
                             .V = sizes[4],
                             .config = &c->config,
                             .scale = &c->scale};
  c->chunks = (sizes[1] + config.bt - 1) / config.bt;
  const tensor keys = seed_key_tokens(c, "keys"), values = seed_value_tokens(c, "values"), state = seed_state(c, "state");
  float *k = filled(&r, keys, NORMAL, 0);
  resemble(c, k);
  c->in = (gdn2_seed_inputs){.q = filled(&r, keys, NORMAL, 0),
                             .k = k,
                             .v = filled(&r, values, NORMAL, 0),
                             .w = filled(&r, values, GATE, 0),
                             .b = filled(&r, keys, GATE, 0),
                             .g = filled(&r, keys, DECAY, strongest),
                             .h0 = filled(&r, state, NORMAL, 0)};
  c->d_o = filled(&r, values, NORMAL, 0);
  c->dh_final = filled(&r, state, NORMAL, 0);
  c->made = (gdn2_seed_residuals){.Aqk = seed_array(seed_scores(c, "Aqk")),
                                  .Akk = seed_array(seed_scores(c, "Akk")),
                                  .A = seed_array(seed_scores(c, "A")),
                                  .h_pre_all = seed_array(seed_states(c, "h_pre_all")),
                                  .v_new_all = seed_array(seed_values(c, "v_new_all")),
                                  .u = seed_array(seed_values(c, "u")),
                                  .w_pseudo = seed_array(seed_keys(c, "w_pseudo")),
                                  .kg = seed_array(seed_keys(c, "kg")),
                                  .qg = seed_array(seed_keys(c, "qg")),
                                  .gc_last = seed_array(seed_last(c, "gc_last"))};
  c->o = seed_array(values);
  c->h_final = seed_array(state);
}
