/* The vectors of a token that its state meets, gates applied.
 *
 *     alpha = exp(g)      e = alpha b k      k      q = scale q      z = w v          (1) to (4), (10), (12)
 *
 * Cost: one exponential and a few products per key channel. */
#include "stage/step.h"

/* One token: alpha, e, k, q [Kp], z [Vp]. Padding of e, k, q and z holds 0. */
typedef struct {
  float *alpha, *e, *k, *q, *z;
} step_token;

/* Room for the tokens that are prepared together: 8 of the widest. */
#define STEP_ROOM (8 * 5 * GDN2_MAX_DIM)

INLINE int token_floats(gdn2_shape s) { return 4 * s.Kp + s.Vp; }

INLINE step_token token_at(gdn2_shape s, float *room, int64_t i) {
  float *at = room + i * token_floats(s);
  return (step_token){at, at + s.Kp, at + 2 * s.Kp, at + 3 * s.Kp, at + 4 * s.Kp};
}

INLINE void prepare_keys(gdn2_shape s, const gdn2_head *head, int64_t t, step_token out) {
  float room[4][GDN2_MAX_DIM];
  const int vecs = (s.K + VL - 1) / VL;
  const vf q_factor = v_set1(head->scale * (head->rule.l2norm ? inverse_norm(s, &head->q, t) : 1.0f));
  const vf k_factor = v_set1(head->rule.l2norm ? inverse_norm(s, &head->k, t) : 1.0f);
  const float *q = row_ready(&head->q, t, 0, vecs, s.K, room[0]), *k = row_ready(&head->k, t, 0, vecs, s.K, room[1]);
  const float *b = gate_ready(&head->b, head->rule.erase, t, 0, vecs, s.K, room[2]),
              *g = decay_ready(head, t, 0, vecs, s.K, room[3]);
  for (int m = 0; m < s.K; m += VL) {
    const int left = s.K - m;
    const vf key = v_mul(v_load_upto(k + m, left), k_factor), alpha = v_exp(v_load_upto(g + m, left));
    v_store(out.alpha + m, alpha);
    v_store(out.e + m, v_mul(alpha, v_mul(v_load_upto(b + m, left), key)));
    v_store(out.k + m, key);
    v_store(out.q + m, v_mul(v_load_upto(q + m, left), q_factor));
  }
}

INLINE void prepare_values(gdn2_shape s, const gdn2_head *head, int64_t t, step_token out) {
  float room[2][GDN2_MAX_DIM];
  const int vecs = (s.V + VL - 1) / VL;
  const float *v = row_ready(&head->v, t, 0, vecs, s.V, room[0]);
  const float *w = gate_ready(&head->w, head->rule.write, t, 0, vecs, s.V, room[1]);
  for (int m = 0; m < s.V; m += VL) v_store(out.z + m, v_mul(v_load_upto(w + m, s.V - m), v_load_upto(v + m, s.V - m)));
}

/* Tokens first .. first+count-1 into the room. */
STAGE void prepare_tokens(gdn2_shape s, const gdn2_head *head, int64_t first, int64_t count, float *room) {
  for (int64_t i = 0; i < count; i++) {
    prepare_keys(s, head, first + i, token_at(s, room, i));
    prepare_values(s, head, first + i, token_at(s, room, i));
  }
}
