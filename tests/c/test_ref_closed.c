/* test_ref_closed.c - the oracle where the answer is known beforehand: closed forms, resets, the older rules of the family. */
#include "ref_sample.h"

/* One key channel, S0 = 1, halved, read, erased: nothing is left. Reading before the decay would leave -1/2. */
static void order_of_the_steps(void **state) {
  (void)state;
  const double q = 1, k = 1, v = 0, g = log(0.5), b = 1, w = 1, h0 = 1;
  const ref_problem p = {1, 1, 1, 1, 1, &q, &k, &v, &g, &b, &w, &h0, 1};
  for (int64_t C = 0; C < 2; C++) {
    double o = NAN, h = NAN;
    forward(&p, C, &o, &h);
    assert_true(fabs(o) < 1e-16 && fabs(h) < 1e-16);
  }
}

/* One key for all tokens, k = q = e0, scale 1, no decay, no state before: the start of several closed forms. */
static sample one_key(int64_t T, double b, double w) {
  sample s = sample_new(1, T, 1, 3, 2);
  s.p.h0 = NULL;
  s.p.scale = 1;
  fill(s.in.x[KEY], s.count[KEY], 0);
  strew(s.in.x[KEY], s.count[KEY], 0, 3, 1);
  memcpy(s.in.x[Q], s.in.x[KEY], (size_t)s.count[Q] * sizeof(double));
  fill(s.in.x[G], s.count[G], 0);
  fill(s.in.x[ERASE], s.count[ERASE], b);
  fill(s.in.x[WRITE], s.count[WRITE], w);
  return s;
}

/* b = w = 1: each value replaces the one before. With integers: exactly, in both forms. */
static void repeated_key_replaces(void **state) {
  (void)state;
  sample s = one_key(64, 1, 1);
  for (int64_t i = 0; i < s.count[VALUE]; i++) s.in.x[VALUE][i] = (double)(i * 7 % 19 - 9);
  double o[128], h[6], expected[6] = {0};
  memcpy(expected, s.in.x[VALUE] + 126, 2 * sizeof(double));
  for (int f = 0; f < FORMS; f++) {
    forward(&s.p, forms[f], o, h);
    assert_equal("o", 128, o, s.in.x[VALUE]);
    assert_equal("h_final", 6, h, expected);
  }
  sample_free(&s);
}

/* b = w = 2, v = 1: the state jumps between 2 and 0. */
static void overshooting_erase_alternates(void **state) {
  (void)state;
  sample s = one_key(64, 2, 2);
  fill(s.in.x[VALUE], s.count[VALUE], 1);
  double o[128], expected[128];
  for (int64_t i = 0; i < 128; i++) expected[i] = i / 2 % 2 ? 0 : 2;
  for (int f = 0; f < FORMS; f++) {
    forward(&s.p, forms[f], o, NULL);
    assert_equal("o", 128, o, expected);
  }
  sample_free(&s);
}

/* b = 0, w = v = 1, g = c: a geometric series. */
static void constant_decay_sums_a_series(void **state) {
  (void)state;
  const double decays[] = {-0.01, -0.5, -3, -88, -1000};
  sample s = one_key(64, 0, 1);
  fill(s.in.x[VALUE], s.count[VALUE], 1);
  for (int n = 0; n < 5; n++) {
    double o[128], expected[128];
    fill(s.in.x[G], s.count[G], decays[n]);
    for (int t = 0; t < 64; t++) expected[2 * t] = expected[2 * t + 1] = expm1(decays[n] * (t + 1)) / expm1(decays[n]);
    for (int f = 0; f < FORMS; f++) {
      forward(&s.p, forms[f], o, NULL);
      assert_close("o", 128, o, expected, 1e-14);
    }
  }
  sample_free(&s);
}

