/* Kernels B1, B2 and B3; every result is clipped.
 *
 *     B2  dAqk = lower(do v_new^T)                   dv_partial = Aqk^T do
 *     B1  dv   = dv_partial + kg dh                  dh' = scale qg^T do + diag(e^gc_last) dh - w_pseudo^T dv
 *     B3  dqg  = scale do h^T      dw_pseudo = -dv h^T      dkg = v_new dh_next^T      (h: state before the chunk)
 *         dA   = dw_pseudo kb^T + dv (w v)^T         dkb = A^T dw_pseudo       dwv = A^T dv
 *         dAkk = -(1 - wy_eps) strict_lower(A^T (dA A^T))
 *         dq = dqg e^gc    dk = dkb e^gc b + dkg e^(gc_last - gc)    db = dkb e^gc k    dw = dwv v    dv_raw = dwv w
 *         dgc = dkb kb + dqg qg - dkg kg;  last row: + sum_i dkg kg + e^gc_last sum_v dh_next h
 *
 * Cost per chunk: 3 C K V + 2 C^2 (K + V) + 2 C^3 multiply-adds in B3, 2 C K V in B1, 3/2 C^2 V in B2.
 */

STAGE void seed_dav(const gdn2_seed_dims *d, const float *Aqk, const float *v_new, const float *d_o, float *dAqk, float *dv,
                    gdn2_seed_scratch *s) {
  const int C = d->C, V = d->V;
  transpose(C, V, v_new, V, s->wv_t, C);
  for (int i = 0; i < C; i += SEED_ROW_BLOCK) {
    const int rows = C - i < SEED_ROW_BLOCK ? C - i : SEED_ROW_BLOCK;
    mul_set(rows, i + rows, V, d_o + (ptrdiff_t)i * V, V, 1, s->wv_t, C, dAqk + (ptrdiff_t)i * C, C);
  }
  seed_lower(d, 1, 1.0f, dAqk);
  mul_set(C, V, C, Aqk, 1, C, d_o, V, dv, V);
  seed_sanitize((ptrdiff_t)C * V, d->clip, dv, dv);
}

STAGE void seed_dhu(const gdn2_seed_dims *d, int n, const gdn2_seed_chunk *chunk, const float *d_o, const float *dv_partial,
                    float *dh, float *dv, gdn2_seed_scratch *s) {
  const int C = d->C, K = d->K, V = d->V;
  for (int i = 0; i < C; i++) {
    const ptrdiff_t row = (ptrdiff_t)i * V;
    seed_copy(n, dv_partial + row, dv + row);
    seed_scaled(n, d->scale, d_o + row, s->scaled + row);
  }
  mul_add(C, n, K, chunk->kg, K, 1, dh, V, dv, V);
  seed_sanitize_rows(C, n, d->clip, dv, V);
  seed_exp(K, chunk->gc_last, s->row);
  mul_decay(K, n, C, chunk->qg, 1, K, s->scaled, V, s->row, dh, V, dh, V);
  mul_sub(K, n, C, chunk->w_pseudo, 1, K, dv, V, dh, V);
  seed_sanitize_rows(K, n, d->clip, dh, V);
}

/* dqg, dwp, dkg, dkb, dwv and dAkk: all the matrix products of B3. */
INLINE void seed_wy_products(const gdn2_seed_dims *d, const gdn2_seed_wy_chunk *x, float *dAkk, gdn2_seed_scratch *s) {
  const int C = d->C, K = d->K, V = d->V;
  const ptrdiff_t keys = (ptrdiff_t)C * K, all = (ptrdiff_t)C * C;
  transpose(K, V, x->h_pre, V, s->h_t, K);
  transpose(K, V, x->dh_next, V, s->dh_t, K);
  seed_scaled((ptrdiff_t)C * V, d->scale, x->d_o, s->scaled);
  mul_set(C, K, V, s->scaled, V, 1, s->h_t, K, s->dqg, K);
  mul_set(C, K, V, x->dv, V, 1, s->h_t, K, s->dwp, K);
  seed_scaled(keys, -1.0f, s->dwp, s->dwp);
  mul_set(C, K, V, x->v_new, V, 1, s->dh_t, K, s->dkg, K);
  mul_set(C, K, C, x->A, 1, C, s->dwp, K, s->dkb, K);
  mul_set(C, V, C, x->A, 1, C, x->dv, V, s->dwv, V);

  transpose(C, K, s->kb, K, s->kb_t, C);
  transpose(C, V, s->wv, V, s->wv_t, C);
  mul_set(C, C, K, s->dwp, K, 1, s->kb_t, C, s->M, C);
  mul_add(C, C, V, x->dv, V, 1, s->wv_t, C, s->M, C);
  seed_sanitize(all, d->clip, s->M, s->M);
  float *A_t = dAkk; /* free until the last product, which needs no A_t */
  transpose(C, C, x->A, C, A_t, C);
  mul_set(C, C, C, s->M, C, 1, A_t, C, s->N, C);
  seed_sanitize(all, d->clip, s->N, s->N);
  for (int i = 0; i < C; i += SEED_ROW_BLOCK) {
    const int rows = C - i < SEED_ROW_BLOCK ? C - i : SEED_ROW_BLOCK;
    mul_set(rows, i + rows, C, x->A + i, 1, C, s->N, C, dAkk + (ptrdiff_t)i * C, C);
  }
  seed_lower(d, 0, -d->damp, dAkk);
}

