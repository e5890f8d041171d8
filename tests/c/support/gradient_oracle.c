/* Gradients in float64: of the finished problem by the oracle, of what the caller gave by the chain rule, written out. */
#include <math.h>

#include "gradient.h"
#include "ref.h"
#include "test.h"

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double sigmoid_slope(double x) { return sigmoid(x) * sigmoid(-x); }

/* A product with a gradient that has vanished; the slope beside it may be infinite. */
static double times(double dy, double slope) { return dy == 0 ? 0 : dy * slope; }

static double *zeros(size_t count) {
  double *x = test_doubles(count);
  for (size_t i = 0; i < count; i++) x[i] = 0;
  return x;
}

/* One sequence: B = 1, no cu; rows of `full` are those of value heads. */
typedef struct sequence {
  const width_case *c;
  double *full[D_H0 + 1]; /* by the finished inputs */
  double **out;           /* where the sums over sequences are */
  int64_t start;          /* the first token among those of out */
  double squares[GRADIENTS];
} sequence;

/* The row of an output that value head j adds to at token t, and its channel d. */
static double *place(const sequence *s, int gradient, int64_t t, int64_t j, int64_t d) {
  const tensor shape = width_tensor(s->c, gradient);
  const int64_t head = shape.shape[2] == s->c->HV ? j : width_key_head(s->c, j);
  return s->out[gradient] + ((s->start + t) * shape.shape[2] + head) * shape.shape[3] + (shape.shape[3] == 1 ? 0 : d);
}

static int64_t channels_of(const width_case *c, int gradient) { return gradient == D_V || gradient == D_W ? c->V : c->K; }

static void add_plain(const sequence *s, int gradient) {
  const int64_t channels = channels_of(s->c, gradient);
  for (int64_t t = 0; t < s->c->T; t++)
    for (int64_t j = 0; j < s->c->HV; j++)
      for (int64_t d = 0; d < channels; d++) *place(s, gradient, t, j, d) += s->full[gradient][(t * s->c->HV + j) * channels + d];
}

/* y = x / sqrt(|x|^2 + 1e-6) */
static void add_normalized(const sequence *s, int gradient) {
  const int64_t K = s->c->K;
  for (int64_t t = 0; t < s->c->T; t++)
    for (int64_t j = 0; j < s->c->HV; j++) {
      const double *x = width_row(s->c, gradient, 0, t, width_key_head(s->c, j));
      const double *dy = s->full[gradient] + (t * s->c->HV + j) * K;
      double square = 1e-6, along = 0;
      for (int64_t d = 0; d < K; d++) square += x[d] * x[d], along += x[d] * dy[d];
      for (int64_t d = 0; d < K; d++) *place(s, gradient, t, j, d) += (dy[d] - x[d] * along / square) / sqrt(square);
    }
}

static void add_gate(const sequence *s, int gradient, gdn2_gate form) {
  const int64_t channels = channels_of(s->c, gradient);
  for (int64_t t = 0; t < s->c->T; t++)
    for (int64_t j = 0; j < s->c->HV; j++)
      for (int64_t d = 0; d < channels; d++) {
        const tensor shape = width_tensor(s->c, gradient);
        const int64_t head = shape.shape[2] == s->c->HV ? j : width_key_head(s->c, j);
        const double x = width_row(s->c, gradient, 0, t, head)[shape.shape[3] == 1 ? 0 : d];
        const double slope = (form == GDN2_GATE_SIGMOID ? 1 : 2) * sigmoid_slope(x);
        *place(s, gradient, t, j, d) += s->full[gradient][(t * s->c->HV + j) * channels + d] * slope;
      }
}