/* k = 0: the state only decays. Also tells natural logarithms from binary ones. */
static void without_keys_the_state_decays(void **state) {
  (void)state;
  sample s = sample_new(1, 20, 1, 3, 2);
  fill(s.in.x[KEY], s.count[KEY], 0);
  for (int64_t i = 0; i < s.count[G]; i++) s.in.x[G][i] = -0.01 * (double)(1 + i % 3);
  tensors r = tensors_new(&s);
  double o[40], h[6], o_true[40] = {0}, h_true[6], dh0[6], dg[60];
  for (int64_t x = 0; x < 6; x++) {
    const double g = s.in.x[G][x / 2];
    h_true[x] = exp(20 * g) * s.in.x[STATE][x];
    dh0[x] = exp(20 * g) * s.dh_final[x];
    for (int64_t t = 0; t < 20; t++)
      o_true[t * 2 + x % 2] += s.p.scale * s.in.x[Q][t * 3 + x / 2] * exp((double)(t + 1) * g) * s.in.x[STATE][x];
  }
  for (int64_t i = 0; i < 60; i++)
    dg[i] = s.dh_final[i % 3 * 2] * h_true[i % 3 * 2] + s.dh_final[i % 3 * 2 + 1] * h_true[i % 3 * 2 + 1];
  for (int f = 0; f < FORMS; f++) {
    forward(&s.p, forms[f], o, h);
    assert_close("o", 40, o, o_true, 1e-14);
    assert_close("h_final", 6, h, h_true, 1e-14);
    backward(&s.p, forms[f], NULL, s.dh_final, &r);
    assert_close("dh0", 6, r.x[STATE], dh0, 1e-14);
    assert_close("dg", 60, r.x[G], dg, 1e-14);
  }
  tensors_free(&r);
  sample_free(&s);
}

/* The problem from token t on, with no state before it (B = H = 1). */
static ref_problem rest_of(const sample *s, int64_t t) {
  ref_problem p = s->p;
  p.T -= t, p.h0 = NULL;
  p.q += t * p.K, p.k += t * p.K, p.g += t * p.K, p.b += t * p.K;
  p.v += t * p.V, p.w += t * p.V;
  return p;
}

/* g = -inf on all channels at token p: what follows is a fresh start, and nothing flows back across it. */
static void reset_is_a_fresh_start(void **state) {
  (void)state;
  const int64_t places[] = {0, 1, 15, 16, 31, 32, 39};
  for (int n = 0; n < 7; n++) {
    sample s = sample_new(1, 40, 1, 5, 4);
    const int64_t t = places[n], before = t * s.p.V, after = s.outputs - before;
    fill(s.in.x[G] + t * s.p.K, s.p.K, -INFINITY);
    fill(s.d_o, before, 0);
    const ref_problem rest = rest_of(&s, t);
    tensors r = tensors_new(&s);
    double o[160], o_rest[160], h[20], h_rest[20];
    forward(&rest, 0, o_rest, h_rest);
    for (int f = 0; f < FORMS; f++) {
      forward(&s.p, forms[f], o, h);
      if (forms[f] == 0) {
        assert_equal("o after the reset", after, o + before, o_rest);
        assert_equal("h_final", 20, h, h_rest);
      }
      assert_close("o after the reset", after, o + before, o_rest, 1e-13);
      assert_close("h_final", 20, h, h_rest, 1e-13);
      backward(&s.p, forms[f], s.d_o, s.dh_final, &r);
      assert_zero("dh0", s.count[STATE], r.x[STATE]);
      for (int i = Q; i < STATE; i++) assert_zero(names[i], t * (s.count[i] / s.p.T), r.x[i]);
      assert_zero("dg at the reset", s.p.K, r.x[G] + t * s.p.K);
      assert_true(isfinite(norm(s.count[KEY], r.x[KEY])) && norm(s.count[KEY], r.x[KEY]) > 0.1);
    }
    tensors_free(&r);
    sample_free(&s);
  }
}

/* Without a state before it, the first token has nothing to decay and nothing to erase; no state is a state of zeros. */
static void first_token_has_nothing_to_erase(void **state) {
  (void)state;
  sample s = sample_new(1, 7, 1, 5, 4);
  tensors r = tensors_new(&s), zeros = tensors_new(&s);
  for (int f = 0; f < FORMS; f++) {
    s.p.h0 = NULL;
    backward(&s.p, forms[f], s.d_o, s.dh_final, &r);
    assert_zero("dg of the first token", s.p.K, r.x[G]);
    assert_zero("db of the first token", s.p.K, r.x[ERASE]);
    assert_true(norm(s.count[G], r.x[G]) > 0.1 && norm(s.count[ERASE], r.x[ERASE]) > 0.1);
    s.p.h0 = s.in.x[STATE];
    fill(s.in.x[STATE], s.count[STATE], 0);
    backward(&s.p, forms[f], s.d_o, s.dh_final, &zeros);
    for (int i = 0; i < INPUTS; i++) assert_equal(names[i], s.count[i], r.x[i], zeros.x[i]);
  }
  tensors_free(&r);
  tensors_free(&zeros);
  sample_free(&s);
}

