/* The seed's two references.
 *
 * Token by token, the exact rule:   h <- e^g h;   v_new = w v - (b k)^T h;   h <- h + k v_new^T;   o = (scale q)^T h
 *
 * Chunked: kernels A to D in one, with other clips: NaN -> 0 and infinities -> +-1e4 on the scores, A, w_pseudo, u and o (finite
 * values of any size stay), the state clipped to +-1e4, kg, qg and gc_last as they are; A row by row without a clip.
 * Cost: 3 K V multiply-adds per token; as kernels A to D.
 */
#define SEED_REFERENCE_CLIP 1e4f

/* NaN -> 0, infinities -> +-1e4, in place. */
INLINE void seed_replace(ptrdiff_t n, float *x) {
  const vf bound = v_set1(SEED_REFERENCE_CLIP);
  for (ptrdiff_t i = 0; i < n; i += VL) {
    const int left = seed_left(n, i);
    const vf in = v_load_upto(x + i, left), cleaned = seed_clean(in, bound);
    const vm finite = v_le(v_abs(in), v_set1(FLT_MAX));
    v_store_upto(x + i, v_add(v_keep(finite, in), v_sub(cleaned, v_keep(finite, cleaned))), left);
  }
}

STAGE void seed_token(const gdn2_seed_dims *d, const float *q, const float *k, const float *v, const float *w, const float *b,
                      const float *g, float *h, float *o, gdn2_seed_scratch *s) {
  const int K = d->K, V = d->V;
  float *v_new = s->row + K;
  seed_exp(K, g, s->row);
  mul_decay(K, V, 0, k, 1, 0, v, V, s->row, h, V, h, V);
  seed_product(V, w, v, v_new);
  seed_product(K, b, k, s->row);
  mul_sub(1, V, K, s->row, 0, 1, h, V, v_new, V);
  mul_add(K, V, 1, k, 1, 0, v_new, V, h, V);
  seed_scaled(K, d->scale, q, s->row);
  mul_set(1, V, K, s->row, 0, 1, h, V, o, V);
}

/* A = (I + damp Akk)^-1. */
INLINE void seed_row_solve(int C, float damp, const float *Akk, float *T, float *A) {
  const ptrdiff_t all = (ptrdiff_t)C * C;
  seed_scaled(all, damp, Akk, T);
  for (ptrdiff_t x = 0; x < all; x++) A[x] = 0.0f;
  for (int i = 0; i < C; i++) {
    float *row = A + (ptrdiff_t)i * C;
    mul_sub(1, i, i, T + (ptrdiff_t)i * C, 0, 1, A, C, row, C);
    row[i] = 1.0f;
  }
}

STAGE void seed_chunked(const gdn2_seed_dims *d, float *h, float *o, ptrdiff_t ldo, gdn2_seed_scratch *s) {
  const int C = d->C, K = d->K, V = d->V;
  const ptrdiff_t all = (ptrdiff_t)C * C, keys = (ptrdiff_t)C * K, values = (ptrdiff_t)C * V;
  seed_running_sums(C, K, s->g, s->gc);
  seed_product(keys, s->b, s->k, s->bk);
  seed_product(values, s->w, s->v, s->wv);
  seed_decays(d, s->q, s->k, s->gc, s);
  seed_raw_scores(d, s->q, s->bk, s->k, s->gc, s->Aqk, s->Akk);
  seed_replace(all, s->Aqk);
  seed_replace(all, s->Akk);
  seed_row_solve(C, d->damp, s->Akk, s->M, s->A);
  seed_replace(all, s->A);
  float *w_pseudo = s->dwp, *u = s->dwv;
  seed_lower_product(C, K, s->A, s->kb, w_pseudo);
  seed_lower_product(C, V, s->A, s->wv, u);
  seed_replace(keys, w_pseudo);
  seed_replace(values, u);
  const gdn2_seed_chunk chunk = {s->Aqk, w_pseudo, s->kg, s->qg, u, s->gc + keys - K};
  seed_combine_raw(d, V, &chunk, h, s->v_new, C, o, ldo, s->row);
  seed_sanitize((ptrdiff_t)K * V, SEED_REFERENCE_CLIP, h, h);
  for (int i = 0; i < C; i++) seed_replace(V, o + i * ldo);
}
