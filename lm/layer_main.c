/* gdn2-layer: a text through one Gated DeltaNet-2 layer; the tensors of the rule as one .safetensors file for `gdn2 run` and
 * `gdn2 check`. Exit codes: 0 done, 1 failed, 2 wrong use. */
#include "lm/data.h"
#include "lm/linear.h"
#include "lm/model.h"
#include "lm/random.h"
#include "lm/text.h"
#include "io/tensor_file.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXIT_USE 2

/* Random streams of the gradients, beside those of the parameters. */
#define STREAM_D_O 1000
#define STREAM_DH_FINAL 1001

static const char help[] = //
    "usage: gdn2-layer TEXT... --out FILE [options]\n"
    "\n"
    "Passes the bytes of the texts, one after the other, through one Gated DeltaNet-2 layer with random weights, and writes\n"
    "q k v g b w (and the random gradients do and dh_final) for `gdn2 run --backward --in FILE` and `gdn2 check --in FILE`.\n"
    "\n"
    "  --out FILE          where the tensors go (.safetensors)\n"
    "  --tokens N          bytes taken from the text, at most; default 4096\n"
    "  --heads N           default 6\n"
    "  --head-dim N        size of keys and values of a head, 1 to 256; default 128\n"
    "  --d-model N         width of the model; default heads times head size\n"
    "  --seed N            of the weights and gradients; default 1\n"
    "  --weights-out FILE  the weights too (.safetensors)\n"
    "  -h, --help          this text\n";

typedef struct options {
  const char *out, *weights_out;
  int64_t tokens;
  int64_t d_model, heads, head_dim;
  uint64_t seed;
  const char *const *texts;
  int text_count;
} options;

static int wrong_use(const char *sentence) {
  fprintf(stderr, "gdn2-layer: %s\n", sentence);
  return EXIT_USE;
}

/* A whole decimal number from 0 to INT64_MAX. Returns 0, or -1. */
static int parse_number(const char *text, int64_t *value) {
  if (text[0] < '0' || text[0] > '9') return -1;
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno || *end) return -1;
  *value = number;
  return 0;
}