/* S = (I - beta k k^T) diag(alpha) S + beta k v^T with explicit matrices: the rule of KDA, Gated DeltaNet and DeltaNet.
 * B = H = 1, K = 5, V = 4; beta is read from channel 0. */
static void classic_delta_rule(const sample *s, double *o) {
  double S[5][4], next[5][4];
  memcpy(S, s->in.x[STATE], sizeof S);
  memset(o, 0, (size_t)s->outputs * sizeof(double));
  for (int64_t t = 0; t < s->p.T; t++) {
    const double *k = s->in.x[KEY] + t * 5, *g = s->in.x[G] + t * 5, *v = s->in.x[VALUE] + t * 4, beta = s->in.x[WRITE][t * 4];
    for (int d = 0; d < 5; d++)
      for (int c = 0; c < 4; c++) {
        next[d][c] = beta * k[d] * v[c];
        for (int m = 0; m < 5; m++) next[d][c] += ((d == m) - beta * k[d] * k[m]) * exp(g[m]) * S[m][c];
      }
    memcpy(S, next, sizeof S);
    for (int d = 0; d < 5; d++)
      for (int c = 0; c < 4; c++) o[t * 4 + c] += s->p.scale * s->in.x[Q][t * 5 + d] * S[d][c];
  }
}

static void family_reduces(void **state) {
  (void)state;
  double o[160], o_true[160];
  for (int rule = 0; rule < 3; rule++) { /* KDA, Gated DeltaNet, DeltaNet */
    sample s = sample_new(1, 40, 1, 5, 4);
    for (int64_t t = 0; t < 40; t++) {
      fill(s.in.x[ERASE] + t * 5, 5, s.in.x[WRITE][t * 4]);
      fill(s.in.x[WRITE] + t * 4, 4, s.in.x[WRITE][t * 4]);
      if (rule) fill(s.in.x[G] + t * 5, 5, rule == 1 ? s.in.x[G][t * 5] : 0);
    }
    classic_delta_rule(&s, o_true);
    for (int f = 0; f < FORMS; f++) {
      forward(&s.p, forms[f], o, NULL);
      assert_close("o", 160, o, o_true, 1e-13);
    }
    sample_free(&s);
  }
}

/* b = 0, w = 1: gated linear attention, o_t = scale sum_j (q_t * exp(G_t - G_j) . k_j) v_j. */
static void without_erase_it_is_linear_attention(void **state) {
  (void)state;
  sample s = one_key(40, 0, 1);
  sample free_keys = sample_new(1, 40, 1, 3, 2);
  memcpy(s.in.x[KEY], free_keys.in.x[KEY], (size_t)s.count[KEY] * sizeof(double));
  memcpy(s.in.x[Q], free_keys.in.x[Q], (size_t)s.count[Q] * sizeof(double));
  memcpy(s.in.x[G], free_keys.in.x[G], (size_t)s.count[G] * sizeof(double));
  double o[80], o_true[80] = {0};
  for (int64_t t = 0; t < 40; t++)
    for (int64_t d = 0; d < 3; d++) {
      double G_tj = 0;
      for (int64_t j = t; j >= 0; G_tj += s.in.x[G][j * 3 + d], j--)
        for (int64_t c = 0; c < 2; c++)
          o_true[t * 2 + c] += s.in.x[Q][t * 3 + d] * exp(G_tj) * s.in.x[KEY][j * 3 + d] * s.in.x[VALUE][j * 2 + c];
    }
  for (int f = 0; f < FORMS; f++) {
    forward(&s.p, forms[f], o, NULL);
    assert_close("o", 80, o, o_true, 1e-13);
  }
  sample_free(&s);
  sample_free(&free_keys);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(order_of_the_steps),
      TEST(repeated_key_replaces),
      TEST(overshooting_erase_alternates),
      TEST(constant_decay_sums_a_series),
      TEST(without_keys_the_state_decays),
      TEST(reset_is_a_fresh_start),
      TEST(first_token_has_nothing_to_erase),
      TEST(family_reduces),
      TEST(without_erase_it_is_linear_attention),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
