/* bench_cases.c - which cases are measured. A set is a few lists of the same form as the options: every combination is a case. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "parse.h"
#include "engine.h"
#include "bench.h"

const char *const bench_op_names[] = {"forward", "backward",      "train",        "decode",        "conv",       "conv_backward",
                                      "norm",    "norm_backward", "seed_forward", "seed_backward", "seed_train", NULL};
const char *const bench_dtype_names[] = {"f32", "bf16", "f16", "f64", NULL};

/* One entry for each BENCH_ list; NULL: the default. */
typedef struct lists {
  const char *of[BENCH_LISTS];
} lists;

static const char *const defaults[BENCH_LISTS] = {
    [BENCH_OP] = "forward", [BENCH_RULE] = "gdn2", [BENCH_DTYPE] = "f32", [BENCH_B] = "1",
    [BENCH_T] = "4096",     [BENCH_H] = "6",       [BENCH_HV] = "0", /* as H */
    [BENCH_K] = "128",      [BENCH_V] = "0",                         /* as K */
    [BENCH_THREADS] = "0",  [BENCH_ISA] = "auto"};

/* Of conv and norm, where they differ: tensors far larger than any cache. */
static const int64_t layer_defaults[BENCH_LISTS] = {[BENCH_T] = 8192, [BENCH_H] = 32};
/* Of decode, where they differ: a batch of one token a row. */
static const int64_t decode_defaults[BENCH_LISTS] = {[BENCH_B] = 64, [BENCH_T] = 1, [BENCH_H] = 32};

#define OF(...)                                                                                                                  \
  {                                                                                                                              \
    { __VA_ARGS__ }                                                                                                              \
  }
static const lists quick[] = {
    OF([BENCH_OP] = "forward,train", [BENCH_THREADS] = "1,2"),
    OF([BENCH_RULE] = "kda,gdn", [BENCH_THREADS] = "1"),
    OF([BENCH_DTYPE] = "bf16", [BENCH_THREADS] = "1"),
    OF([BENCH_K] = "64", [BENCH_THREADS] = "1"),
    OF([BENCH_H] = "1", [BENCH_THREADS] = "1,2"),
    OF([BENCH_B] = "8", [BENCH_H] = "8", [BENCH_T] = "16,256", [BENCH_THREADS] = "1"),
    OF([BENCH_ISA] = "avx2", [BENCH_THREADS] = "1"),
    OF([BENCH_OP] = "conv,conv_backward,norm,norm_backward", [BENCH_DTYPE] = "f32,bf16"),
    OF([BENCH_OP] = "decode", [BENCH_DTYPE] = "f32,bf16"),
};
static const lists full[] = {
    OF([BENCH_OP] = "forward,backward,train", [BENCH_RULE] = "gdn2,kda,gdn,deltanet,gla", [BENCH_THREADS] = "1,0"),
    OF([BENCH_OP] = "forward,train", [BENCH_T] = "16,64,256,1024,4096,16384", [BENCH_THREADS] = "1,2,4,8,16,32,64,0"),
    OF([BENCH_DTYPE] = "bf16,f16", [BENCH_RULE] = "gdn2,kda,gdn", [BENCH_THREADS] = "1,0"),
    OF([BENCH_RULE] = "gdn2,gdn", [BENCH_HV] = "12", [BENCH_THREADS] = "1,0"),
    OF([BENCH_OP] = "forward,train", [BENCH_K] = "16,32,64,96,192,256", [BENCH_THREADS] = "1"),
    OF([BENCH_OP] = "forward,train", [BENCH_K] = "64,128", [BENCH_V] = "128,64", [BENCH_THREADS] = "1"),
    OF([BENCH_OP] = "forward,train", [BENCH_H] = "1", [BENCH_THREADS] = "1,2"),
    OF([BENCH_OP] = "forward,train", [BENCH_B] = "8", [BENCH_H] = "8", [BENCH_T] = "16,64,256", [BENCH_THREADS] = "1,0"),
    OF([BENCH_OP] = "conv,conv_backward,norm,norm_backward", [BENCH_DTYPE] = "f32,bf16,f16", [BENCH_THREADS] = "1,0"),
    OF([BENCH_OP] = "decode", [BENCH_B] = "1,8,64", [BENCH_DTYPE] = "f32,bf16,f16", [BENCH_THREADS] = "1,0"),
    OF([BENCH_OP] = "decode", [BENCH_B] = "8", [BENCH_T] = "4", [BENCH_RULE] = "gdn2,kda,gdn", [BENCH_K] = "64,128,256",
       [BENCH_THREADS] = "1"),
    OF([BENCH_OP] = "forward,train", [BENCH_ISA] = "generic,avx2,avx512,neon", [BENCH_THREADS] = "1"),
};
static const lists seed[] = {
    OF([BENCH_OP] = "forward,train,seed_forward,seed_train", [BENCH_B] = "1,2,4,8", [BENCH_T] = "1024,2048,4096"),
};
static const struct {
  const lists *lists;
  size_t count;
} sets[] = {{quick, sizeof quick / sizeof *quick}, {full, sizeof full / sizeof *full}, {seed, sizeof seed / sizeof *seed}};

