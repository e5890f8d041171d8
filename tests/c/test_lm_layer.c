/* The layer as a whole against a float64 restatement that shares no code with it, and what must hold for any weights. */
#include "lm_support.h"
#include "lm/layer.h"
#include <stdbool.h>
#include <stdlib.h>

enum { T = 37, D = 20, H = 3, K = 7, N = H * K, W = 4 };
static const lm_config config = {.d_model = D, .heads = H, .head_dim = K, .conv_width = W};

typedef struct fixture {
  lm_layer layer;
  lm_acts acts;
  uint8_t bytes[T];
} fixture;

/* Weights large enough that every nonlinearity bends: the published ones are small for a layer this narrow. */
static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  if (!f || lm_layer_create(&f->layer, &config) || lm_acts_create(&f->acts, &config, T)) return -1;
  lm_layer_init(&f->layer, 11);
  const lm_param_id scaled[] = {LM_Q_PROJ, LM_K_PROJ, LM_V_PROJ, LM_F_PROJ_0, LM_F_PROJ_1, LM_B_PROJ, LM_W_PROJ};
  for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
    lm_param *p = &f->layer.param[scaled[i]];
    for (int64_t j = 0; j < p->shape[0] * p->shape[1]; j++) p->data[j] *= 20;
  }
  fill(f->layer.param[LM_ATTN_NORM].data, D, 16, 2);
  for (int t = 0; t < T; t++) f->bytes[t] = (uint8_t)(t * 151 + 7);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  lm_acts_free(&f->acts), lm_layer_free(&f->layer);
  free(f);
  return 0;
}

/* The restatement, in float64. One token's normalised embedding. */
static void exact_norm(double n[D], const lm_layer *layer, uint8_t byte) {
  const float *x = layer->param[LM_EMBEDDINGS].data + byte * D;
  double mean = 1e-6;
  for (int d = 0; d < D; d++) mean += (double)x[d] * x[d] / D;
  for (int d = 0; d < D; d++) n[d] = x[d] / sqrt(mean) * layer->param[LM_ATTN_NORM].data[d];
}

static double dot(const double *x, const float *row, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += x[i] * row[i];
  return sum;
}

/* Channel c of silu(conv(n W^T)) at token t, from its definition. */
static double exact_branch(const lm_layer *layer, double (*n)[D], int t, int c, lm_param_id proj, lm_param_id conv) {
  double y = 0;
  for (int delay = 0; delay < W && delay <= t; delay++)
    y += layer->param[conv].data[c * W + W - 1 - delay] * dot(n[t - delay], layer->param[proj].data + c * D, D);
  return y / (1 + exp(-y));
}

typedef struct exact {
  double q[T * N], k[T * N], v[T * N], g[T * N], b[T * N], w[T * N];
} exact;

static void normalise(double *x) {
  double sum = 1e-6;
  for (int i = 0; i < K; i++) sum += x[i] * x[i];
  for (int i = 0; i < K; i++) x[i] /= sqrt(sum);
}

static double exact_gate(const lm_layer *layer, const double *n, int c) {
  double f = 0;
  for (int r = 0; r < K; r++) f += layer->param[LM_F_PROJ_1].data[c * K + r] * dot(n, layer->param[LM_F_PROJ_0].data + r * D, D);
  return -exp(layer->param[LM_A_LOG].data[c / K]) * log1p(exp(f + layer->param[LM_DT_BIAS].data[c]));
}

static void restate(exact *e, const lm_layer *layer, const uint8_t *bytes) {
  double n[T][D];
  for (int t = 0; t < T; t++) exact_norm(n[t], layer, bytes[t]);
  for (int t = 0; t < T; t++) {
    for (int c = 0; c < N; c++) {
      int at = t * N + c;
      e->q[at] = exact_branch(layer, n, t, c, LM_Q_PROJ, LM_Q_CONV);
      e->k[at] = exact_branch(layer, n, t, c, LM_K_PROJ, LM_K_CONV);
      e->v[at] = exact_branch(layer, n, t, c, LM_V_PROJ, LM_V_CONV);
      e->g[at] = exact_gate(layer, n[t], c);
      e->b[at] = 1 / (1 + exp(-dot(n[t], layer->param[LM_B_PROJ].data + c * D, D)));
      e->w[at] = 1 / (1 + exp(-dot(n[t], layer->param[LM_W_PROJ].data + c * D, D)));
    }
    for (int h = 0; h < H; h++) normalise(e->q + t * N + h * K), normalise(e->k + t * N + h * K);
  }
}

static void layer_is_its_equations(void **state) {
  fixture *f = *state;
  static exact e;
  restate(&e, &f->layer, f->bytes);
  lm_layer_forward(&f->layer, &f->acts, f->bytes);
  const struct {
    const char *name;
    const float *got;
    const double *want;
  } tensors[] = {{"q", f->acts.q, e.q}, {"k", f->acts.k, e.k}, {"v", f->acts.v, e.v},
                 {"g", f->acts.g, e.g}, {"b", f->acts.b, e.b}, {"w", f->acts.w, e.w}};
  for (size_t i = 0; i < 6; i++) assert_near(tensors[i].name, tensors[i].got, tensors[i].want, T * N, 1e-6);
}

