/* The random numbers and the initial values of lm/: published and pinned numbers, an independent restatement, and statistics. */
#include "lm_support.h"
#include "lm/params.h"
#include "lm/random.h"
#include <stdlib.h>

/* The first outputs of SplitMix64 from state 0, as published with it. */
static void stream_zero_is_splitmix64(void **state) {
  (void)state;
  const uint64_t published[] = {UINT64_C(0xE220A8397B1DCDAF), UINT64_C(0x6E789E6AA1B965F4), UINT64_C(0x06C45D188009454F)};
  for (uint64_t i = 0; i < 3; i++) assert_true(lm_random_bits(0, 0, i) == published[i]);
}

/* The sequential form of the generator: a state that moves by the golden ratio. */
static uint64_t splitmix(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z ^= z >> 30, z *= UINT64_C(0xBF58476D1CE4E5B9);
  z ^= z >> 27, z *= UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

/* mix(z): one step of the generator from the state before z. */
static uint64_t mixed(uint64_t z) {
  uint64_t before = z - UINT64_C(0x9E3779B97F4A7C15);
  return splitmix(&before);
}

static uint64_t stream_start(uint64_t seed, uint64_t stream) { return mixed(mixed(seed) + stream); }

/* A model of one layer of odd sizes with the initial values of a seed. */
typedef struct sample {
  lm_params params;
  float *value;
} sample;

static sample make_sample(int64_t layers, uint64_t seed) {
  sample s;
  const lm_config config = {
      .vocabulary = 256, .layers = layers, .d_model = 45, .heads = 64, .head_dim = 5, .d_mlp = 7, .conv_width = 4};
  assert_int_equal(lm_params_create(&s.params, &config), 0);
  s.value = malloc((size_t)s.params.floats * sizeof *s.value);
  assert_non_null(s.value);
  lm_params_init(&s.params, s.value, seed);
  return s;
}

static void free_sample(sample *s) {
  free(s->value);
  lm_params_free(&s->params);
}

static const float *data_of(const sample *s, lm_param_id id) { return lm_param_at(&s->params, s->value, 0, id); }

/* Every projection and the embedding: 0.02 times the sum of twelve 16-bit numbers about its mean. Equal bits. */
static void assert_normal_parameter(const lm_param *p, const float *data, uint64_t seed, uint64_t stream) {
  uint64_t at = stream_start(seed, stream);
  for (int64_t i = 0; i < p->count; i++) {
    int64_t sum = 0;
    for (int draw = 0; draw < 3; draw++)
      for (uint64_t bits = splitmix(&at), field = 0; field < 4; field++, bits >>= 16) sum += (int64_t)(bits & 65535);
    float want = 0.02f * (float)((double)(sum - 393210) / 65536);
    if (data[i] != want) fail_msg("%s[%d]: %.9g, not %.9g", p->name, (int)i, data[i], want);
  }
}

/* A parameter whose value is a function of one uniform number. */
static void assert_uniform_parameter(const lm_param *p, const float *data, uint64_t seed, uint64_t stream,
                                     double (*value)(double)) {
  uint64_t at = stream_start(seed, stream);
  for (int64_t i = 0; i < p->count; i++) {
    double want = value(ldexp((double)(splitmix(&at) >> 12) + 0.5, -52));
    if (!(fabs(data[i] - want) <= 1e-7 * fabs(want) + 1e-9)) fail_msg("%s[%d]: %.9g, not %.9g", p->name, (int)i, data[i], want);
  }
}

static double log_of_A(double u) { return log(1 * (1 - u) + 16 * u); }
static double inverse_softplus_of_dt(double u) { return log(expm1(pow(10, -3 + 2 * u))); }
static double tap(double u) { return u - 0.5; }

static int is_one(lm_param_id id) { return id == LM_ATTN_NORM || id == LM_MLP_NORM || id == LM_O_NORM || id == LM_NORM; }

/* The streams are those of the header: the kind's number, and 4096 more for each layer. */
static void initial_values_restated(void **state) {
  (void)state;
  const uint64_t seed = 20260521;
  sample s = make_sample(2, seed);
  for (int64_t n = 0; n < s.params.count; n++) {
    const lm_param *p = &s.params.list[n];
    const float *data = s.value + p->offset;
    const uint64_t stream = 4096 * (uint64_t)p->layer + p->id;
    if (p->id == 12)
      assert_uniform_parameter(p, data, seed, stream, log_of_A);
    else if (p->id == 13)
      assert_uniform_parameter(p, data, seed, stream, inverse_softplus_of_dt);
    else if (p->id >= 5 && p->id <= 7)
      assert_uniform_parameter(p, data, seed, stream, tap);
    else if (is_one(p->id) || p->id == LM_G_BIAS)
      for (int64_t i = 0; i < p->count; i++) assert_true(data[i] == (float)is_one(p->id));
    else
      assert_normal_parameter(p, data, seed, stream);
  }
  free_sample(&s);
}

/* Numbers written down: a change of the generator, of a stream or of a rule changes them. */
static void initial_values_pinned(void **state) {
  (void)state;
  sample s = make_sample(1, 1);
  const float q_proj[] = {-0.0020812987f, 0.010819091f, -0.00076110836f, -0.014839782f};
  const float A_log[] = {1.947769066695214f, 2.150882486991276f, 2.18488736101722f};
  for (int i = 0; i < 4; i++) assert_true(fabsf(data_of(&s, LM_Q_PROJ)[i] - q_proj[i]) < 2e-9f);
  for (int i = 0; i < 3; i++) assert_true(fabsf(data_of(&s, LM_A_LOG)[i] - A_log[i]) < 3e-7f);
  free_sample(&s);
}

static void same_seed_same_values(void **state) {
  (void)state;
  sample one = make_sample(2, 7), two = make_sample(2, 7), other = make_sample(2, 8);
  assert_memory_equal(one.value, two.value, (size_t)one.params.floats * sizeof(float));
  for (int64_t n = 0; n < one.params.count; n++) {
    const lm_param *p = &one.params.list[n];
    int64_t equal = 0;
    for (int64_t i = p->offset; i < p->offset + p->count; i++) equal += one.value[i] == other.value[i];
    assert_true(is_one(p->id) || p->id == LM_G_BIAS || equal < p->count / 20 + 1);
  }
  free_sample(&one), free_sample(&two), free_sample(&other);
}

/* What one product computes lies together: the rows of the joined projection, of the taps, of the MLP's input. */
static void joined_parameters_follow_each_other(void **state) {
  (void)state;
  for (int rule = 0; rule < LM_RULES; rule++) {
    lm_params p;
    const lm_config c = {
        .vocabulary = 256, .layers = 2, .d_model = 9, .heads = 3, .head_dim = 5, .d_mlp = 7, .conv_width = 4, .rule = rule};
    assert_int_equal(lm_params_create(&p, &c), 0);
    const int64_t *at = p.offset[1];
    const lm_columns *columns = &p.columns;
    const struct {
      lm_param_id id;
      int64_t column;
    } joined[] = {{LM_B_PROJ, columns->b},
                  {LM_W_PROJ, columns->w},
                  {LM_A_PROJ, columns->a},
                  {LM_F_PROJ_0, columns->f},
                  {LM_G_PROJ_0, columns->g}};
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++)
      if (at[joined[i].id] >= 0) assert_int_equal(at[joined[i].id] - at[LM_Q_PROJ], joined[i].column * 9);
    assert_int_equal(columns->total, columns->g + 5);
    assert_int_equal(at[LM_V_CONV] - at[LM_Q_CONV], 2 * 15 * 4);
    assert_int_equal(at[LM_UP_PROJ] - at[LM_GATE_PROJ], 7 * 9);
    lm_params_free(&p);
  }
}

