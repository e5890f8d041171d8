/* The schedule: validated calls of the exact engine, ready to be driven over batch, heads and chunks. */
#ifndef GDN2_DRIVE_DRIVE_H
#define GDN2_DRIVE_DRIVE_H
#include "base/view.h"
#include "isa/table.h"

/* No panel of value channels is narrower, unless V is. */
#define GDN2_NARROWEST 32

/* Outputs of a call beyond so many bytes are written past the caches: no line is read only to be overwritten, which is a third of
 * a convolution's traffic. What is smaller stays where its reader will find it. Not asked of the machine: a virtual one is shown
 * the last-level cache of a whole server, of which it has a part unknown. */
#define GDN2_STREAM_BYTES ((int64_t)32 << 20)
static inline int gdn2_streams(int64_t bytes) { return bytes > GDN2_STREAM_BYTES; }

static inline int64_t gdn2_ceil_div(int64_t x, int64_t y) { return x / y + (x % y != 0); }

/* A validated call: every view fits the sizes. */
typedef struct gdn2_call {
  int64_t B, T, H, HV, K, V, N;
  int f64; /* every tensor is float64, and so is the arithmetic */
  gdn2_view q, k, v, g, b, w, h0, A_log, dt_bias;
  double scale, lower_bound;
  gdn2_head_map map;
  int g_key_heads, b_key_heads, l2norm;
  const void *cu_seqlens; /* NULL: sequence n is row n of the batch */
  gdn2_index cu_type;
  gdn2_decay decay;
  gdn2_gate erase, write;
  const gdn2_table *table;
  int threads; /* workers, at least 1 and no more than there can be tasks */
  gdn2_profile *profile;
} gdn2_call;

/* Where sequence n lies. */
typedef struct gdn2_span {
  int64_t sequence, batch, start, length;
} gdn2_span;

static inline int64_t gdn2_index_at(const void *indices, gdn2_index type, int64_t n) {
  return type == GDN2_I64 ? ((const int64_t *)indices)[n] : ((const int32_t *)indices)[n];
}

static inline int64_t gdn2_offset(const gdn2_call *call, int64_t n) { return gdn2_index_at(call->cu_seqlens, call->cu_type, n); }

static inline gdn2_span gdn2_span_of(const gdn2_call *call, int64_t n) {
  if (!call->cu_seqlens) return (gdn2_span){n, n, 0, call->T};
  const int64_t start = gdn2_offset(call, n);
  return (gdn2_span){n, 0, start, gdn2_offset(call, n + 1) - start};
}

/* Tokens of the longest sequence. */
static inline int64_t gdn2_longest(const gdn2_call *call) {
  int64_t longest = call->cu_seqlens ? 0 : call->T;
  for (int64_t n = 0; call->cu_seqlens && n < call->N; n++) {
    const int64_t length = gdn2_span_of(call, n).length;
    if (length > longest) longest = length;
  }
  return longest;
}

/* Heads of g, its parameters and their gradients; of b. */
static inline int64_t gdn2_g_heads(const gdn2_call *call) { return call->g_key_heads ? call->H : call->HV; }
static inline int64_t gdn2_b_heads(const gdn2_call *call) { return call->b_key_heads ? call->H : call->HV; }

/* The key head that value head j reads, and number r of the value heads that read key head i. */
static inline int64_t gdn2_key_head(const gdn2_call *call, int64_t j) {
  if (call->HV == call->H) return j; /* a division takes longer than all else here */
  return call->map == GDN2_HEADS_TILED ? j % call->H : j / (call->HV / call->H);
}
static inline int64_t gdn2_value_head(const gdn2_call *call, int64_t i, int64_t r) {
  return call->map == GDN2_HEADS_TILED ? r * call->H + i : i * (call->HV / call->H) + r;
}

typedef struct gdn2_forward_call {
  gdn2_call in;
  gdn2_view_out o, h_final, residual;
  gdn2_states_view snapshots;
  int64_t snapshot_every;
} gdn2_forward_call;

typedef struct gdn2_backward_call {
  gdn2_call in;
  gdn2_view d_o, dh_final;
  gdn2_view residual; /* the forward's R; absent: computed again */
  gdn2_view_out dq, dk, dv, dg, db, dw, dh0, dA_log, ddt_bias;
  int64_t checkpoint_every;   /* chunks from one kept state to the next; 0: the default */
  gdn2_states_view snapshots; /* the forward's, float32; absent: states are computed again */
  int64_t snapshot_every;
} gdn2_backward_call;

/* Bytes of workspace, a multiple of the alignment; SIZE_MAX: more than there can be. */
size_t gdn2_forward_bytes(const gdn2_call *call);
size_t gdn2_backward_bytes(const gdn2_backward_call *call);

/* workspace: GDN2_ALIGN-aligned, of that many bytes. */
void gdn2_drive_forward(const gdn2_forward_call *call, void *workspace);
void gdn2_drive_backward(const gdn2_backward_call *call, void *workspace);
#endif
