/* Kernels C and D.
 *
 *     C   w_pseudo = A kb    u = A (w v)    kg, qg, gc_last      all clipped
 *     D   v_new = u - w_pseudo h
 *         o     = scale qg h + Aqk v_new                         clipped
 *         h'    = diag(e^gc_last) h + kg^T v_new                 clipped
 *
 * D works on a panel of columns: those of h, u and o do not depend on each other. Cost per chunk: C^2 (K + V) multiply-adds in C,
 * 3 C K V + C^2 V in D.
 */

#define SEED_ROW_BLOCK 32

/* Y = A X for a lower triangular A; X has n columns. The zeros of A are skipped where 0 x X is surely 0, that is for finite X. */
INLINE void seed_lower_product(int C, int n, const float *A, const float *X, float *Y) {
  const int skip = seed_all_finite((ptrdiff_t)C * n, X);
  for (int i = 0; i < C; i += SEED_ROW_BLOCK) {
    const int rows = C - i < SEED_ROW_BLOCK ? C - i : SEED_ROW_BLOCK;
    mul_set(rows, n, skip ? i + rows : C, A + (ptrdiff_t)i * C, C, 1, X, n, Y + (ptrdiff_t)i * n, n);
  }
}

STAGE void seed_rebuild(const gdn2_seed_dims *d, const float *A, float *w_pseudo, float *u, float *kg, float *qg, float *gc_last,
                        gdn2_seed_scratch *s, int64_t replaced[4]) {
  const ptrdiff_t keys = (ptrdiff_t)d->C * d->K, values = (ptrdiff_t)d->C * d->V;
  seed_sums(d->C, d->K, s->g, s->gc);
  seed_product(keys, s->b, s->k, s->bk);
  seed_product(values, s->w, s->v, s->wv);
  seed_decays(d, s->q, s->k, s->gc, s);
  seed_lower_product(d->C, d->K, A, s->kb, w_pseudo);
  seed_lower_product(d->C, d->V, A, s->wv, u);
  replaced[0] = seed_sanitize(keys, d->clip, w_pseudo, w_pseudo);
  replaced[1] = seed_sanitize(values, d->clip, u, u);
  replaced[2] = seed_sanitize(keys, d->clip, s->kg, kg);
  replaced[3] = seed_sanitize(keys, d->clip, s->qg, qg);
  seed_sanitize(d->K, d->clip, s->gc + keys - d->K, gc_last);
}

/* D without the clips. */
INLINE void seed_combine_raw(const gdn2_seed_dims *d, int n, const gdn2_seed_chunk *chunk, float *h, float *v_new, int rows,
                             float *o, ptrdiff_t ldo, float *decay) {
  const int C = d->C, K = d->K, V = d->V;
  for (int i = 0; i < C; i++) seed_copy(n, chunk->u + (ptrdiff_t)i * V, v_new + (ptrdiff_t)i * V);
  mul_sub(C, n, K, chunk->w_pseudo, K, 1, h, V, v_new, V);
  mul_set(rows, n, K, chunk->qg, K, 1, h, V, o, ldo);
  for (int i = 0; i < rows; i++) seed_scaled(n, d->scale, o + i * ldo, o + i * ldo);
  mul_add(rows, n, C, chunk->Aqk, C, 1, v_new, V, o, ldo);
  seed_exp(K, chunk->gc_last, decay);
  mul_decay(K, n, C, chunk->kg, 1, K, v_new, V, decay, h, V, h, V);
}

STAGE void seed_combine(const gdn2_seed_dims *d, int n, const gdn2_seed_chunk *chunk, float *h, float *v_new, int rows, float *o,
                        ptrdiff_t ldo, gdn2_seed_scratch *s, int64_t replaced[2]) {
  seed_combine_raw(d, n, chunk, h, v_new, rows, o, ldo, s->row);
  replaced[0] = seed_sanitize_rows(d->K, n, d->clip, h, d->V);
  replaced[1] = seed_sanitize_rows(rows, n, d->clip, o, ldo);
}