typedef struct statistics {
  double mean, deviation, low, high;
} statistics;

static statistics statistics_of(const float *x, int64_t count, double (*map)(double)) {
  statistics s = {0, 0, INFINITY, -INFINITY};
  for (int64_t i = 0; i < count; i++) {
    double value = map ? map(x[i]) : x[i];
    s.mean += value / (double)count, s.deviation += value * value / (double)count;
    s.low = fmin(s.low, value), s.high = fmax(s.high, value);
  }
  s.deviation = sqrt(s.deviation - s.mean * s.mean);
  return s;
}

static double log_of_softplus(double x) { return log(log1p(exp(x))); }

/* Means and deviations lie within about four standard errors of what the published distributions have. */
static void distributions_are_the_published_ones(void **state) {
  (void)state;
  sample s = make_sample(1, 3);
  statistics A = statistics_of(data_of(&s, LM_A_LOG), 64, exp);
  assert_true(A.low > 1 && A.high < 16 && fabs(A.mean - 8.5) < 2.2 && fabs(A.deviation - 4.33) < 1.1);
  statistics dt = statistics_of(data_of(&s, LM_DT_BIAS), 320, log_of_softplus);
  assert_true(dt.low > log(0.000999) && dt.high < log(0.1001));
  assert_true(fabs(dt.mean - log(0.01)) < 0.3 && fabs(dt.deviation - log(100) / sqrt(12)) < 0.15);
  statistics conv = statistics_of(data_of(&s, LM_V_CONV), 1280, NULL);
  assert_true(conv.low >= -0.5 && conv.high <= 0.5 && fabs(conv.mean) < 0.033 && fabs(conv.deviation - 0.2887) < 0.012);
  statistics weight = statistics_of(data_of(&s, LM_B_PROJ), 320 * 45, NULL);
  assert_true(fabs(weight.mean) < 7e-4 && fabs(weight.deviation - 0.02) < 5e-4);
  assert_true(weight.low < -0.06 && weight.low >= -0.12 && weight.high > 0.06 && weight.high <= 0.12);
  free_sample(&s);
}

/* Neighbouring elements, streams and seeds have nothing in common. */
static void draws_are_uncorrelated(void **state) {
  (void)state;
  enum { COUNT = 20000 };
  double element = 0, stream = 0, seed = 0;
  for (uint64_t i = 0; i < COUNT; i++) {
    double here = lm_random_normal(5, 2, i);
    element += here * lm_random_normal(5, 2, i + 1) / (double)COUNT;
    stream += here * lm_random_normal(5, 3, i) / (double)COUNT;
    seed += here * lm_random_normal(6, 2, i) / (double)COUNT;
  }
  const double four_errors = 4 / sqrt(COUNT);
  assert_true(fabs(element) < four_errors && fabs(stream) < four_errors && fabs(seed) < four_errors);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stream_zero_is_splitmix64),
      cmocka_unit_test(initial_values_restated),
      cmocka_unit_test(initial_values_pinned),
      cmocka_unit_test(same_seed_same_values),
      cmocka_unit_test(joined_parameters_follow_each_other),
      cmocka_unit_test(distributions_are_the_published_ones),
      cmocka_unit_test(draws_are_uncorrelated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
