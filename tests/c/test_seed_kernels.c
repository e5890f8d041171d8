/* Kernels A to D and B1 to B5, each on the inputs the library itself gave it, against float64. */
#include <math.h>

#include "seed_case.h"
#include "test.h"

#define KERNEL_BOUND 2e-6

typedef struct scenario {
  int64_t sizes[5]; /* B, L, H, K, V */
  gdn2_seed_config config;
  double strongest;
} scenario;

/* Head sizes with every tail, K != V, one to four blocks, a last chunk that is not full, decays beyond the pair clip, and a clip
 * that cuts. */
static const scenario scenarios[] = {
    {{1, 64, 2, 1, 1}, {32, 16, 8, 1e4, 1e-3}, 0.3},    {{1, 64, 1, 3, 17}, {32, 16, 8, 1e4, 1e-3}, 0.3},
    {{2, 64, 1, 16, 16}, {32, 16, 16, 1e4, 0.05}, 0.3}, {{1, 64, 2, 17, 3}, {32, 16, 4, 1e4, 1e-3}, 0.3},
    {{1, 64, 1, 31, 96}, {32, 16, 8, 1e4, 1e-3}, 20},   {{1, 64, 1, 64, 64}, {64, 32, 16, 1e4, 0}, 0.3},
    {{1, 64, 1, 96, 31}, {32, 16, 8, 1e4, 0.05}, 20},   {{1, 128, 1, 128, 128}, {64, 32, 16, 1e4, 1e-3}, 0.3},
    {{1, 96, 1, 33, 65}, {48, 16, 4, 1e4, 1e-3}, 0.3},  {{1, 72, 1, 20, 12}, {24, 24, 8, 1e4, 0.05}, 0.3},
    {{1, 80, 1, 8, 7}, {40, 10, 5, 1e4, 1e-3}, 3},      {{2, 50, 2, 19, 21}, {32, 16, 8, 1e4, 1e-3}, 0.3},
    {{1, 5, 3, 130, 250}, {16, 8, 1, 1e4, 1e-3}, 0.3},  {{1, 64, 1, 24, 40}, {32, 16, 8, 0.3, 1e-3}, 0.3},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void ok(gdn2_status status) {
  if (status != GDN2_OK) fail_msg("%s: %s", gdn2_status_name(status), gdn2_last_error());
}

static void close_to(tensor t, const float *got, const double *want) { expect_close(&t, got, want, KERNEL_BOUND); }
static void same(tensor t, const float *got, const float *want) { expect_same_bits(&t, got, want); }

/* The chunks of a token tensor, by the library, checked here element by element. */
static float *chunks_of(const seed_case *c, tensor t, int64_t D, const float *tokens) {
  float *x = seed_array(t);
  ok(gdn2_seed_to_chunks(&c->call, D, tokens, x));
  const int64_t L = c->call.L, H = c->call.H, C = c->config.bt;
  for (int64_t head = 0; head < c->call.B * H; head++)
    for (int64_t token = 0; token < c->chunks * C; token++)
      for (int64_t d = 0; d < D; d++) {
        const float want = token < L ? tokens[((head / H * L + token) * H + head % H) * D + d] : 0.0f;
        assert_true(x[(head * c->chunks * C + token) * D + d] == want);
      }
  return x;
}

/* Inputs in chunk order, in float64. */
typedef struct chunk_inputs {
  double *q, *k, *v, *w, *b, *g, *d_o;
} chunk_inputs;

static chunk_inputs chunked(const seed_case *c) {
  const tensor keys = seed_keys(c, "keys"), values = seed_values(c, "values");
  const int64_t K = c->call.K, V = c->call.V;
  return (chunk_inputs){seed_wide(chunks_of(c, keys, K, c->in.q), keys),     seed_wide(chunks_of(c, keys, K, c->in.k), keys),
                        seed_wide(chunks_of(c, values, V, c->in.v), values), seed_wide(chunks_of(c, values, V, c->in.w), values),
                        seed_wide(chunks_of(c, keys, K, c->in.b), keys),     seed_wide(chunks_of(c, keys, K, c->in.g), keys),
                        seed_wide(chunks_of(c, values, V, c->d_o), values)};
}

/* Offsets of chunk `at`. */
typedef struct place {
  int64_t keys, values, scores, state, last;
} place;

static place place_of(const seed_case *c, int64_t at) {
  const int64_t C = c->config.bt, K = c->call.K, V = c->call.V;
  return (place){at * C * K, at * C * V, at * C * C, at * K * V, at * K};
}

static double *fresh(tensor t) { return test_doubles(tensor_count(&t)); }

static void check_scores_and_solve(const seed_case *c, const seed_model *m, const chunk_inputs *x) {
  const tensor t = seed_scores(c, "Aqk");
  double *Aqk = fresh(t), *Akk = fresh(t), *A = fresh(t), *Akk_in = seed_wide(c->made.Akk, t);
  for (int64_t at = 0; at < c->call.B * c->call.H * c->chunks; at++) {
    const place p = place_of(c, at);
    model_scores(m, x->q + p.keys, x->k + p.keys, x->b + p.keys, x->g + p.keys, Aqk + p.scores, Akk + p.scores);
    model_solve(m, Akk_in + p.scores, A + p.scores);
  }
  close_to(t, c->made.Aqk, Aqk);
  close_to(seed_scores(c, "Akk"), c->made.Akk, Akk);
  if (isfinite(c->config.clip) && c->config.clip > 1) close_to(seed_scores(c, "A"), c->made.A, A);
}

static void check_rebuild(const seed_case *c, const seed_model *m, const chunk_inputs *x) {
  const tensor keys = seed_keys(c, "w_pseudo"), values = seed_values(c, "u"), last = seed_last(c, "gc_last");
  double *w_pseudo = fresh(keys), *u = fresh(values), *kg = fresh(keys), *qg = fresh(keys), *gc_last = fresh(last);
  double *A = seed_wide(c->made.A, seed_scores(c, "A"));
  for (int64_t at = 0; at < c->call.B * c->call.H * c->chunks; at++) {
    const place p = place_of(c, at);
    const model_chunk chunk = {.q = x->q + p.keys,
                               .k = x->k + p.keys,
                               .v = x->v + p.values,
                               .w = x->w + p.values,
                               .b = x->b + p.keys,
                               .g = x->g + p.keys,
                               .A = A + p.scores,
                               .w_pseudo = w_pseudo + p.keys,
                               .u = u + p.values,
                               .kg = kg + p.keys,
                               .qg = qg + p.keys,
                               .gc_last = gc_last + p.last};
    model_rebuild(m, &chunk);
  }
  close_to(keys, c->made.w_pseudo, w_pseudo);
  close_to(values, c->made.u, u);
  close_to(seed_keys(c, "kg"), c->made.kg, kg);
  close_to(seed_keys(c, "qg"), c->made.qg, qg);
  close_to(last, c->made.gc_last, gc_last);
}

/* The library's results of A and C in float64. */
static model_chunk carried(const seed_case *c) {
  const tensor keys = seed_keys(c, "keys");
  return (model_chunk){.Aqk = seed_wide(c->made.Aqk, seed_scores(c, "Aqk")),
                       .w_pseudo = seed_wide(c->made.w_pseudo, keys),
                       .u = seed_wide(c->made.u, seed_values(c, "u")),
                       .kg = seed_wide(c->made.kg, keys),
                       .qg = seed_wide(c->made.qg, keys),
                       .gc_last = seed_wide(c->made.gc_last, seed_last(c, "gc_last"))};
}

static model_chunk chunk_at(const model_chunk *all, place p) {
  return (model_chunk){.Aqk = all->Aqk + p.scores,
                       .w_pseudo = all->w_pseudo + p.keys,
                       .u = all->u + p.values,
                       .kg = all->kg + p.keys,
                       .qg = all->qg + p.keys,
                       .gc_last = all->gc_last + p.last};
}

/* One head's state, h, walks through the chunks; the library's state before every chunk is compared on the way. */
static void check_combine(const seed_case *c, const seed_model *m) {
  const tensor values = seed_values(c, "v_new_all"), states = seed_states(c, "h_pre_all"), state = seed_state(c, "h_final");
  const model_chunk all = carried(c);
  double *h = seed_wide(c->in.h0, state), *h_pre = fresh(states), *v_new = fresh(values), *o = fresh(values);
  const int64_t size = c->call.K * c->call.V;
  for (int64_t i = 0; i < c->call.B * c->call.H * size; i++) h[i] = seed_clean(h[i], m->clip);
  for (int64_t at = 0; at < c->call.B * c->call.H * c->chunks; at++) {
    const place p = place_of(c, at);
    const model_chunk chunk = chunk_at(&all, p);
    double *own = h + at / c->chunks * size;
    memcpy(h_pre + p.state, own, (size_t)size * sizeof *own);
    model_combine(m, &chunk, own, v_new + p.values, o + p.values);
  }
  close_to(state, c->h_final, h);
  close_to(states, c->made.h_pre_all, h_pre);
  close_to(values, c->made.v_new_all, v_new);
  close_to(seed_values(c, "o"), chunks_of(c, seed_values(c, "o"), c->call.V, c->o), o);
}

/* The public kernels one by one give the bits of the whole forward. */
static void check_kernels_give_the_same(const seed_case *c) {
  const gdn2_seed_inputs *x = &c->in;
  const gdn2_seed_residuals *r = &c->made;
  const tensor scores = seed_scores(c, "scores"), keys = seed_keys(c, "keys"), values = seed_values(c, "values");
  float *score[3], *key[3], *value[3], *last = seed_array(seed_last(c, "gc_last")), *state = seed_array(seed_state(c, "h_final"));
  float *states = seed_array(seed_states(c, "h_pre_all"));
  for (int i = 0; i < 3; i++) score[i] = seed_array(scores), key[i] = seed_array(keys), value[i] = seed_array(values);
  ok(gdn2_seed_scores(&c->call, x->q, x->k, x->b, x->g, score[0], score[1]));
  ok(gdn2_seed_solve(&c->call, score[1], score[2]));
  ok(gdn2_seed_rebuild(&c->call, x->q, x->k, x->v, x->w, x->b, x->g, score[2], key[0], value[0], key[1], key[2], last));
  ok(gdn2_seed_combine_with_state(&c->call, score[0], key[0], value[0], key[1], key[2], last, x->h0, value[1], state, states,
                                  value[2]));
  same(scores, score[0], r->Aqk);
  same(scores, score[1], r->Akk);
  same(scores, score[2], r->A);
  same(keys, key[0], r->w_pseudo);
  same(values, value[0], r->u);
  same(keys, key[1], r->kg);
  same(keys, key[2], r->qg);
  same(seed_states(c, "h_pre_all"), states, r->h_pre_all);
  same(values, value[2], r->v_new_all);
  same(seed_state(c, "h_final"), state, c->h_final);
  float *o = seed_array(seed_value_tokens(c, "o")), *o_chunks = seed_array(values);
  ok(gdn2_seed_from_chunks(&c->call, c->call.V, value[1], o));
  same(seed_value_tokens(c, "o"), o, c->o);
  ok(gdn2_seed_combine(&c->call, score[0], key[0], value[0], key[1], key[2], last, x->h0, o_chunks, state));
  same(values, o_chunks, value[1]);
  same(seed_state(c, "h_final"), state, c->h_final);
  ok(gdn2_seed_forward(&c->call, x, o, state, NULL));
  same(seed_value_tokens(c, "o"), o, c->o);
  same(seed_state(c, "h_final"), state, c->h_final);
}

static void test_forward_kernels(void **unused) {
  (void)unused;
  for (int n = 0; n < SCENARIOS; n++) {
    const void *mark = test_mark();
    seed_case c;
    seed_case_init(&c, 100 + (uint64_t)n, scenarios[n].sizes, scenarios[n].config, scenarios[n].strongest);
    print_message("  scenario %d\n", n);
    ok(gdn2_seed_forward(&c.call, &c.in, c.o, c.h_final, &c.made));
    const seed_model m = seed_model_of(&c);
    const chunk_inputs x = chunked(&c);
    check_scores_and_solve(&c, &m, &x);
    check_rebuild(&c, &m, &x);
    check_combine(&c, &m);
    check_kernels_give_the_same(&c);
    test_release_to(mark);
  }
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------- */

/* B2 and B1. Returns dv_all, and dh_next_all in *dh_next. */
static float *check_dav_and_dhu(const seed_case *c, const seed_model *m, float *d_o, float **dAqk, float **dh_next) {
  const tensor scores = seed_scores(c, "dAqk"), values = seed_values(c, "dv"), states = seed_states(c, "dh_all");
  const int64_t heads = c->call.B * c->call.H, size = c->call.K * c->call.V;
  float *dv_partial = seed_array(values), *dv_all = seed_array(values), *dh_all = seed_array(states);
  float *dh0 = seed_array(seed_state(c, "dh0"));
  *dAqk = seed_array(scores), *dh_next = seed_array(states);
  ok(gdn2_seed_dav_backward(&c->call, c->made.Aqk, c->made.v_new_all, d_o, *dAqk, dv_partial));
  ok(gdn2_seed_dhu_backward(&c->call, d_o, dv_partial, c->made.w_pseudo, c->made.qg, c->made.kg, c->made.gc_last, c->dh_final,
                            dh_all, dh0, dv_all));
  const model_chunk all = carried(c);
  double *want_dAqk = fresh(scores), *want_partial = fresh(values), *want_dv = fresh(values), *want_dh = fresh(states);
  double *dh = seed_wide(c->dh_final, seed_state(c, "dh0")), *v_new = seed_wide(c->made.v_new_all, values);
  double *wide_d_o = seed_wide(d_o, values), *partial = seed_wide(dv_partial, values);
  for (int64_t i = 0; i < heads * size; i++) dh[i] = seed_clean(dh[i], m->clip);
  for (int64_t at = heads * c->chunks - 1; at >= 0; at--) {
    const place p = place_of(c, at);
    const model_chunk chunk = chunk_at(&all, p);
    double *own = dh + at / c->chunks * size;
    model_dav(m, chunk.Aqk, v_new + p.values, wide_d_o + p.values, want_dAqk + p.scores, want_partial + p.values);
    model_dhu(m, &chunk, wide_d_o + p.values, partial + p.values, own, want_dv + p.values);
    memcpy(want_dh + p.state, own, (size_t)size * sizeof *own);
    const bool last = at % c->chunks == c->chunks - 1;
    memcpy(*dh_next + p.state, last ? c->dh_final + at / c->chunks * size : dh_all + p.state + size,
           (size_t)size * sizeof **dh_next);
  }
  close_to(scores, *dAqk, want_dAqk);
  close_to(seed_values(c, "dv_partial"), dv_partial, want_partial);
  close_to(seed_values(c, "dv_all"), dv_all, want_dv);
  close_to(states, dh_all, want_dh);
  close_to(seed_state(c, "dh0"), dh0, dh);
  return dv_all;
}

typedef struct wy_result {
  gdn2_seed_wy_gradients got;
  model_wy want;
} wy_result;

static wy_result check_wy(const seed_case *c, const seed_model *m, const chunk_inputs *x, float *d_o, float *dv, float *dh_next) {
  const tensor keys = seed_keys(c, "keys"), values = seed_values(c, "values"), scores = seed_scores(c, "dAkk");
  const int64_t K = c->call.K, V = c->call.V;
  float *gc = seed_array(keys);
  ok(gdn2_seed_chunk_sums(&c->call, c->in.g, gc));
  const gdn2_seed_wy_inputs in = {.q = chunks_of(c, keys, K, c->in.q),
                                  .k = chunks_of(c, keys, K, c->in.k),
                                  .b = chunks_of(c, keys, K, c->in.b),
                                  .gc = gc,
                                  .w = chunks_of(c, values, V, c->in.w),
                                  .v = chunks_of(c, values, V, c->in.v),
                                  .A = c->made.A,
                                  .h_pre_all = c->made.h_pre_all,
                                  .v_new_all = c->made.v_new_all,
                                  .d_o = d_o,
                                  .dv = dv,
                                  .dh_next_all = dh_next};
  wy_result r = {.got = {seed_array(keys), seed_array(keys), seed_array(keys), seed_array(keys), seed_array(values),
                         seed_array(values), seed_array(scores)},
                 .want = {.dq = fresh(keys),
                          .dk = fresh(keys),
                          .db = fresh(keys),
                          .dgc = fresh(keys),
                          .dw = fresh(values),
                          .dv_raw = fresh(values),
                          .dAkk = fresh(scores)}};
  ok(gdn2_seed_wy_backward(&c->call, &in, &r.got));
  double *wide_gc = seed_wide(gc, keys), *A = seed_wide(c->made.A, scores), *h = seed_wide(in.h_pre_all, seed_states(c, "h"));
  double *v_new = seed_wide(in.v_new_all, values), *wide_dv = seed_wide(dv, values),
         *dh = seed_wide(dh_next, seed_states(c, "dh"));
  for (int64_t at = 0; at < c->call.B * c->call.H * c->chunks; at++) {
    const place p = place_of(c, at);
    const model_wy one = {x->q + p.keys,         x->k + p.keys,        x->b + p.keys,
                          wide_gc + p.keys,      x->w + p.values,      x->v + p.values,
                          A + p.scores,          h + p.state,          v_new + p.values,
                          x->d_o + p.values,     wide_dv + p.values,   dh + p.state,
                          r.want.dq + p.keys,    r.want.dk + p.keys,   r.want.db + p.keys,
                          r.want.dgc + p.keys,   r.want.dw + p.values, r.want.dv_raw + p.values,
                          r.want.dAkk + p.scores};
    model_wy_backward(m, &one);
  }
  close_to(seed_keys(c, "dq"), r.got.dq, r.want.dq);
  close_to(seed_keys(c, "dk"), r.got.dk, r.want.dk);
  close_to(seed_keys(c, "db"), r.got.db, r.want.db);
  close_to(seed_keys(c, "dgc"), r.got.dgc, r.want.dgc);
  close_to(seed_values(c, "dw"), r.got.dw, r.want.dw);
  close_to(seed_values(c, "dv_raw"), r.got.dv_raw, r.want.dv_raw);
  close_to(scores, r.got.dAkk, r.want.dAkk);
  return r;
}

static void check_intra(const seed_case *c, const seed_model *m, const chunk_inputs *x, const float *dAqk, const float *dAkk) {
  const tensor keys = seed_keys(c, "keys"), scores = seed_scores(c, "scores");
  float *got[4];
  double *want[4], *wide_dAqk = seed_wide(dAqk, scores), *wide_dAkk = seed_wide(dAkk, scores);
  for (int i = 0; i < 4; i++) got[i] = seed_array(keys), want[i] = fresh(keys);
  ok(gdn2_seed_intra_backward(&c->call, dAqk, dAkk, c->in.q, c->in.k, c->in.b, c->in.g, got[0], got[1], got[2], got[3]));
  for (int64_t at = 0; at < c->call.B * c->call.H * c->chunks; at++) {
    const place p = place_of(c, at);
    const model_intra one = {x->q + p.keys,        x->k + p.keys,    x->b + p.keys,    x->g + p.keys,    wide_dAqk + p.scores,
                             wide_dAkk + p.scores, want[0] + p.keys, want[1] + p.keys, want[2] + p.keys, want[3] + p.keys};
    model_intra_backward(m, &one);
  }
  const char *const names[] = {"dq", "dk", "db", "dgc"};
  for (int i = 0; i < 4; i++) close_to(seed_keys(c, names[i]), got[i], want[i]);
  float *dg = seed_array(keys);
  ok(gdn2_seed_reverse_cumsum(&c->call, got[3], dg));
  double *sums = seed_wide(got[3], keys);
  const int64_t K = c->call.K;
  for (int64_t i = (int64_t)tensor_count(&keys) - 1 - K; i >= 0; i--)
    if (i / K % c->config.bt != c->config.bt - 1) sums[i] += sums[i + K];
  for (size_t i = 0; i < tensor_count(&keys); i++) sums[i] = seed_clean(sums[i], m->clip);
  close_to(seed_keys(c, "dg"), dg, sums);
}

static void test_backward_kernels(void **unused) {
  (void)unused;
  for (int n = 0; n < SCENARIOS; n++) {
    if (scenarios[n].config.clip < 1) continue; /* sums that are cut on the way: see test_seed_parity.py */
    const void *mark = test_mark();
    seed_case c;
    seed_case_init(&c, 200 + (uint64_t)n, scenarios[n].sizes, scenarios[n].config, scenarios[n].strongest);
    print_message("  scenario %d\n", n);
    ok(gdn2_seed_forward(&c.call, &c.in, c.o, c.h_final, &c.made));
    const seed_model m = seed_model_of(&c);
    const chunk_inputs x = chunked(&c);
    float *d_o = chunks_of(&c, seed_values(&c, "d_o"), c.call.V, c.d_o), *dAqk, *dh_next;
    float *dv = check_dav_and_dhu(&c, &m, d_o, &dAqk, &dh_next);
    const wy_result r = check_wy(&c, &m, &x, d_o, dv, dh_next);
    check_intra(&c, &m, &x, dAqk, r.got.dAkk);
    test_release_to(mark);
  }
}

/* Every pair beyond the clip of its exponent, on either side: scores and gradients count e^-20 and e^20, and the decay has no
 * gradient. (Among other pairs those of e^-20 are too small to be seen.) */
static void test_pair_clip(void **unused) {
  (void)unused;
  for (int side = -1; side <= 1; side += 2) {
    seed_case c;
    seed_case_init(&c, 40, (const int64_t[]){1, 32, 1, 17, 3}, (gdn2_seed_config){32, 16, 8, 1e30, 0}, 0.3);
    const tensor keys = seed_keys(&c, "keys"), scores = seed_scores(&c, "Akk");
    float *g = seed_array(keys), *b = seed_array(keys), *got[4], *dM = seed_array(scores);
    double *want[4];
    rng r = {41};
    for (size_t i = 0; i < tensor_count(&keys); i++) {
      g[i] = 30.0f * (float)side;
      b[i] = c.in.b[i] * (side < 0 ? 1e8f : 1.0f);
    }
    for (int i = 0; i < 32 * 32; i++) dM[i] = i % 32 < i / 32 ? (float)rng_normal(&r) : 0.0f;
    const seed_model m = seed_model_of(&c);
    const model_intra x = {seed_wide(c.in.q, keys), seed_wide(c.in.k, keys), seed_wide(b, keys),    seed_wide(g, keys),
                           seed_wide(dM, scores),   seed_wide(dM, scores),   want[0] = fresh(keys), want[1] = fresh(keys),
                           want[2] = fresh(keys),   want[3] = fresh(keys)};
    double *Aqk = fresh(scores), *Akk = fresh(scores);
    model_scores(&m, x.q, x.k, x.b, x.g, Aqk, Akk);
    ok(gdn2_seed_scores(&c.call, c.in.q, c.in.k, b, g, c.made.Aqk, c.made.Akk));
    close_to(scores, c.made.Akk, Akk);
    model_intra_backward(&m, &x);
    for (int i = 0; i < 4; i++) got[i] = seed_array(keys);
    ok(gdn2_seed_intra_backward(&c.call, dM, dM, c.in.q, c.in.k, b, g, got[0], got[1], got[2], got[3]));
    if (side > 0) close_to(seed_keys(&c, "dq"), got[0], want[0]); /* e^-20 alone: below what close_to takes as not small */
    close_to(seed_keys(&c, "dk"), got[1], want[1]);
    expect_all_zero(&(tensor){"dgc", {1, 1, 32, 17}}, got[3]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_forward_kernels), TEST(test_backward_kernels), TEST(test_pair_clip)};
  return TEST_RUN(tests);
}
