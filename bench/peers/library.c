/* library.c - the exact rule of libgdn2 behind three functions with plain arguments, for library.py. Compiled when the benchmark
 * starts, so that the structures are always those of the header at hand. */
#include <gdn2.h>

/* Contiguous arrays; g, b and w [B, T, H] where per_head says so, else [B, T, H, K or V]; NULL: absent. */
typedef struct arrays {
  int64_t B, T, H, K, V;
  const void *q, *k, *v, *g, *b, *w;
  int g_per_head, b_per_head, dtype /* of all but g */, threads;
} arrays;

/* States [slots, H, K, V], float32, and the slot of each row. A_log and dt_bias [H]: then g, b and w are what they are made of,
 * all of the arrays' dtype, and q and k are normalised too; NULL: they are finished. */
typedef struct pool {
  float *states;
  const int32_t *slot;
  int64_t slots;
  const float *A_log, *dt_bias;
} pool;

static gdn2_input gate(const void *data, int per_head, int dtype, const arrays *a) {
  if (per_head && data) return gdn2_per_head(data, (gdn2_dtype)dtype, a->T, a->H);
  return (gdn2_input){.data = data, .dtype = (gdn2_dtype)dtype};
}

static gdn2_output gate_out(void *data, int per_head, const arrays *a) {
  return per_head && data ? gdn2_per_head_out(data, GDN2_F32, a->T, a->H) : (gdn2_output){.data = data};
}

static gdn2_problem problem(const arrays *a) {
  const gdn2_dtype dtype = (gdn2_dtype)a->dtype;
  return (gdn2_problem){.B = a->B,
                        .T = a->T,
                        .H = a->H,
                        .K = a->K,
                        .V = a->V,
                        .q = {.data = a->q, .dtype = dtype},
                        .k = {.data = a->k, .dtype = dtype},
                        .v = {.data = a->v, .dtype = dtype},
                        .g = gate(a->g, a->g_per_head, GDN2_F32, a),
                        .b = gate(a->b, a->b_per_head, a->dtype, a),
                        .w = gate(a->w, a->b_per_head, a->dtype, a)};
}

enum { SNAPSHOT_EVERY = 128 };

/* o: of the arrays' dtype; for the backward, or NULL: snapshots [B, T / SNAPSHOT_EVERY, H, K, V] and residual [B, T, H, V].
 * Returns 0, or gdn2_last_error() has the sentence. */
int bench_forward(const arrays *a, void *o, float *snapshots, float *residual) {
  const gdn2_forward_args args = {.struct_size = sizeof args,
                                  .problem = problem(a),
                                  .o = {.data = o, .dtype = (gdn2_dtype)a->dtype},
                                  .snapshots = {.data = snapshots},
                                  .snapshot_every = snapshots ? SNAPSHOT_EVERY : 0,
                                  .residual = {.data = residual},
                                  .exec = {.threads = a->threads}};
  return (int)gdn2_forward(&args);
}

/* d: dq, dk, dv, dg, db, dw, float32; snapshots, residual: the forward's. */
int bench_backward(const arrays *a, const float *d_o, float *snapshots, float *residual, float *const d[6]) {
  const gdn2_backward_args args = {.struct_size = sizeof args,
                                   .problem = problem(a),
                                   .d_o = {.data = d_o},
                                   .dq = {.data = d[0]},
                                   .dk = {.data = d[1]},
                                   .dv = {.data = d[2]},
                                   .dg = gate_out(d[3], a->g_per_head, a),
                                   .db = gate_out(d[4], a->b_per_head, a),
                                   .dw = gate_out(d[5], a->b_per_head, a),
                                   .snapshots = {.data = snapshots},
                                   .snapshot_every = SNAPSHOT_EVERY,
                                   .residual = {.data = residual},
                                   .exec = {.threads = a->threads}};
  return (int)gdn2_backward(&args);
}

/* One token of every row; o: of the arrays' dtype. */
int bench_decode(const arrays *a, const pool *p, void *o) {
  gdn2_step_args args = {.struct_size = sizeof args,
                         .problem = problem(a),
                         .o = {.data = o, .dtype = (gdn2_dtype)a->dtype},
                         .from = {.data = p->states},
                         .to = {.data = p->states},
                         .slot = p->slot,
                         .slots = p->slots,
                         .exec = {.threads = a->threads}};
  if (p->A_log) {
    args.problem.g.dtype = (gdn2_dtype)a->dtype;
    args.problem.decay = GDN2_DECAY_SOFTPLUS;
    args.problem.A_log = (gdn2_input){.data = p->A_log};
    args.problem.dt_bias = (gdn2_input){.data = p->dt_bias, .stride = {0, 0, 1, 0}};
    args.problem.erase = args.problem.write = GDN2_GATE_SIGMOID;
    args.problem.qk_l2norm = 1;
  }
  return (int)gdn2_step(&args);
}
