/* Making float64 problems, and calling the library on them. */
#include <math.h>

#include "double.h"
#include "test.h"

static const char *const names[W_INPUTS] = {"dq", "dk", "dv", "dg", "db", "dw", "dh0", "dA_log", "ddt_bias"};

static double *normal_array(size_t count, uint64_t seed, double deviation) {
  rng r = {seed};
  double *x = test_doubles(count);
  for (size_t i = 0; i < count; i++) x[i] = deviation * rng_normal(&r);
  return x;
}

double_problem double_new(const width_case *c, uint64_t seed) {
  double_problem x = {.c = *c};
  rng r = {seed + 77};
  for (int i = 0; i < W_INPUTS; i++) {
    x.c.dtype[i] = GDN2_F64;
    if (!c->in[i]) continue;
    width_own(&x.c, i);
    for (size_t n = 0; n < width_count(c, i); n++) x.c.in[i][n] *= 1 + 1e-8 * rng_uniform(&r, -1, 1);
  }
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  x.d_o = normal_array(tensor_count(&o), seed + 78, 1);
  x.dh_final = normal_array(tensor_count(&h), seed + 79, 0.5);
  return x;
}

/* ---- Random options ---- */

static int64_t below(rng *r, int64_t n) { return (int64_t)(rng_next(r) % (uint64_t)n); }

static void choose_heads(width_case *c, rng *r) {
  c->map = (gdn2_head_map)below(r, 2);
  if (below(r, 2)) width_make_key_gate(c, W_G);
  if (below(r, 2)) width_make_key_gate(c, W_B);
}

static void choose_gates(width_case *c, rng *r) {
  const gdn2_decay decay = (gdn2_decay)below(r, 3);
  if (decay != GDN2_DECAY_LOG) width_make_raw_decay(c, decay, rng_next(r) % 1000);
  width_make_raw_gates(c, (gdn2_gate)below(r, 3), (gdn2_gate)below(r, 2), rng_next(r) % 1000);
  for (int gate = W_G; gate <= W_W; gate++)
    if (below(r, 3) == 0) width_make_per_head(c, gate);
  if (c->in[W_DT] && below(r, 3) == 0) width_make_per_head(c, W_DT);
  if (c->in[W_DT] && below(r, 4) == 0) c->in[W_DT] = NULL;
  if (c->decay == GDN2_DECAY_LOG && below(r, 4) == 0) c->in[W_G] = NULL;
  if (c->erase == GDN2_GATE_GIVEN && below(r, 4) == 0) c->in[W_B] = NULL;
  if (c->write == GDN2_GATE_GIVEN && below(r, 4) == 0) c->in[W_W] = NULL;
}

double_problem double_any(uint64_t seed) {
  static const int64_t cuts[][5] = {{0, 3, 3, 8, 9}, {0, 0, 1, 5, 11}, {0, 2, 4, 4, 4}};
  static const double scales[] = {-0.75, 1.5};
  rng r = {seed};
  const bool cut = below(&r, 2) == 0;
  width_case c = width_new(seed, cut ? 1 : 2, cut ? 11 : 5, 2, 2 * (1 + below(&r, 3)), 3, 4);
  choose_heads(&c, &r);
  choose_gates(&c, &r);
  if (below(&r, 3) == 0) c.in[W_H0] = NULL;
  if (cut) width_cut(&c, cuts[below(&r, 3)], 4, seed);
  c.cu_type = (gdn2_index)below(&r, 2);
  c.l2norm = below(&r, 2);
  const int64_t which = below(&r, 3);
  if (which < 2) c.scale = &scales[which];
  double_problem x = double_new(&c, seed);
  for (int gate = W_G; gate <= W_W; gate++) x.summed[gate] = below(&r, 3) == 0;
  x.summed[W_DT] = below(&r, 3) == 0;
  if (below(&r, 5) == 0) x.d_o = NULL;
  if (x.d_o && below(&r, 4) == 0) x.dh_final = NULL;
  return x;
}