static void add_decay(sequence *s) {
  const width_case *c = s->c;
  const tensor g = width_tensor(c, W_G), dt = width_tensor(c, W_DT);
  for (int64_t t = 0; t < c->T; t++)
    for (int64_t j = 0; j < c->HV; j++) {
      const int64_t head = c->g_key_heads ? width_key_head(c, j) : j;
      const double rate = exp(c->in[W_A][head]);
      for (int64_t d = 0; d < c->K; d++) {
        const int64_t at = head * dt.shape[3] + (dt.shape[3] == 1 ? 0 : d);
        const double u = width_row(c, W_G, 0, t, head)[g.shape[3] == 1 ? 0 : d] + (c->in[W_DT] ? c->in[W_DT][at] : 0);
        const double dg = s->full[D_G][(t * c->HV + j) * c->K + d];
        const bool bounded = c->decay == GDN2_DECAY_BOUNDED;
        const double slope = bounded ? c->lower_bound * sigmoid_slope(rate * u) * rate : -rate * sigmoid(u);
        const double by_A = bounded ? times(c->lower_bound * sigmoid_slope(rate * u), rate * u) : -rate * softplus(u);
        const double dx = times(dg, slope), dA = times(dg, by_A);
        *place(s, D_G, t, j, d) += dx;
        s->out[D_DT][at] += dx;
        s->out[D_A][head] += dA;
        s->squares[D_DT] += dx * dx;
        s->squares[D_A] += dA * dA;
      }
    }
}

static void add_sequence(const gradient_case *x, gradient_truth *truth, double *dh0, int64_t start) {
  const width_case *c = &x->c;
  sequence s = {.c = c, .out = truth->values, .start = start};
  for (int i = 0; i < D_H0; i++) s.full[i] = zeros((size_t)(c->T * c->HV * channels_of(c, i)));
  const ref_problem p = {.B = 1,
                         .T = c->T,
                         .H = c->HV,
                         .K = c->K,
                         .V = c->V,
                         .q = width_finished(c, W_Q),
                         .k = width_finished(c, W_K),
                         .v = width_finished(c, W_V),
                         .g = width_finished(c, W_G),
                         .b = width_finished(c, W_B),
                         .w = width_finished(c, W_W),
                         .h0 = c->in[W_H0],
                         .scale = c->scale ? *c->scale : 1 / sqrt((double)c->K)};
  const ref_gradients grad = {s.full[D_Q], s.full[D_K], s.full[D_V], s.full[D_G], s.full[D_B], s.full[D_W], dh0};
  assert_int_equal(ref_backward(&p, x->d_o, x->dh_final, &grad), 0);
  for (int i = D_Q; i <= D_K; i++) (c->l2norm ? add_normalized : add_plain)(&s, i);
  add_plain(&s, D_V);
  if (c->decay == GDN2_DECAY_LOG)
    add_plain(&s, D_G);
  else
    add_decay(&s);
  const gdn2_gate forms[] = {c->erase, c->write};
  for (int i = D_B; i <= D_W; i++)
    if (forms[i - D_B] == GDN2_GATE_GIVEN)
      add_plain(&s, i);
    else
      add_gate(&s, i, forms[i - D_B]);
  for (int i = D_A; i <= D_DT; i++) truth->spread[i] += s.squares[i];
}

gradient_truth gradient_oracle(const gradient_case *x) {
  gradient_truth truth = {.spread = {0}};
  for (int i = 0; i < GRADIENTS; i++) {
    const tensor t = gradient_tensor(x, i);
    truth.values[i] = zeros(tensor_count(&t));
  }
  for (int64_t n = 0; n < x->c.N; n++) {
    const void *mark = test_mark();
    const gradient_case part = gradient_sequence(x, n);
    add_sequence(&part, &truth, truth.values[D_H0] + n * x->c.HV * x->c.K * x->c.V, x->c.cu ? x->c.cu[n] : n * x->c.T);
    test_release_to(mark);
  }
  for (int i = D_A; i <= D_DT; i++) {
    const tensor t = gradient_tensor(x, i);
    truth.spread[i] = tensor_count(&t) ? sqrt(truth.spread[i] / (double)tensor_count(&t)) : 0;
  }
  return truth;
}

double gradient_loss(const gradient_case *x) {
  const void *mark = test_mark();
  const width_truth y = width_oracle(&x->c);
  const tensor o = width_o_tensor(&x->c), h = width_h_tensor(&x->c);
  double sum = 0;
  for (size_t i = 0; x->d_o && i < tensor_count(&o); i++) sum += y.o[i] * x->d_o[i];
  for (size_t i = 0; x->dh_final && i < tensor_count(&h); i++) sum += y.h_final[i] * x->dh_final[i];
  test_release_to(mark);
  return sum;
}
