/* Making problems of every width. */
#include <math.h>

#include "test.h"
#include "width.h"

static const char *const names[W_INPUTS] = {"q", "k", "v", "g", "b", "w", "h0", "A_log", "dt_bias"};

int64_t width_key_head(const width_case *c, int64_t j) { return c->map == GDN2_HEADS_TILED ? j % c->H : j / (c->HV / c->H); }

static int64_t heads_of(const width_case *c, int input) {
  const bool decays = input == W_G || input == W_A || input == W_DT;
  if (input == W_Q || input == W_K || (decays && c->g_key_heads) || (input == W_B && c->b_key_heads)) return c->H;
  return c->HV;
}

tensor width_tensor(const width_case *c, int input) {
  const int64_t heads = heads_of(c, input), channels = input == W_V || input == W_W ? c->V : c->K;
  if (input == W_H0) return (tensor){names[input], {c->N, c->HV, c->K, c->V}};
  if (input == W_A) return (tensor){names[input], {1, 1, heads, 1}};
  if (input == W_DT) return (tensor){names[input], {1, 1, heads, c->per_head[input] ? 1 : channels}};
  return (tensor){names[input], {c->B, c->T, heads, c->per_head[input] ? 1 : channels}};
}

size_t width_count(const width_case *c, int input) {
  const tensor t = width_tensor(c, input);
  return tensor_count(&t);
}

void width_own(width_case *c, int input) {
  double *copy = test_doubles(width_count(c, input));
  if (width_count(c, input)) memcpy(copy, c->in[input], width_count(c, input) * sizeof *copy);
  c->in[input] = copy;
}

void width_fill(width_case *c, int input, double value) {
  const size_t count = width_count(c, input);
  c->in[input] = test_doubles(count);
  for (size_t i = 0; i < count; i++) c->in[input][i] = width_round(c->dtype[input], value);
}

void width_fill_normal(width_case *c, int input, uint64_t seed, double deviation) {
  rng r = {seed * 1000 + 100 + (uint64_t)input};
  const size_t count = width_count(c, input);
  c->in[input] = test_doubles(count);
  for (size_t i = 0; i < count; i++) c->in[input][i] = width_round(c->dtype[input], deviation * rng_normal(&r));
}

double *width_row(const width_case *c, int input, int64_t b, int64_t t, int64_t h) {
  const tensor x = width_tensor(c, input);
  return c->in[input] + ((b * x.shape[1] + t) * x.shape[2] + h) * x.shape[3];
}

static double *widened(const float *x, size_t count) {
  double *wide = test_doubles(count);
  for (size_t i = 0; i < count; i++) wide[i] = (double)x[i];
  return wide;
}

width_case width_new(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t HV, int64_t K, int64_t V) {
  width_case c = {.B = B, .T = T, .H = H, .HV = HV, .K = K, .V = V, .N = B};
  const exact_case keys = case_trained(seed, B, T, H, K, V), values = case_trained(seed + 1, B, T, HV, K, V);
  for (int i = W_Q; i <= W_H0; i++)
    c.in[i] = i <= W_K ? widened(keys.in[i], width_count(&c, i)) : widened(values.in[i], width_count(&c, i));
  return c;
}

/* Each row of `channels` keeps its first `kept` elements; of each token the first `heads` rows. */
static double *shrunk(const double *x, size_t tokens, int64_t heads, int64_t heads_kept, int64_t channels, int64_t kept) {
  double *y = test_doubles(tokens * (size_t)(heads_kept * kept)), *to = y;
  for (size_t t = 0; t < tokens; t++)
    for (int64_t h = 0; h < heads_kept; h++, to += kept)
      if (kept) memcpy(to, x + ((int64_t)t * heads + h) * channels, (size_t)kept * sizeof *y);
  return y;
}

