/* Kernel B4: the gradient through the scores.
 *
 *     L = scale q with M = dAqk, and L = b k with M = dAkk;  R = k;  e_ijd as in kernel A;  inside_ijd = 1 where e is not clipped
 *     dL_id = sum_j M_ij e_ijd R_jd      dR_jd = sum_i M_ij e_ijd L_id      dgc_id += W_ijd, dgc_jd -= W_ijd,
 *     W_ijd = M_ij L_id R_jd e_ijd inside_ijd
 *     dq = scale dL_q    db = dL_k k    dk = dR_q + dR_k + dL_k b
 *
 * Blocks of bc x bc in the seed's order; the totals are clipped after each block, as the seed does. Inside a block one vector of
 * channels is worked through at a time: its row sums stay in registers, its column sums in a strip of bc vectors. Cost: C^2 K / 2
 * exponentials and 5 C^2 K multiply-adds.
 */

/* One pass over a block for one vector of channels. */
typedef struct gdn2_seed_strip {
  int left; /* channels in the vector */
  int on_diagonal, everything;
  float *dR, *dgc_j; /* bc vectors */
} gdn2_seed_strip;

typedef struct gdn2_seed_intra {
  const float *dAqk, *dAkk; /* C x C */
  const float *q, *k, *bk, *gc;
  float *dq, *dk, *dbk, *dgc; /* totals so far */
} gdn2_seed_intra;

/* Row i of the block against rows j0 .. of its other side: adds to the strip and to the row's totals. */
INLINE void seed_intra_row(const gdn2_seed_dims *d, const gdn2_seed_intra *x, int i, int j0, int c,
                           const gdn2_seed_strip *strip) {
  const int left = strip->left;
  const ptrdiff_t at = (ptrdiff_t)i * d->K + c, scores = (ptrdiff_t)i * d->C + j0;
  const vf scale = v_set1(d->scale), clip = v_set1(d->clip), gc = v_load_upto(x->gc + at, left);
  const vf Lq = v_mul(scale, v_load_upto(x->q + at, left)), Lk = v_load_upto(x->bk + at, left);
  vf dLq = v_zero(), dLk = v_zero(), dgc = v_zero();
  const int own = i - j0; /* the row's place among the columns of a block on the diagonal */
  const int count = strip->on_diagonal && !strip->everything ? own + 1 : d->bc;
  for (int j = 0; j < count; j++) {
    const float dAqk = strip->on_diagonal && j > own ? 0.0f : x->dAqk[scores + j];
    const float dAkk = strip->on_diagonal && j >= own ? 0.0f : x->dAkk[scores + j];
    const ptrdiff_t other = (ptrdiff_t)(j0 + j) * d->K + c;
    const vf difference = v_sub(gc, v_load_upto(x->gc + other, left)), R = v_load_upto(x->k + other, left);
    const vm inside = v_le(v_abs(difference), v_set1(SEED_PAIR_CLIP));
    const vf e = v_exp(seed_pair_clip(difference));
    const vf Mq = v_mul(v_set1(dAqk), e), Mk = v_mul(v_set1(dAkk), e);
    const vf ML = v_fma(Mk, Lk, v_mul(Mq, Lq)), W = v_keep(inside, v_mul(ML, R));
    dLq = v_fma(Mq, R, dLq);
    dLk = v_fma(Mk, R, dLk);
    dgc = v_add(dgc, W);
    v_store(strip->dR + j * VL, v_add(v_load(strip->dR + j * VL), ML));
    v_store(strip->dgc_j + j * VL, v_add(v_load(strip->dgc_j + j * VL), W));
  }
  v_store_upto(x->dq + at, seed_clean(v_fma(dLq, scale, v_load_upto(x->dq + at, left)), clip), left);
  v_store_upto(x->dbk + at, seed_clean(v_add(v_load_upto(x->dbk + at, left), dLk), clip), left);
  v_store_upto(x->dgc + at, seed_clean(v_add(v_load_upto(x->dgc + at, left), dgc), clip), left);
}

STAGE void seed_intra_block(const gdn2_seed_dims *d, const gdn2_seed_intra *x, int i0, int j0, int everything, float *lanes) {
  const vf clip = v_set1(d->clip);
  for (int c = 0; c < d->K; c += VL) {
    const gdn2_seed_strip strip = {seed_left(d->K, c), i0 == j0, everything, lanes, lanes + d->bc * VL};
    for (int j = 0; j < 2 * d->bc; j++) v_store(lanes + j * VL, v_zero());
    for (int i = i0; i < i0 + d->bc; i++) seed_intra_row(d, x, i, j0, c, &strip);
    for (int j = 0; j < d->bc; j++) {
      const ptrdiff_t at = (ptrdiff_t)(j0 + j) * d->K + c;
      const vf dk = v_add(v_load_upto(x->dk + at, strip.left), v_load(strip.dR + j * VL));
      const vf dgc = v_sub(v_load_upto(x->dgc + at, strip.left), v_load(strip.dgc_j + j * VL));
      v_store_upto(x->dk + at, seed_clean(dk, clip), strip.left);
      v_store_upto(x->dgc + at, seed_clean(dgc, clip), strip.left);
    }
  }
}

STAGE void seed_intra(const gdn2_seed_dims *d, const float *dAqk, const float *dAkk, const gdn2_seed_intra_grads *y,
                      gdn2_seed_scratch *s) {
  float *dq = y->dq, *dk = y->dk, *db = y->db, *dgc = y->dgc;
  const ptrdiff_t keys = (ptrdiff_t)d->C * d->K;
  seed_sums(d->C, d->K, s->g, s->gc);
  seed_product(keys, s->b, s->k, s->bk);
  for (ptrdiff_t x = 0; x < keys; x++) dq[x] = dk[x] = db[x] = dgc[x] = 0.0f;
  /* The seed visits the pairs above the diagonal too, with M = 0. That matters only where an operand is not finite. */
  const int finite =
      seed_all_finite(keys, s->q) && seed_all_finite(keys, s->k) && seed_all_finite(keys, s->bk) && seed_all_finite(keys, s->gc);
  const gdn2_seed_intra x = {dAqk, dAkk, s->q, s->k, s->bk, s->gc, dq, dk, db, dgc};
  for (int i0 = 0; i0 < d->C; i0 += d->bc)
    for (int j0 = 0; j0 <= i0; j0 += d->bc) seed_intra_block(d, &x, i0, j0, !finite, s->lanes);
  /* db holds the gradient of b k so far. */
  for (ptrdiff_t at = 0; at < keys; at += VL) {
    const int left = seed_left(keys, at);
    const vf clip = v_set1(d->clip), dbk = v_load_upto(db + at, left);
    const vf through_b = v_mul(dbk, v_load_upto(s->b + at, left));
    v_store_upto(dk + at, seed_clean(v_add(v_load_upto(dk + at, left), through_b), clip), left);
    v_store_upto(db + at, seed_clean(v_mul(dbk, v_load_upto(s->k + at, left)), clip), left);
  }
}
