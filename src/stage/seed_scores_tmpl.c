/* Kernel A: the scores of a chunk.
 *
 *     Aqk_ij = scale sum_d q_id e_ijd k_jd  (j <= i)      Akk_ij = sum_d bk_id e_ijd k_jd  (j < i)      zero elsewhere
 *     e_ijd  = exp(clip(gc_id - gc_jd, -20, 20))
 *
 * Every pair has its own exponent, so nothing can overflow; the clip makes decays stronger than e^-20 count as e^-20. Cost: C^2 K
 * / 2 exponentials, most of the time of the forward. The seed's blocks of bc change nothing in the values: a pair is a sum of its
 * own.
 */
#define SEED_PAIR_CLIP 20.0f

/* clip(x, -20, 20); NaN stays. */
INLINE vf seed_pair_clip(vf x) { return v_min(v_set1(SEED_PAIR_CLIP), v_max(v_set1(-SEED_PAIR_CLIP), x)); }

/* sum_d q e k and sum_d bk e k of one pair of rows. */
INLINE void seed_pair(int K, const float *q, const float *bk, const float *gc_i, const float *k, const float *gc_j, float *qk,
                      float *kk) {
  vf sum_q = v_zero(), sum_k = v_zero();
  for (int d = 0; d < K; d += VL) {
    const int left = seed_left(K, d);
    const vf e = v_exp(seed_pair_clip(v_sub(v_load_upto(gc_i + d, left), v_load_upto(gc_j + d, left))));
    const vf key = v_load_upto(k + d, left);
    sum_q = v_fma(v_mul(v_load_upto(q + d, left), e), key, sum_q);
    sum_k = v_fma(v_mul(v_load_upto(bk + d, left), e), key, sum_k);
  }
  *qk = v_sum(sum_q);
  *kk = v_sum(sum_k);
}

/* Both score matrices before any clip. */
STAGE void seed_raw_scores(const gdn2_seed_dims *d, const float *q, const float *bk, const float *k, const float *gc, float *Aqk,
                           float *Akk) {
  const int C = d->C, K = d->K;
  for (int i = 0; i < C; i++) {
    float *qk = Aqk + (ptrdiff_t)i * C, *kk = Akk + (ptrdiff_t)i * C;
    const ptrdiff_t at = (ptrdiff_t)i * K;
    for (int j = 0; j <= i; j++) {
      seed_pair(K, q + at, bk + at, gc + at, k + (ptrdiff_t)j * K, gc + (ptrdiff_t)j * K, qk + j, kk + j);
      qk[j] *= d->scale;
    }
    kk[i] = 0.0f;
    for (int j = i + 1; j < C; j++) qk[j] = kk[j] = 0.0f;
  }
}

STAGE void seed_scores(const gdn2_seed_dims *d, const float *q, const float *k, const float *b, const float *g, float *Aqk,
                       float *Akk, gdn2_seed_scratch *s, int64_t replaced[2]) {
  const ptrdiff_t all = (ptrdiff_t)d->C * d->C;
  seed_sums(d->C, d->K, g, s->gc);
  seed_product((ptrdiff_t)d->C * d->K, b, k, s->bk);
  seed_raw_scores(d, q, s->bk, k, s->gc, Aqk, Akk);
  replaced[0] = seed_sanitize(all, d->clip, Aqk, Aqk);
  replaced[1] = seed_sanitize(all, d->clip, Akk, Akk);
}