/* One wrong weight of any parameter moves some output by far more than the bound above: none is left out or misplaced. */
static void every_parameter_matters(void **state) {
  fixture *f = *state;
  static exact e;
  restate(&e, &f->layer, f->bytes);
  for (int id = 0; id < LM_PARAMS; id++) {
    float *value = f->layer.param[id].data;
    if (id == LM_EMBEDDINGS) value += f->bytes[3] * D;
    const float kept = *value;
    *value = kept + 0.5f;
    lm_layer_forward(&f->layer, &f->acts, f->bytes);
    double worst = 0;
    const float *got[] = {f->acts.q, f->acts.k, f->acts.v, f->acts.g, f->acts.b, f->acts.w};
    const double *want[] = {e.q, e.k, e.v, e.g, e.b, e.w};
    for (int i = 0; i < 6; i++) worst = fmax(worst, relative_l2(got[i], want[i], T * N));
    if (!(worst > 1e-4)) fail_msg("%s: moved by %.3g only", f->layer.param[id].name, worst);
    *value = kept;
  }
}

static void outputs_are_in_range(void **state) {
  fixture *f = *state;
  lm_layer_forward(&f->layer, &f->acts, f->bytes);
  for (int i = 0; i < T * N; i++) {
    assert_true(f->acts.g[i] < 0 && f->acts.b[i] > 0 && f->acts.b[i] < 1 && f->acts.w[i] > 0 && f->acts.w[i] < 1);
  }
  for (int row = 0; row < T * H; row++) {
    double q = 0, k = 0;
    for (int i = row * K; i < (row + 1) * K; i++) {
      q += (double)f->acts.q[i] * f->acts.q[i];
      k += (double)f->acts.k[i] * f->acts.k[i];
    }
    assert_true(fabs(q - 1) < 1e-3 && fabs(k - 1) < 1e-3);
  }
}

/* Bits before token t do not depend on the bytes from t on, and the bits at t do. */
static void later_bytes_change_nothing_before(void **state) {
  fixture *f = *state;
  lm_acts changed;
  assert_int_equal(lm_acts_create(&changed, &config, T), 0);
  lm_layer_forward(&f->layer, &f->acts, f->bytes);
  for (int t = 0; t < T; t++) {
    uint8_t bytes[T];
    for (int s = 0; s < T; s++) bytes[s] = (uint8_t)(f->bytes[s] ^ (s >= t ? 0x55 : 0));
    lm_layer_forward(&f->layer, &changed, bytes);
    const float *one[] = {f->acts.q, f->acts.k, f->acts.v, f->acts.g, f->acts.b, f->acts.w};
    const float *two[] = {changed.q, changed.k, changed.v, changed.g, changed.b, changed.w};
    for (int i = 0; i < 6; i++) {
      assert_memory_equal(one[i], two[i], (size_t)(t * N) * sizeof(float));
      assert_memory_not_equal(one[i] + t * N, two[i] + t * N, N * sizeof(float));
    }
  }
  lm_acts_free(&changed);
}

/* Fewer tokens than the convolution is wide, down to one: the first tokens of the long run. */
static void short_texts_are_prefixes(void **state) {
  fixture *f = *state;
  static exact e;
  restate(&e, &f->layer, f->bytes);
  for (int length = 1; length <= W; length++) {
    lm_acts few;
    assert_int_equal(lm_acts_create(&few, &config, length), 0);
    lm_layer_forward(&f->layer, &few, f->bytes);
    assert_near("q", few.q, e.q, length * N, 1e-6);
    assert_near("v", few.v, e.v, length * N, 1e-6);
    assert_near("g", few.g, e.g, length * N, 1e-6);
    lm_acts_free(&few);
  }
}

static void impossible_sizes_are_named(void **state) {
  (void)state;
  const int64_t huge = INT64_MAX;
  const struct {
    lm_config config;
    int64_t tokens;
    const char *names;
  } cases[] = {
      {{D, H, K, W}, 0, "tokens"},         {{D, H, K, W}, -1, "tokens"},           {{D, H, K, W}, huge, "tokens"},
      {{0, H, K, W}, T, "model"},          {{huge, H, K, W}, T, "model"},          {{D, 0, K, W}, T, "heads"},
      {{D, -1, K, W}, T, "heads"},         {{D, huge, K, W}, T, "heads"},          {{D, H, 0, W}, T, "head size"},
      {{D, H, 257, W}, T, "head size"},    {{D, H, INT64_MIN, W}, T, "head size"}, {{D, H, K, 0}, T, "convolution"},
      {{D, H, K, huge}, T, "convolution"},
  };
  assert_null(lm_config_fault(&config, T));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *fault = lm_config_fault(&cases[i].config, cases[i].tokens);
    assert_non_null(fault);
    assert_non_null(strstr(fault, cases[i].names));
  }
}

/* The largest sizes that have no fault: the memory is refused, nothing is leaked, and freeing nothing is allowed. */
static void too_large_is_refused(void **state) {
  (void)state;
  const lm_config large = {.d_model = 65536, .heads = 256, .head_dim = 256, .conv_width = 4};
  assert_null(lm_config_fault(&large, INT64_C(1) << 28));
  lm_acts acts = {.memory = NULL};
  assert_int_equal(lm_acts_create(&acts, &large, INT64_C(1) << 28), -1);
  lm_acts_free(&acts), lm_acts_free(&acts);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(layer_is_its_equations, set_up, tear_down),
      cmocka_unit_test_setup_teardown(every_parameter_matters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(outputs_are_in_range, set_up, tear_down),
      cmocka_unit_test_setup_teardown(later_bytes_change_nothing_before, set_up, tear_down),
      cmocka_unit_test_setup_teardown(short_texts_are_prefixes, set_up, tear_down),
      cmocka_unit_test(impossible_sizes_are_named),
      cmocka_unit_test(too_large_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