/* Returns -1 to go on, or the exit code to end with. */
static int parse_options(options *o, int argc, char **argv) {
  enum { OUT, WEIGHTS_OUT, TOKENS, HEADS, HEAD_DIM, D_MODEL, SEED, HELP = 'h', WRONG = '?' };
  static const struct option known[] = {
      {"out", required_argument, NULL, OUT},
      {"weights-out", required_argument, NULL, WEIGHTS_OUT},
      {"tokens", required_argument, NULL, TOKENS},
      {"heads", required_argument, NULL, HEADS},
      {"head-dim", required_argument, NULL, HEAD_DIM},
      {"d-model", required_argument, NULL, D_MODEL},
      {"seed", required_argument, NULL, SEED},
      {"help", no_argument, NULL, HELP},
      {NULL, 0, NULL, 0},
  };
  int64_t seed = 1;
  *o = (options){.tokens = 4096, .d_model = -1, .heads = 6, .head_dim = 128};
  int64_t *const numbers[] = {
      [TOKENS] = &o->tokens, [HEADS] = &o->heads, [HEAD_DIM] = &o->head_dim, [D_MODEL] = &o->d_model, [SEED] = &seed};
  for (int which, index = 0; (which = getopt_long(argc, argv, "h", known, &index)) != -1;) {
    if (which == HELP) return fputs(help, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    if (which == WRONG) return wrong_use("`gdn2-layer --help` lists the options");
    if (which == OUT)
      o->out = optarg;
    else if (which == WEIGHTS_OUT)
      o->weights_out = optarg;
    else if (parse_number(optarg, numbers[which])) {
      fprintf(stderr, "gdn2-layer: --%s %s: must be a whole number, 0 or more\n", known[index].name, optarg);
      return EXIT_USE;
    }
  }
  o->seed = (uint64_t)seed;
  o->texts = (const char *const *)(argv + optind);
  o->text_count = argc - optind;
  return -1;
}

#define MAX_TOKENS (INT64_C(1) << 28)

/* A model of one layer, of which only the mixer matters here. */
static lm_config config_of(const options *o) {
  return (lm_config){.vocabulary = LM_BYTES,
                     .layers = 1,
                     .d_model = o->d_model,
                     .heads = o->heads,
                     .head_dim = o->head_dim,
                     .d_mlp = 1,
                     .conv_width = 4,
                     .rule = LM_GDN2};
}

/* What the options leave open or leave wrong. Returns -1 to go on, or the exit code. */
static int check_options(options *o) {
  if (o->text_count == 0) return wrong_use("a text to read must be given; `gdn2-layer --help` shows how");
  if (!o->out) return wrong_use("--out FILE must be given");
  if (o->tokens < 1 || o->tokens > MAX_TOKENS) return wrong_use("the number of tokens must be from 1 to 2^28");
  lm_config c = config_of(o);
  if (o->d_model < 0) {
    c.d_model = 1; /* its product is formed only once heads and head size are known to be small enough */
    o->d_model = lm_config_fault(&c) ? 1 : o->heads * o->head_dim;
    c = config_of(o);
  }
  const char *fault = lm_config_fault(&c);
  return fault ? wrong_use(fault) : -1;
}

/* Whether the files can be written, before the work. Returns -1 to go on, or the exit code. */
static int check_outputs(const options *o) {
  io_error error;
  if (io_check_writable(o->out, &error)) return wrong_use(error.text);
  if (o->weights_out && io_check_writable(o->weights_out, &error)) return wrong_use(error.text);
  return -1;
}

static void fill_normal(float *data, int64_t count, uint64_t seed, uint64_t stream) {
  for (int64_t i = 0; i < count; i++) data[i] = lm_random_normal(seed, stream, (uint64_t)i);
}

static int write_file(const char *path, const io_tensor *tensors, int count) {
  io_error error;
  return io_write_safetensors(path, tensors, count, &error) ? wrong_use(error.text) : EXIT_SUCCESS;
}

static int write_weights(const char *path, const lm_model *m) {
  io_tensor *tensors = calloc((size_t)m->params.count, sizeof *tensors);
  if (!tensors) return fputs("gdn2-layer: not enough memory for the weights\n", stderr), EXIT_FAILURE;
  for (int64_t n = 0; n < m->params.count; n++) {
    const lm_param *p = &m->params.list[n];
    tensors[n] = (io_tensor){.name = p->name, .dtype = IO_F32, .rank = p->rank, .data = m->value + p->offset};
    memcpy(tensors[n].shape, p->shape, sizeof p->shape);
  }
  int code = write_file(path, tensors, (int)m->params.count);
  free(tensors);
  return code;
}

/* ---- What the rule takes -------------------------------------------------------------------------------------------------- */

/* The tensors of the rule [T][H][K], with gates and norms finished, and the random gradients that a loss on top of the layer
 * would send back: d_o [T][H][K] and dh_final [H][K][K]. One block of memory. */
enum { Q, KEY, VALUE, G, B, WRITE, D_O, TOKEN_TENSORS };
static const char *const names[] = {"q", "k", "v", "g", "b", "w", "do"};

typedef struct tensors {
  float *at[TOKEN_TENSORS], *dh_final;
} tensors;

static int allocate(tensors *x, const options *o, int64_t T) {
  const int64_t N = o->heads * o->head_dim;
  float *next = malloc((size_t)(TOKEN_TENSORS * T * N + N * o->head_dim) * sizeof *next);
  for (int i = 0; i < TOKEN_TENSORS; i++, next += next ? T * N : 0) x->at[i] = next;
  x->dh_final = next;
  return next ? 0 : -1;
}

/* 1 / sqrt(sum of squares + 1e-6), of one head. */
static double rnorm(const float *x, int64_t K) {
  double sum = 1e-6;
  for (int64_t i = 0; i < K; i++) sum += (double)x[i] * (double)x[i];
  return 1 / sqrt(sum);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* log(1 + e^x), without overflow for large x. */
static double softplus(double x) { return x > 37 ? x : log1p(exp(x)); }

static void finish_head(const tensors *x, const lm_model *m, int64_t t, int64_t h) {
  const int64_t K = m->params.config.head_dim, N = m->params.config.heads * K, P = m->params.columns.total;
  const lm_block_acts *a = &m->acts[0];
  const float *q = a->c + t * 3 * N + h * K, *k = q + N, *v = k + N, *p = a->p + t * P + h * K;
  const float *dt_bias = lm_value(m, 0, LM_DT_BIAS) + h * K;
  const double A = exp((double)lm_value(m, 0, LM_A_LOG)[h]), q_norm = rnorm(q, K), k_norm = rnorm(k, K);
  for (int64_t i = 0; i < K; i++) {
    const int64_t at = t * N + h * K + i;
    x->at[Q][at] = (float)(q[i] * q_norm);
    x->at[KEY][at] = (float)(k[i] * k_norm);
    x->at[VALUE][at] = v[i];
    x->at[G][at] = (float)(-A * softplus((double)a->f[at] + (double)dt_bias[i]));
    x->at[B][at] = (float)sigmoid((double)p[m->params.columns.b + i]);
    x->at[WRITE][at] = (float)sigmoid((double)p[m->params.columns.w + i]);
  }
}

static void fill_tensors(const tensors *x, const lm_model *m, const options *o, int64_t T) {
  const int64_t H = o->heads, K = o->head_dim;
  for (int64_t t = 0; t < T; t++)
    for (int64_t h = 0; h < H; h++) finish_head(x, m, t, h);
  fill_normal(x->at[D_O], T * H * K, o->seed, STREAM_D_O);
  fill_normal(x->dh_final, H * K * K, o->seed, STREAM_DH_FINAL);
}

static int write_tensors(const char *path, const options *o, const tensors *x, int64_t T) {
  const int64_t H = o->heads, K = o->head_dim;
  io_tensor list[TOKEN_TENSORS + 1];
  for (int i = 0; i < TOKEN_TENSORS; i++) list[i] = (io_tensor){names[i], IO_F32, 4, {1, T, H, K}, x->at[i]};
  list[TOKEN_TENSORS] = (io_tensor){"dh_final", IO_F32, 4, {1, H, K, K}, x->dh_final};
  return write_file(path, list, TOKEN_TENSORS + 1);
}

typedef struct range {
  float low, high;
} range;

static range range_of(const float *x, int64_t count) {
  range r = {x[0], x[0]};
  for (int64_t i = 1; i < count; i++) r = (range){fminf(r.low, x[i]), fmaxf(r.high, x[i])};
  return r;
}

/* Mean over tokens and heads of the cosine between a key and the one before it: how hard the text is for the rule. */
static double neighbour_cosine(const tensors *x, int64_t T, int64_t N, int64_t H) {
  double sum = 0;
  for (int64_t i = N; i < T * N; i++) sum += (double)x->at[KEY][i] * (double)x->at[KEY][i - N];
  return T > 1 ? sum / (double)((T - 1) * H) : 0;
}

static void report(const options *o, const tensors *x, int64_t T, double seconds) {
  const int64_t H = o->heads, N = H * o->head_dim;
  range g = range_of(x->at[G], T * N), b = range_of(x->at[B], T * N), w = range_of(x->at[WRITE], T * N);
  printf("layer: %lld tokens, width %lld, %lld heads of %lld, seed %llu, %.2f s\n", (long long)T, (long long)o->d_model,
         (long long)H, (long long)o->head_dim, (unsigned long long)o->seed, seconds);
  printf("       g %.3g .. %.3g   b %.3f .. %.3f   w %.3f .. %.3f   cosine of neighbouring keys %.2f\n", (double)g.low,
         (double)g.high, (double)b.low, (double)b.high, (double)w.low, (double)w.high, neighbour_cosine(x, T, N, H));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int write_all(const options *o, const lm_model *m, const tensors *x, int64_t T) {
  int code = write_tensors(o->out, o, x, T);
  return code == EXIT_SUCCESS && o->weights_out ? write_weights(o->weights_out, m) : code;
}

/* The layer on bytes[T], and the files. */
static int run_layer(const options *o, const uint8_t *bytes, int64_t T) {
  const lm_config c = config_of(o);
  lm_model m = {.value = NULL};
  tensors x = {.dh_final = NULL};
  int32_t *tokens = malloc((size_t)T * sizeof *tokens);
  int code = EXIT_FAILURE;
  if (tokens && !lm_model_create(&m, &c, T, 0) && !allocate(&x, o, T)) {
    for (int64_t t = 0; t < T; t++) tokens[t] = bytes[t];
    lm_params_init(&m.params, m.value, o->seed);
    double start = now();
    if (lm_forward(&m, tokens, 1, T, NULL)) {
      fprintf(stderr, "gdn2-layer: %s\n", gdn2_last_error());
    } else {
      fill_tensors(&x, &m, o, T);
      report(o, &x, T, now() - start);
      code = write_all(o, &m, &x, T);
    }
  } else {
    fputs("gdn2-layer: not enough memory for a layer of this size and so many tokens\n", stderr);
  }
  free(x.at[0]);
  free(tokens);
  lm_model_free(&m);
  return code;
}

int main(int argc, char **argv) {
  options o;
  int code = parse_options(&o, argc, argv);
  if (code < 0) code = check_options(&o);
  if (code < 0) code = check_outputs(&o);
  if (code >= 0) return code;
  io_clean_up_on_signals();
  lm_threads_set(0);

  uint8_t *bytes = malloc((size_t)o.tokens);
  if (!bytes) return fputs("gdn2-layer: not enough memory for the text\n", stderr), EXIT_FAILURE;
  lm_text_error error;
  int64_t T = lm_text_read(bytes, o.tokens, o.texts, o.text_count, &error);
  if (T < 0) code = wrong_use(error.text);
  if (T > 0 && T < o.tokens) {
    fprintf(stderr, "gdn2-layer: the text has %lld bytes, fewer than the %lld tokens asked for: all of them are used\n",
            (long long)T, (long long)o.tokens);
  }
  if (T > 0) code = run_layer(&o, bytes, T);
  free(bytes);
  return code;
}
