#include "seed_functions.h"

enum { B = 1, L = 7, H = 2, K = 5, V = 8, BT = 4, CHUNKS = 2 };
enum {
  KEY_TOKENS = B * L * H * K,
  VALUE_TOKENS = B * L * H * V,
  KEYS = B * H * CHUNKS * BT * K,
  VALUES = B * H * CHUNKS * BT * V,
  SCORES = B * H * CHUNKS * BT * BT,
  STATES = B * H * CHUNKS * K * V,
  LAST = B * H * CHUNKS * K,
  STATE = B * H * K * V,
  /* The chunked reference wants whole chunks. */
  WHOLE_KEYS = KEYS,
  WHOLE_VALUES = VALUES
};

static const gdn2_seed_config config = {BT, BT, BT, 1e4, 1e-3};
const gdn2_seed_call seed_small_call = {
    .struct_size = sizeof seed_small_call, .B = B, .L = L, .H = H, .K = K, .V = V, .config = &config, .exec.threads = 1};

static gdn2_seed_call whole_chunks(const gdn2_seed_call *call) {
  gdn2_seed_call whole = *call;
  whole.L = (int64_t)CHUNKS * BT;
  return whole;
}

static gdn2_seed_inputs inputs_of(float *const *a) { return (gdn2_seed_inputs){a[0], a[1], a[2], a[3], a[4], a[5], a[6]}; }
static gdn2_seed_residuals residuals_of(float *const *a) {
  return (gdn2_seed_residuals){a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]};
}