void width_make_per_head(width_case *c, int input) {
  const tensor t = width_tensor(c, input);
  c->in[input] = shrunk(c->in[input], (size_t)(t.shape[0] * t.shape[1]), t.shape[2], t.shape[2], t.shape[3], 1);
  c->per_head[input] = true;
}

void width_make_key_gate(width_case *c, int input) {
  const tensor t = width_tensor(c, input);
  c->in[input] = shrunk(c->in[input], (size_t)(t.shape[0] * t.shape[1]), t.shape[2], c->H, t.shape[3], t.shape[3]);
  *(input == W_G ? &c->g_key_heads : &c->b_key_heads) = true;
}

void width_set_dtype(width_case *c, int input, gdn2_dtype dtype) {
  c->dtype[input] = dtype;
  if (!c->in[input]) return;
  width_own(c, input);
  for (size_t i = 0; i < width_count(c, input); i++) c->in[input][i] = width_round(dtype, c->in[input][i]);
}

void width_set_dtypes(width_case *c, gdn2_dtype dtype) {
  for (int i = W_Q; i <= W_W; i++) width_set_dtype(c, i, dtype);
}

void width_make_raw_decay(width_case *c, gdn2_decay decay, uint64_t seed) {
  rng r = {seed};
  c->decay = decay;
  c->lower_bound = -5;
  width_fill_normal(c, W_G, seed, 2);
  width_fill_normal(c, W_DT, seed, 1);
  c->in[W_A] = test_doubles(width_count(c, W_A));
  for (size_t i = 0; i < width_count(c, W_A); i++) c->in[W_A][i] = width_round(GDN2_F32, rng_uniform(&r, -1, 1.5));
}

void width_make_raw_gates(width_case *c, gdn2_gate erase, gdn2_gate write, uint64_t seed) {
  c->erase = erase;
  c->write = write;
  if (erase != GDN2_GATE_GIVEN) width_fill_normal(c, W_B, seed, 1.5);
  if (write != GDN2_GATE_GIVEN) width_fill_normal(c, W_W, seed, 1.5);
}

void width_cut(width_case *c, const int64_t *cu, int64_t N, uint64_t seed) {
  assert_int_equal(c->B, 1);
  c->cu = cu;
  c->N = N;
  if (c->in[W_H0]) width_fill_normal(c, W_H0, seed, 0.5);
}

width_case width_sequence(const width_case *c, int64_t n) {
  width_case part = *c;
  const int64_t b = c->cu ? 0 : n, start = c->cu ? c->cu[n] : 0, stop = c->cu ? c->cu[n + 1] : c->T;
  part.B = part.N = 1;
  part.T = stop - start;
  part.cu = NULL;
  for (int i = W_Q; i <= W_H0; i++) {
    if (!c->in[i]) continue;
    const tensor t = width_tensor(c, i);
    const size_t row = (size_t)(t.shape[2] * t.shape[3]), count = width_count(&part, i);
    const double *from = c->in[i] + (i == W_H0 ? (size_t)(n * t.shape[1]) * row : (size_t)(b * c->T + start) * row);
    part.in[i] = test_doubles(count);
    if (count) memcpy(part.in[i], from, count * sizeof *from);
  }
  return part;
}

width_case width_repeated(const width_case *c) {
  width_case whole = *c;
  whole.H = c->HV;
  whole.g_key_heads = whole.b_key_heads = false;
  for (int i = 0; i < W_INPUTS; i++) {
    if (!c->in[i] || i == W_H0 || heads_of(c, i) == c->HV) continue;
    const tensor t = width_tensor(c, i);
    whole.in[i] = test_doubles(width_count(&whole, i));
    for (int64_t b = 0; b < t.shape[0]; b++)
      for (int64_t s = 0; s < t.shape[1]; s++)
        for (int64_t j = 0; j < c->HV; j++)
          memcpy(width_row(&whole, i, b, s, j), width_row(c, i, b, s, width_key_head(c, j)), (size_t)t.shape[3] * sizeof(double));
  }
  return whole;
}