/* ---- Reading a list ------------------------------------------------------------------------------------------------------- */

enum { LONGEST = 32 };
typedef struct values {
  int count;
  int64_t at[LONGEST];
} values;

static const struct {
  const char *option;
  const char *const *names; /* NULL: numbers in the range */
  long long low, high;
} kinds[BENCH_LISTS] = {
    [BENCH_OP] = {"op", bench_op_names, 0, 0},
    [BENCH_RULE] = {"rule", rule_names, 0, 0},
    [BENCH_DTYPE] = {"dtype", bench_dtype_names, 0, 0},
    [BENCH_B] = {"B", NULL, 1, 1 << 20},
    [BENCH_T] = {"T", NULL, 1, 1 << 24},
    [BENCH_H] = {"H", NULL, 1, 1 << 16},
    [BENCH_HV] = {"HV", NULL, 0, 1 << 16},
    [BENCH_K] = {"K", NULL, 1, GDN2_MAX_DIM},
    [BENCH_V] = {"V", NULL, 0, GDN2_MAX_DIM},
    [BENCH_THREADS] = {"threads", NULL, 0, 4096},
    [BENCH_ISA] = {"isa", isa_names, 0, 0},
};

static int read_name(int list, const char *word, int64_t *value) {
  const char *const *names = kinds[list].names;
  int count = 0;
  for (; names[count]; count++) {
    if (strcmp(names[count], word)) continue;
    *value = count;
    return DONE;
  }
  const char *near = parse_nearest(word, names, count);
  if (near) return cli_wrong_use("--%s %s: did you mean %s?", kinds[list].option, word, near);
  return cli_wrong_use("--%s '%s': no such name; see gdn2 help bench", kinds[list].option, word);
}

static int read_number(int list, const char *word, int64_t *value) {
  char *end;
  long long x = strtoll(word, &end, 10);
  if (end == word || *end || x < kinds[list].low || x > kinds[list].high)
    return cli_wrong_use("--%s '%s': must be whole numbers from %lld to %lld, with commas between them", kinds[list].option, word,
                         kinds[list].low, kinds[list].high);
  *value = x;
  return DONE;
}

static int read_list(int list, const char *text, values *v) {
  v->count = 0;
  for (;;) {
    char word[32] = "";
    size_t length = strcspn(text, ",");
    if (v->count == LONGEST) return cli_wrong_use("--%s: more than %d values", kinds[list].option, LONGEST);
    memcpy(word, text, length < sizeof word ? length : sizeof word - 1);
    int64_t *value = &v->at[v->count++];
    int code = kinds[list].names ? read_name(list, word, value) : read_number(list, word, value);
    if (code || !text[length]) return code;
    text += length + 1;
  }
}

/* ---- Combining lists ------------------------------------------------------------------------------------------------------ */

static int same(const bench_case *a, const bench_case *b) {
  return a->op == b->op && a->rule == b->rule && a->dtype == b->dtype && a->HV == b->HV && !memcmp(&a->n, &b->n, sizeof a->n) &&
         a->threads == b->threads && a->isa == b->isa;
}

static int add(bench_cases *cases, const bench_case *c) {
  for (int i = 0; i < cases->count; i++)
    if (same(&cases->at[i], c)) return DONE;
  if (cases->count == BENCH_MOST_CASES) return cli_wrong_use("these are more than %d cases", BENCH_MOST_CASES);
  cases->at[cases->count++] = *c;
  return DONE;
}

/* A case of a set that this machine cannot run is left out. */
static int cannot_run(const bench_case *c) {
  gdn2_isa isa;
  return gdn2_isa_choose(c->isa, &isa) != GDN2_OK || c->threads > sysconf(_SC_NPROCESSORS_ONLN);
}