static gdn2_status to_chunks(const gdn2_seed_call *c, float *const *a) { return gdn2_seed_to_chunks(c, K, a[0], a[1]); }
static gdn2_status from_chunks(const gdn2_seed_call *c, float *const *a) { return gdn2_seed_from_chunks(c, V, a[0], a[1]); }
static gdn2_status scores(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_scores(c, a[0], a[1], a[2], a[3], a[4], a[5]);
}
static gdn2_status solve(const gdn2_seed_call *c, float *const *a) { return gdn2_seed_solve(c, a[0], a[1]); }
static gdn2_status rebuild(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_rebuild(c, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}
static gdn2_status combine(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_combine(c, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
}
static gdn2_status combine_with_state(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_combine_with_state(c, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}
static gdn2_status forward(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  const gdn2_seed_residuals out = residuals_of(a + 9);
  return gdn2_seed_forward(c, &in, a[7], a[8], &out);
}
static gdn2_status forward_alone(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  return gdn2_seed_forward(c, &in, a[7], a[8], NULL);
}
static gdn2_status dav(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_dav_backward(c, a[0], a[1], a[2], a[3], a[4]);
}
static gdn2_status dhu(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_dhu_backward(c, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
}
static gdn2_status wy(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_wy_inputs in = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]};
  const gdn2_seed_wy_gradients out = {a[12], a[13], a[14], a[15], a[16], a[17], a[18]};
  return gdn2_seed_wy_backward(c, &in, &out);
}
static gdn2_status intra(const gdn2_seed_call *c, float *const *a) {
  return gdn2_seed_intra_backward(c, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
}
static gdn2_status reverse(const gdn2_seed_call *c, float *const *a) { return gdn2_seed_reverse_cumsum(c, a[0], a[1]); }
static gdn2_status sums(const gdn2_seed_call *c, float *const *a) { return gdn2_seed_chunk_sums(c, a[0], a[1]); }
static gdn2_status backward(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  const gdn2_seed_residuals made = residuals_of(a + 7);
  const gdn2_seed_gradients out = {a[19], a[20], a[21], a[22], a[23], a[24], a[25]};
  return gdn2_seed_backward(c, &in, &made, a[17], a[18], &out);
}
static gdn2_status backward_alone(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  const gdn2_seed_gradients out = {a[9], a[10], a[11], a[12], a[13], a[14], a[15]};
  return gdn2_seed_backward(c, &in, NULL, a[7], a[8], &out);
}
static gdn2_status token_serial(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  return gdn2_seed_token_serial(c, &in, a[7], a[8]);
}
static gdn2_status chunked(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  if (!c) return gdn2_seed_chunked_wy(NULL, &in, BT, 1e-3, a[7], a[8]);
  const gdn2_seed_call whole = whole_chunks(c);
  return gdn2_seed_chunked_wy(&whole, &in, BT, 1e-3, a[7], a[8]);
}
static gdn2_status fallback(const gdn2_seed_call *c, float *const *a) {
  const gdn2_seed_inputs in = inputs_of(a);
  if (!c) return gdn2_seed_forward_fallback(NULL, &in, a[7], a[8]);
  const gdn2_seed_call whole = whole_chunks(c);
  return gdn2_seed_forward_fallback(&whole, &in, a[7], a[8]);
}

#define READ(name, count)                                                                                                        \
  { #name, count, false, false }
#define MAY(name, count)                                                                                                         \
  { #name, count, false, true }
#define WRITE(name, count)                                                                                                       \
  { #name, count, true, false }
#define INPUTS(keys, values)                                                                                                     \
  READ(inputs->q, keys), READ(inputs->k, keys), READ(inputs->v, values), READ(inputs->w, values), READ(inputs->b, keys),         \
      READ(inputs->g, keys), MAY(inputs->h0, STATE)
#define RESIDUALS(WAY)                                                                                                           \
  WAY(residuals->Aqk, SCORES), WAY(residuals->Akk, SCORES), WAY(residuals->A, SCORES), WAY(residuals->h_pre_all, STATES),        \
      WAY(residuals->v_new_all, VALUES), WAY(residuals->u, VALUES), WAY(residuals->w_pseudo, KEYS), WAY(residuals->kg, KEYS),    \
      WAY(residuals->qg, KEYS), WAY(residuals->gc_last, LAST)
#define GRADIENTS                                                                                                                \
  READ(d_o, VALUE_TOKENS), MAY(dh_final, STATE), WRITE(gradients->dq, KEY_TOKENS), WRITE(gradients->dk, KEY_TOKENS),             \
      WRITE(gradients->dv, VALUE_TOKENS), WRITE(gradients->dw, VALUE_TOKENS), WRITE(gradients->db, KEY_TOKENS),                  \
      WRITE(gradients->dg, KEY_TOKENS), WRITE(gradients->dh0, STATE)
#define OF_D                                                                                                                     \
  READ(Aqk, SCORES), READ(w_pseudo, KEYS), READ(u, VALUES), READ(kg, KEYS), READ(qg, KEYS), READ(gc_last, LAST), MAY(h0, STATE), \
      WRITE(o_chunks, VALUES), WRITE(h_final, STATE)

const seed_function seed_functions[] = {
    {"to_chunks", to_chunks, {READ(tokens, KEY_TOKENS), WRITE(chunks, KEYS)}},
    {"from_chunks", from_chunks, {READ(chunks, VALUES), WRITE(tokens, VALUE_TOKENS)}},
    {"scores",
     scores,
     {READ(q, KEY_TOKENS), READ(k, KEY_TOKENS), READ(b, KEY_TOKENS), READ(g, KEY_TOKENS), WRITE(Aqk, SCORES),
      WRITE(Akk, SCORES)}},
    {"solve", solve, {READ(Akk, SCORES), WRITE(A, SCORES)}},
    {"rebuild",
     rebuild,
     {READ(q, KEY_TOKENS), READ(k, KEY_TOKENS), READ(v, VALUE_TOKENS), READ(w, VALUE_TOKENS), READ(b, KEY_TOKENS),
      READ(g, KEY_TOKENS), READ(A, SCORES), WRITE(w_pseudo, KEYS), WRITE(u, VALUES), WRITE(kg, KEYS), WRITE(qg, KEYS),
      WRITE(gc_last, LAST)}},
    {"combine", combine, {OF_D}},
    {"combine_with_state", combine_with_state, {OF_D, WRITE(h_pre_all, STATES), WRITE(v_new_all, VALUES)}},
    {"forward", forward, {INPUTS(KEY_TOKENS, VALUE_TOKENS), WRITE(o, VALUE_TOKENS), WRITE(h_final, STATE), RESIDUALS(WRITE)}},
    {"forward alone", forward_alone, {INPUTS(KEY_TOKENS, VALUE_TOKENS), WRITE(o, VALUE_TOKENS), WRITE(h_final, STATE)}},
    {"dav_backward",
     dav,
     {READ(Aqk, SCORES), READ(v_new, VALUES), READ(d_o, VALUES), WRITE(dAqk, SCORES), WRITE(dv_partial, VALUES)}},
    {"dhu_backward",
     dhu,
     {READ(d_o, VALUES), READ(dv_partial, VALUES), READ(w_pseudo, KEYS), READ(qg, KEYS), READ(kg, KEYS), READ(gc_last, LAST),
      MAY(dht, STATE), WRITE(dh_all, STATES), WRITE(dh0, STATE), WRITE(dv_all, VALUES)}},
    {"wy_backward",
     wy,
     {READ(inputs->q, KEYS), READ(inputs->k, KEYS), READ(inputs->b, KEYS), READ(inputs->gc, KEYS), READ(inputs->w, VALUES),
      READ(inputs->v, VALUES), READ(inputs->A, SCORES), READ(inputs->h_pre_all, STATES), READ(inputs->v_new_all, VALUES),
      READ(inputs->d_o, VALUES), READ(inputs->dv, VALUES), READ(inputs->dh_next_all, STATES), WRITE(gradients->dq, KEYS),
      WRITE(gradients->dk, KEYS), WRITE(gradients->db, KEYS), WRITE(gradients->dgc, KEYS), WRITE(gradients->dw, VALUES),
      WRITE(gradients->dv_raw, VALUES), WRITE(gradients->dAkk, SCORES)}},
    {"intra_backward",
     intra,
     {READ(dAqk, SCORES), READ(dAkk, SCORES), READ(q, KEY_TOKENS), READ(k, KEY_TOKENS), READ(b, KEY_TOKENS), READ(g, KEY_TOKENS),
      WRITE(dq, KEYS), WRITE(dk, KEYS), WRITE(db, KEYS), WRITE(dgc, KEYS)}},
    {"reverse_cumsum", reverse, {READ(dgc, KEYS), WRITE(dg, KEYS)}},
    {"chunk_sums", sums, {READ(g, KEY_TOKENS), WRITE(gc, KEYS)}},
    {"backward", backward, {INPUTS(KEY_TOKENS, VALUE_TOKENS), RESIDUALS(READ), GRADIENTS}},
    {"backward alone", backward_alone, {INPUTS(KEY_TOKENS, VALUE_TOKENS), GRADIENTS}},
    {"token_serial", token_serial, {INPUTS(KEY_TOKENS, VALUE_TOKENS), WRITE(o, VALUE_TOKENS), WRITE(h_final, STATE)}},
    {"chunked_wy", chunked, {INPUTS(WHOLE_KEYS, WHOLE_VALUES), WRITE(o, WHOLE_VALUES), WRITE(h_final, STATE)}},
    {"forward_fallback", fallback, {INPUTS(WHOLE_KEYS, WHOLE_VALUES), WRITE(o, WHOLE_VALUES), WRITE(h_final, STATE)}},
};
const size_t seed_function_count = sizeof seed_functions / sizeof *seed_functions;
