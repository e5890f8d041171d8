/* The end of the backward: B3 and B4 added, B5, and the final clip.
 *
 *     dg_i = sum_{j >= i} (dgc3 + dgc4)_j inside the chunk, clipped;   every gradient then clipped to +-1e4
 */
#define SEED_FINAL_CLIP 1e4f

INLINE void seed_add_final(ptrdiff_t n, const float *a, float *sum) {
  seed_sum(n, a, sum, sum);
  seed_sanitize(n, SEED_FINAL_CLIP, sum, sum);
}

STAGE void seed_assemble(const gdn2_seed_dims *d, const gdn2_seed_wy_grads *sum, const gdn2_seed_intra_grads *y,
                         gdn2_seed_scratch *s) {
  const ptrdiff_t keys = (ptrdiff_t)d->C * d->K, values = (ptrdiff_t)d->C * d->V;
  seed_add_final(keys, y->dq, sum->dq);
  seed_add_final(keys, y->dk, sum->dk);
  seed_add_final(keys, y->db, sum->db);
  seed_sum(keys, sum->dgc, y->dgc, s->kb);
  seed_reverse_sums(d->C, d->K, s->kb, sum->dgc);
  seed_sanitize(keys, d->clip, sum->dgc, sum->dgc);
  seed_sanitize(keys, SEED_FINAL_CLIP, sum->dgc, sum->dgc);
  seed_sanitize(values, SEED_FINAL_CLIP, sum->dw, sum->dw);
  seed_sanitize(values, SEED_FINAL_CLIP, sum->dv_raw, sum->dv_raw);
}