static int check_case(const bench_case *c) {
  const char *op = bench_op_names[c->op];
  if ((c->op >= SEED_FORWARD || bench_is_layer(c->op)) && c->rule != rules)
    return cli_wrong_use("--op %s has the rule gdn2 only, not %s", op, c->rule->name);
  if (c->op >= SEED_FORWARD && (c->dtype != GDN2_F32 || c->HV != c->n.H))
    return cli_wrong_use("--op %s has float32 and HV = H only", op);
  if (c->dtype == GDN2_F64 && (c->op == DECODE || bench_is_layer(c->op)))
    return cli_wrong_use("--op %s has the types f32, bf16 and f16 only, not f64", op);
  if (c->HV % c->n.H) return cli_wrong_use("--HV %lld is no multiple of H=%lld", (long long)c->HV, (long long)c->n.H);
  return DONE;
}

static int add_choice(bench_cases *cases, const settings *s, const lists *l, const int64_t *chosen, int from_set) {
  static const int64_t usual[BENCH_LISTS];
  const int64_t *special = chosen[BENCH_OP] == DECODE                   ? decode_defaults
                           : bench_is_layer((bench_op)chosen[BENCH_OP]) ? layer_defaults
                                                                        : usual;
  int64_t x[BENCH_LISTS];
  for (int i = 0; i < BENCH_LISTS; i++) x[i] = !l->of[i] && special[i] ? special[i] : chosen[i];
  bench_case c = {
      .op = (bench_op)x[BENCH_OP],
      .rule = &rules[x[BENCH_RULE]],
      .dtype = (gdn2_dtype)x[BENCH_DTYPE],
      .n = {.B = x[BENCH_B], .T = x[BENCH_T], .H = x[BENCH_H], .K = x[BENCH_K], .V = x[BENCH_V] ? x[BENCH_V] : x[BENCH_K]},
      .HV = x[BENCH_HV] ? x[BENCH_HV] : x[BENCH_H],
      .threads = gdn2_threads((int)x[BENCH_THREADS]),
      .isa = (gdn2_isa)x[BENCH_ISA],
      .layers = x[BENCH_OP] == DECODE ? s->layers : 1,
      .layout = x[BENCH_OP] == DECODE ? s->layout : 0};
  if (from_set && cannot_run(&c)) return DONE;
  int code = check_case(&c);
  if (!code) code = engine_code(gdn2_isa_choose(c.isa, &c.isa));
  return code ? code : add(cases, &c);
}

/* Every combination, the last list changing fastest. */
static int combine(bench_cases *cases, const settings *s, const lists *l, int from_set) {
  values v[BENCH_LISTS];
  int index[BENCH_LISTS] = {0}, code = DONE;
  for (int i = 0; i < BENCH_LISTS && !code; i++) code = read_list(i, l->of[i] ? l->of[i] : defaults[i], &v[i]);
  while (!code) {
    int64_t x[BENCH_LISTS];
    for (int i = 0; i < BENCH_LISTS; i++) x[i] = v[i].at[index[i]];
    code = add_choice(cases, s, l, x, from_set);
    int i = BENCH_LISTS - 1;
    while (i >= 0 && ++index[i] == v[i].count) index[i--] = 0;
    if (i < 0) break;
  }
  return code;
}

static int combine_set(bench_cases *cases, const settings *s) {
  int code = DONE;
  for (size_t i = 0; i < sets[s->set].count && !code; i++) {
    lists l = sets[s->set].lists[i];
    if (s->lists[BENCH_THREADS]) l.of[BENCH_THREADS] = s->lists[BENCH_THREADS];
    if (s->lists[BENCH_ISA]) l.of[BENCH_ISA] = s->lists[BENCH_ISA];
    code = combine(cases, s, &l, 1);
  }
  if (!code && !cases->count) return cli_wrong_use("this machine can run no case of the set with these --threads and --isa");
  return code;
}

static int check_decode_options(const bench_cases *cases, const settings *s) {
  const char *given = options_given(s, "layers") ? "layers" : options_given(s, "layout") ? "layout" : NULL;
  for (int i = 0; i < cases->count; i++)
    if (cases->at[i].op == DECODE) given = NULL;
  return given ? cli_wrong_use("--%s is for --op decode", given) : DONE;
}

int bench_cases_list(bench_cases *cases, const settings *s) {
  lists l;
  memcpy(l.of, s->lists, sizeof l.of);
  const char *shape = NULL;
  for (int i = 0; i < BENCH_LISTS; i++)
    if (i != BENCH_THREADS && i != BENCH_ISA && l.of[i]) shape = kinds[i].option;
  if (shape && options_given(s, "set")) return cli_wrong_use("--set has its own shapes: --%s cannot be given with it", shape);
  int code = shape ? combine(cases, s, &l, 0) : combine_set(cases, s);
  return code ? code : check_decode_options(cases, s);
}
