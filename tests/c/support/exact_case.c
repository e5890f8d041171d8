/* Making problems. */
#include "exact.h"
#include "test.h"

static const char *const input_names[INPUTS] = {"q", "k", "v", "g", "b", "w", "h0", "d_o", "dh_final"};
static const char *const output_names[OUTPUTS] = {"o", "h_final", "dq", "dk", "dv", "dg", "db", "dw", "dh0"};

static bool is_state(int input) { return input == IN_H0 || input == IN_DHF; }

/* The input whose shape an output has. */
static int twin(int output) {
  static const int twins[OUTPUTS] = {IN_V, IN_H0, IN_Q, IN_K, IN_V, IN_G, IN_B, IN_W, IN_H0};
  return twins[output];
}

static int64_t width(const exact_case *c, int input) {
  const bool by_value = input == IN_V || input == IN_W || input == IN_DO;
  return by_value ? c->V : c->K;
}

static tensor make_tensor(const exact_case *c, const char *name, int input, bool per_head) {
  if (is_state(input)) return (tensor){name, {c->B, c->H, c->K, c->V}};
  return (tensor){name, {c->B, c->T, c->H, per_head ? 1 : width(c, input)}};
}

tensor input_tensor(const exact_case *c, int input) { return make_tensor(c, input_names[input], input, c->per_head[input]); }

tensor output_tensor(const exact_case *c, int output) {
  return make_tensor(c, output_names[output], twin(output), c->summed[output]);
}

size_t input_count(const exact_case *c, int input) {
  const tensor t = input_tensor(c, input);
  return tensor_count(&t);
}

size_t output_count(const exact_case *c, int output) {
  const tensor t = output_tensor(c, output);
  return tensor_count(&t);
}

float *case_row(const exact_case *c, int input, int64_t b, int64_t t, int64_t h) {
  const int64_t channels = c->per_head[input] ? 1 : width(c, input);
  return c->in[input] + ((b * c->T + t) * c->H + h) * channels;
}

void case_fill(exact_case *c, int input, double value) {
  const size_t count = input_count(c, input);
  for (size_t i = 0; i < count; i++) c->in[input][i] = (float)value;
}

void case_fill_normal(exact_case *c, int input, uint64_t seed, double deviation) {
  rng r = {seed * 1000 + (uint64_t)input};
  const size_t count = input_count(c, input);
  for (size_t i = 0; i < count; i++) c->in[input][i] = (float)(deviation * rng_normal(&r));
}

void case_fill_unit(exact_case *c, int input, int64_t step) {
  case_fill(c, input, 0);
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t t = 0; t < c->T; t++)
      for (int64_t h = 0; h < c->H; h++) case_row(c, input, b, t, h)[t * step % width(c, input)] = 1;
}

static void fill_sigmoid(exact_case *c, int input, uint64_t seed) {
  rng r = {seed * 1000 + (uint64_t)input};
  const size_t count = input_count(c, input);
  for (size_t i = 0; i < count; i++) c->in[input][i] = (float)(1 / (1 + exp(-1.5 * rng_normal(&r))));
}

static void normalise(double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  for (int64_t i = 0; i < n; i++) x[i] /= sqrt(sum);
}

/* The next key: 0.8 of the last one and 0.6 of a random direction, to unit length. */
static void step_key(rng *r, double *key, int64_t n) {
  double fresh[GDN2_MAX_DIM];
  for (int64_t i = 0; i < n; i++) fresh[i] = rng_normal(r);
  normalise(fresh, n);
  for (int64_t i = 0; i < n; i++) key[i] = 0.8 * key[i] + 0.6 * fresh[i];
  normalise(key, n);
}

static void fill_keys(exact_case *c, uint64_t seed) {
  rng r = {seed * 1000 + IN_K};
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++) {
      double key[GDN2_MAX_DIM] = {0}, query[GDN2_MAX_DIM];
      for (int64_t t = 0; t < c->T; t++) {
        step_key(&r, key, c->K);
        for (int64_t d = 0; d < c->K; d++) query[d] = rng_normal(&r);
        normalise(query, c->K);
        for (int64_t d = 0; d < c->K; d++) {
          case_row(c, IN_K, b, t, h)[d] = (float)key[d];
          case_row(c, IN_Q, b, t, h)[d] = (float)query[d];
        }
      }
    }
}

static float decay(rng *r, double magnitude, bool by_channel) {
  if (!by_channel) return (float)-exp(rng_uniform(r, log(1e-3), log(20)));
  return (float)-fmin(20, fmax(1e-3, exp(magnitude + 0.5 * rng_normal(r))));
}

static void fill_decays(exact_case *c, uint64_t seed) {
  rng r = {seed * 1000 + IN_G};
  for (int64_t b = 0; b < c->B; b++)
    for (int64_t h = 0; h < c->H; h++)
      for (int64_t d = 0; d < c->K; d++) {
        const double magnitude = rng_uniform(&r, log(1e-3), log(20));
        for (int64_t t = 0; t < c->T; t++) case_row(c, IN_G, b, t, h)[d] = decay(&r, magnitude, h % 2 == 0);
      }
}

exact_case case_trained(uint64_t seed, int64_t B, int64_t T, int64_t H, int64_t K, int64_t V) {
  exact_case c = {.B = B, .T = T, .H = H, .K = K, .V = V};
  for (int i = 0; i < INPUTS; i++) {
    c.in[i] = test_floats(input_count(&c, i));
    case_fill_normal(&c, i, seed, is_state(i) ? 0.5 : 1);
  }
  fill_keys(&c, seed);
  fill_decays(&c, seed);
  fill_sigmoid(&c, IN_B, seed);
  fill_sigmoid(&c, IN_W, seed);
  return c;
}

void case_make_per_head(exact_case *c, int input) {
  const int64_t channels = width(c, input);
  float *whole = c->in[input];
  c->per_head[input] = true;
  c->summed[input == IN_G ? OUT_DG : input == IN_B ? OUT_DB : OUT_DW] = true;
  const size_t count = input_count(c, input);
  c->in[input] = test_floats(count);
  for (size_t i = 0; i < count; i++) c->in[input][i] = whole[i * (size_t)channels];
}

/* Copies [b0, b1) x [t0, t1) of c. */
static exact_case copy_part(const exact_case *c, int64_t b0, int64_t b1, int64_t t0, int64_t t1) {
  exact_case part = *c;
  part.B = b1 - b0;
  part.T = t1 - t0;
  for (int i = 0; i < INPUTS; i++) {
    if (!c->in[i]) continue;
    const tensor t = input_tensor(c, i);
    const int64_t row = t.shape[2] * t.shape[3], skip = is_state(i) ? 0 : t0, rows = is_state(i) ? t.shape[1] : part.T;
    part.in[i] = test_floats(input_count(&part, i));
    for (int64_t b = b0; b < b1; b++)
      memcpy(part.in[i] + (b - b0) * rows * row, c->in[i] + (b * t.shape[1] + skip) * row, (size_t)(rows * row) * sizeof(float));
  }
  return part;
}

exact_case case_copy(const exact_case *c) { return copy_part(c, 0, c->B, 0, c->T); }
exact_case case_tokens(const exact_case *c, int64_t from, int64_t to) { return copy_part(c, 0, c->B, from, to); }
exact_case case_batch_row(const exact_case *c, int64_t b) { return copy_part(c, b, b + 1, 0, c->T); }