const char *double_options(const double_problem *x, char text[256]) {
  const width_case *c = &x->c;
  int n = snprintf(text, 256, "decay %d erase %d write %d norm %d map %d HV %d keys g%d b%d %s", c->decay, c->erase, c->write,
                   c->l2norm, c->map, (int)c->HV, c->g_key_heads, c->b_key_heads, c->cu ? "cut" : "rows");
  for (int i = W_G; i < W_INPUTS; i++)
    n += snprintf(text + n, 256 - (size_t)n, " %s:%s%s", names[i] + 1,
                  !c->in[i]        ? "absent"
                  : c->per_head[i] ? "head"
                                   : "full",
                  x->summed[i] ? "/summed" : "");
  return text;
}

/* ---- Calls ---- */

unsigned double_gradients(const double_problem *x) {
  const unsigned parameters = 1u << W_A | 1u << W_DT;
  return x->c.decay == GDN2_DECAY_LOG ? DOUBLE_GRADIENTS & ~parameters : DOUBLE_GRADIENTS;
}

tensor double_tensor(const double_problem *x, int gradient) {
  tensor t = width_tensor(&x->c, gradient);
  t.name = names[gradient];
  if (x->summed[gradient]) t.shape[3] = 1;
  return t;
}

static width_buffer given(tensor t, const double *from, const width_layout *layout, bool is_state) {
  const width_buffer buffer = width_buffer_new(t, GDN2_F64, layout, is_state, false);
  width_buffer_store(&buffer, from);
  test_lock(buffer.base);
  return buffer;
}

double_call double_call_new(const double_problem *x, unsigned wanted, const width_layout *layout) {
  double_call call = {.wanted = wanted, .width = width_call_new(&x->c, GDN2_F64, layout)};
  gdn2_backward_args *b = &call.backward;
  *b = (gdn2_backward_args){.struct_size = sizeof *b, .problem = call.width.args.problem};
  if (x->d_o) call.d_o = given(width_o_tensor(&x->c), x->d_o, layout, false);
  if (x->dh_final) call.dh_final = given(width_h_tensor(&x->c), x->dh_final, layout, true);
  if (x->d_o) b->d_o = width_input(&call.d_o);
  if (x->dh_final) b->dh_final = width_input(&call.dh_final);
  gdn2_output *const to[W_INPUTS] = {&b->dq, &b->dk, &b->dv, &b->dg, &b->db, &b->dw, &b->dh0, &b->dA_log, &b->ddt_bias};
  for (int i = 0; i < W_INPUTS; i++) {
    const bool per_head = (i >= W_G && i <= W_W) || i == W_DT ? x->summed[i] || x->c.per_head[i] : false;
    if (!(wanted >> i & 1)) continue;
    call.grad[i] = width_buffer_new(double_tensor(x, i), GDN2_F64, layout, i == W_H0, per_head);
    *to[i] = width_output(&call.grad[i]);
  }
  b->exec.threads = call.width.args.exec.threads = 1;
  if (!(wanted & DOUBLE_O)) call.width.args.o.data = NULL;
  if (!(wanted & DOUBLE_H_FINAL)) call.width.args.h_final.data = NULL;
  return call;
}

static double *taken(const width_buffer *buffer) {
  double *x = test_doubles(tensor_count(&buffer->t));
  width_buffer_expect_gaps(buffer);
  width_buffer_load_wide(buffer, x);
  return x;
}

double_result double_call_run(const double_problem *x, double_call *call) {
  char text[256];
  double_result r = {.o = NULL};
  const bool forward = call->wanted & (DOUBLE_O | DOUBLE_H_FINAL), backward = call->wanted & DOUBLE_GRADIENTS;
  if (forward && gdn2_forward(&call->width.args) != GDN2_OK)
    fail_msg("gdn2_forward: %s (%s)", gdn2_last_error(), double_options(x, text));
  if (backward && gdn2_backward(&call->backward) != GDN2_OK)
    fail_msg("gdn2_backward: %s (%s)", gdn2_last_error(), double_options(x, text));
  if (call->wanted & DOUBLE_O) r.o = taken(&call->width.o);
  if (call->wanted & DOUBLE_H_FINAL) r.h_final = taken(&call->width.h_final);
  for (int i = 0; i < W_INPUTS; i++)
    if (call->wanted >> i & 1) r.grad[i] = taken(&call->grad[i]);
  return r;
}

double_result double_run(const double_problem *x, unsigned wanted) {
  double_call call = double_call_new(x, wanted, &width_contiguous);
  return double_call_run(x, &call);
}
