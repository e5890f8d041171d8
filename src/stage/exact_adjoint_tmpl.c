/* The adjoint of solve and output.
 *
 *     dR = P^T dO + Ktail dS1                                        (20)   Ktail dS1 comes in the rows of dX
 *     dX = (I + T)^-T dR                  backward substitution      (21)
 *     dv = w dX,  dw = v dX                                          (31)   and on to the raw write gate
 *
 * Cost: 2 C V multiply-adds per token. */
#include "stage/exact.h"

INLINE void adjoint_solve_group(gdn2_shape s, int n, const gdn2_scores *scores, int vecs, int m, float *DY) {
  const float *dO = DY + (ptrdiff_t)n * s.Vp;
  for (int j = n - 1; j >= 0; j--) {
    vf r[8];
    UNROLL
    for (int x = 0; x < vecs; x++) r[x] = v_load(DY + (ptrdiff_t)j * s.Vp + m + x * VL);
    for (int i = j; i < n; i++) {
      const vf p = v_set1(scores->P[i * GDN2_CHUNK + j]);
      UNROLL
      for (int x = 0; x < vecs; x++) r[x] = v_fma(p, v_load(dO + (ptrdiff_t)i * s.Vp + m + x * VL), r[x]);
    }
    for (int i = j + 1; i < n; i++) {
      const vf t = v_set1(scores->T[i * GDN2_CHUNK + j]);
      UNROLL
      for (int x = 0; x < vecs; x++) r[x] = v_fnma(t, v_load(DY + (ptrdiff_t)i * s.Vp + m + x * VL), r[x]);
    }
    UNROLL
    for (int x = 0; x < vecs; x++) v_store(DY + (ptrdiff_t)j * s.Vp + m + x * VL, r[x]);
  }
}

STAGE void stage_adjoint_solve(gdn2_shape s, int n, const gdn2_scores *scores, float *DY) {
#define CALL(VECS, AT) adjoint_solve_group(s, n, scores, VECS, (AT)*VL, DY)
  BY_GROUPS(s.Vp / VL, GROUP, CALL);
#undef CALL
}

/* Stores x as channels m.. of token t, or adds it to the token's sum where the output is one number per head. */
INLINE void emit(const gdn2_rows_out *out, int64_t t, int m, int count, vf x, vf *sum) {
  if (!out->at) return;
  if (out->channel)
    row_store(out, t, m, x, count);
  else
    *sum = v_add(*sum, v_head(x, count));
}

INLINE void emit_sum(const gdn2_rows_out *out, int64_t t, vf sum) {
  if (out->at && !out->channel) gdn2_number_to(out->at + t * out->step * gdn2_dtype_size(out->dtype), out->dtype, v_sum(sum));
}

/* Given gates and float32 rows throughout, which is what most callers have. */
INLINE void values_plain(gdn2_shape s, gdn2_rows v, gdn2_rows w, gdn2_rows_out dv, gdn2_rows_out dw, int64_t t0, int n,
                         const float *dX) {
  for (int64_t t = t0; t < t0 + n; t++, dX += s.Vp) {
    const float *v_row = (const float *)(const void *)v.at + t * v.step, *w_row = (const float *)(const void *)w.at + t * w.step;
    float *dv_row = (float *)(void *)dv.at + t * dv.step, *dw_row = (float *)(void *)dw.at + t * dw.step;
    for (int m = 0; m < s.V; m += VL) {
      const int count = s.V - m;
      const vf dx = v_load(dX + m);
      v_store_upto(dv_row + m, v_mul(v_load_upto(w_row + m, count), dx), count);
      v_store_upto(dw_row + m, v_mul(v_load_upto(v_row + m, count), dx), count);
    }
  }
}

INLINE int is_plain_in(const gdn2_rows *rows) { return rows->at && rows->channel && rows->dtype == GDN2_F32; }
INLINE int is_plain_out(const gdn2_rows_out *rows) { return rows->at && rows->channel && rows->dtype == GDN2_F32; }

STAGE void stage_values(gdn2_shape s, const gdn2_head *head, int64_t t0, int n, const float *dX, const gdn2_head_grad *out) {
  const gdn2_gate form = head->w.at ? head->rule.write : GDN2_GATE_GIVEN;
  if (form == GDN2_GATE_GIVEN && is_plain_in(&head->v) && is_plain_in(&head->w) && is_plain_out(&out->dv) &&
      is_plain_out(&out->dw)) {
    values_plain(s, head->v, head->w, out->dv, out->dw, t0, n, dX);
    return;
  }
  for (int t = 0; t < n; t++) {
    vf dv_sum = v_zero(), dw_sum = v_zero();
    for (int m = 0; m < s.V; m += VL) {
      const int count = s.V - m;
      const vf dx = v_load(dX + (ptrdiff_t)t * s.Vp + m), w = row_load(&head->w, t0 + t, m, count);
      emit(&out->dv, t0 + t, m, count, v_mul(gate_value(form, w), dx), &dv_sum);
      emit(&out->dw, t0 + t, m, count, gate_chain(form, w, v_mul(row_load(&head->v, t0 + t, m, count), dx)), &dw_sum);
    }
    emit_sum(&out->dw, t0 + t, dw_sum);
  }
}