/* e^gc_last sum_v dh_next h, for every channel. */
INLINE void seed_through(const gdn2_seed_dims *d, const gdn2_seed_wy_chunk *x, float *out) {
  seed_exp(d->K, x->gc + (ptrdiff_t)(d->C - 1) * d->K, out);
  for (int r = 0; r < d->K; r++) {
    const float *dh = x->dh_next + (ptrdiff_t)r * d->V, *h = x->h_pre + (ptrdiff_t)r * d->V;
    vf sum = v_zero();
    for (int c = 0; c < d->V; c += VL)
      sum = v_fma(v_load_upto(dh + c, seed_left(d->V, c)), v_load_upto(h + c, seed_left(d->V, c)), sum);
    out[r] *= v_sum(sum);
  }
}

/* What the last row of the channels c .. c+left-1 gets on top: sum_i dkg kg and what went straight through the chunk. */
INLINE vf seed_wy_last(const gdn2_seed_dims *d, int c, int left, const gdn2_seed_scratch *s) {
  vf total = v_zero();
  for (int i = 0; i < d->C; i++) {
    const ptrdiff_t at = (ptrdiff_t)i * d->K + c;
    total = v_add(total, v_mul(v_load_upto(s->dkg + at, left), v_load_upto(s->kg + at, left)));
  }
  return v_add(total, v_load_upto(s->row + c, left));
}

/* dq, dk, db and dgc of the channels c .. c+left-1. The seed adds `last` times 0 to the rows before the last one. */
INLINE void seed_wy_keys(const gdn2_seed_dims *d, int c, int left, const gdn2_seed_wy_chunk *x, const gdn2_seed_wy_grads *y,
                         const gdn2_seed_scratch *s) {
  const vf clip = v_set1(d->clip), last = seed_wy_last(d, c, left, s), before = v_mul(last, v_zero());
  for (int i = 0; i < d->C; i++) {
    const ptrdiff_t at = (ptrdiff_t)i * d->K + c;
    const vf grow = v_load_upto(s->grow + at, left), dqg = v_load_upto(s->dqg + at, left);
    const vf dkb = v_load_upto(s->dkb + at, left), dkg = v_load_upto(s->dkg + at, left);
    const vf dkb_grow = v_mul(dkb, grow);
    const vf dk = v_add(v_mul(dkb_grow, v_load_upto(x->b + at, left)), v_mul(dkg, v_load_upto(s->rest + at, left)));
    vf dgc = v_add(v_mul(dkb, v_load_upto(s->kb + at, left)), v_mul(dqg, v_load_upto(s->qg + at, left)));
    dgc = v_add(v_sub(dgc, v_mul(dkg, v_load_upto(s->kg + at, left))), i == d->C - 1 ? last : before);
    v_store_upto(y->dq + at, seed_clean(v_mul(dqg, grow), clip), left);
    v_store_upto(y->dk + at, seed_clean(dk, clip), left);
    v_store_upto(y->db + at, seed_clean(v_mul(dkb_grow, v_load_upto(x->k + at, left)), clip), left);
    v_store_upto(y->dgc + at, seed_clean(dgc, clip), left);
  }
}

STAGE void seed_wy(const gdn2_seed_dims *d, const gdn2_seed_wy_chunk *x, const gdn2_seed_wy_grads *y, gdn2_seed_scratch *s) {
  const ptrdiff_t values = (ptrdiff_t)d->C * d->V;
  seed_product((ptrdiff_t)d->C * d->K, x->b, x->k, s->bk);
  seed_product(values, x->w, x->v, s->wv);
  seed_decays(d, x->q, x->k, x->gc, s);
  seed_wy_products(d, x, y->dAkk, s);
  seed_through(d, x, s->row);
  for (int c = 0; c < d->K; c += VL) seed_wy_keys(d, c, seed_left(d->K, c), x, y, s);
  seed_product(values, s->dwv, x->v, y->dw);
  seed_sanitize(values, d->clip, y->dw, y->dw);
  seed_product(values, s->dwv, x->w, y->dv_raw);
  seed_sanitize(values, d->clip, y->dv_raw, y->dv_raw);
}
