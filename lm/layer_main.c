/* gdn2-layer: a text through one Gated DeltaNet-2 layer; the tensors of the rule as one .safetensors file for `gdn2 run` and
 * `gdn2 check`. Exit codes: 0 done, 1 failed, 2 wrong use. */
#include "layer.h"
#include "random.h"
#include "text.h"
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
  lm_config config;
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
  *o = (options){.tokens = 4096, .config = {.d_model = -1, .heads = 6, .head_dim = 128, .conv_width = 4}};
  int64_t *const numbers[] = {[TOKENS] = &o->tokens,
                              [HEADS] = &o->config.heads,
                              [HEAD_DIM] = &o->config.head_dim,
                              [D_MODEL] = &o->config.d_model,
                              [SEED] = &seed};
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

/* What the options leave open or leave wrong. Returns -1 to go on, or the exit code. */
static int check_options(options *o) {
  if (o->text_count == 0) return wrong_use("a text to read must be given; `gdn2-layer --help` shows how");
  if (!o->out) return wrong_use("--out FILE must be given");
  const lm_config *c = &o->config;
  if (c->d_model < 0) {
    lm_config narrow = *c;
    narrow.d_model = 1; /* its product is formed only once heads and head size are known to be small enough */
    o->config.d_model = lm_config_fault(&narrow, o->tokens) ? 1 : c->heads * c->head_dim;
  }
  const char *fault = lm_config_fault(c, o->tokens);
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

static int write_weights(const char *path, const lm_layer *layer) {
  io_tensor tensors[LM_PARAMS];
  for (int id = 0; id < LM_PARAMS; id++) {
    const lm_param *p = &layer->param[id];
    tensors[id] = (io_tensor){.name = p->name, .dtype = IO_F32, .rank = p->rank, .data = p->data};
    memcpy(tensors[id].shape, p->shape, sizeof p->shape);
  }
  return write_file(path, tensors, LM_PARAMS);
}

/* d_o [T][H][K] and dh_final [H][K][K] are random: what a loss on top of the layer would send back. */
static int write_tensors(const char *path, const options *o, const lm_acts *a) {
  const int64_t T = a->T, H = o->config.heads, K = o->config.head_dim;
  float *d_o = malloc((size_t)(T * H * K) * sizeof *d_o), *dh_final = malloc((size_t)(H * K * K) * sizeof *dh_final);
  int code = EXIT_FAILURE;
  if (d_o && dh_final) {
    fill_normal(d_o, T * H * K, o->seed, STREAM_D_O);
    fill_normal(dh_final, H * K * K, o->seed, STREAM_DH_FINAL);
    const struct {
      const char *name;
      const float *data;
    } token[] = {{"q", a->q}, {"k", a->k}, {"v", a->v}, {"g", a->g}, {"b", a->b}, {"w", a->w}, {"do", d_o}};
    io_tensor tensors[8];
    for (int i = 0; i < 7; i++) tensors[i] = (io_tensor){token[i].name, IO_F32, 4, {1, T, H, K}, token[i].data};
    tensors[7] = (io_tensor){"dh_final", IO_F32, 4, {1, H, K, K}, dh_final};
    code = write_file(path, tensors, 8);
  } else {
    fputs("gdn2-layer: not enough memory for the gradients\n", stderr);
  }
  free(d_o);
  free(dh_final);
  return code;
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
static double neighbour_cosine(const lm_acts *a, int64_t N, int64_t H) {
  double sum = 0;
  for (int64_t i = N; i < a->T * N; i++) sum += (double)a->k[i] * a->k[i - N];
  return a->T > 1 ? sum / (double)((a->T - 1) * H) : 0;
}

static void report(const options *o, const lm_acts *a, double seconds) {
  const int64_t H = o->config.heads, N = H * o->config.head_dim;
  range g = range_of(a->g, a->T * N), b = range_of(a->b, a->T * N), w = range_of(a->w, a->T * N);
  printf("layer: %lld tokens, width %lld, %lld heads of %lld, seed %llu, %.2f s\n", (long long)a->T, (long long)o->config.d_model,
         (long long)H, (long long)o->config.head_dim, (unsigned long long)o->seed, seconds);
  printf("       g %.3g .. %.3g   b %.3f .. %.3f   w %.3f .. %.3f   cosine of neighbouring keys %.2f\n", (double)g.low,
         (double)g.high, (double)b.low, (double)b.high, (double)w.low, (double)w.high, neighbour_cosine(a, N, H));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The layer on bytes[T], and the files. */
static int run_layer(const options *o, const uint8_t *bytes, int64_t T) {
  lm_layer layer = {.memory = NULL};
  lm_acts acts = {.memory = NULL};
  int code = EXIT_FAILURE;
  if (lm_layer_create(&layer, &o->config) == 0 && lm_acts_create(&acts, &o->config, T) == 0) {
    lm_layer_init(&layer, o->seed);
    double start = now();
    lm_layer_forward(&layer, &acts, bytes);
    report(o, &acts, now() - start);
    code = write_tensors(o->out, o, &acts);
    if (code == EXIT_SUCCESS && o->weights_out) code = write_weights(o->weights_out, &layer);
  } else {
    fputs("gdn2-layer: not enough memory for a layer of this size and so many tokens\n", stderr);
  }
  lm_acts_free(&acts);
  lm_layer_free(&layer);
  return code;
}

int main(int argc, char **argv) {
  options o;
  int code = parse_options(&o, argc, argv);
  if (code < 0) code = check_options(&o);
  if (code < 0) code = check_outputs(&o);
  if (code >= 0) return code;
  io_clean_up_on_signals();

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
