#include <math.h>

#include "cli.h"
#include "inputs.h"
#include "parse.h"

static const char *const semantics_names[] = {"exact", "seed", NULL};
static const char *const set_names[] = {"quick", "full", "seed", NULL};
static const char *const progress_names[] = {"auto", "on", "off", NULL};
static const char *const layout_names[] = {"kv", "vk", NULL};
const char *const isa_names[] = {"auto", "generic", "avx2", "avx512", "neon", NULL}; /* in the order of gdn2_isa */
static const char *const decay_names[] = {"log", "softplus", "bounded", NULL};       /* in the order of gdn2_decay */
static const char *const gate_names[] = {"given", "sigmoid", "two_sigmoid", NULL};   /* in the order of gdn2_gate */
static const char *const write_names[] = {"given", "sigmoid", NULL};
static const char *const map_names[] = {"grouped", "tiled", NULL};            /* in the order of gdn2_head_map */
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL}; /* in the order of io_dtype */

#define AT(field) offsetof(settings, field)
enum { BOTH = VERB_RUN | VERB_CHECK, ALL = BOTH | VERB_INFO };
static const double INT_LIMIT = 1 << 30;

static const option table[] = {
    {"in", TEXT, BOTH, AT(in), "FILE", ".safetensors file with the inputs under the names below (dh_final for --dh-final)", NULL,
     0, 0},
    {"q", TEXT, BOTH, AT(file[IN_Q]), "FILE", "queries [B, T, H, K]; this and the following: .npy, in place of the key in --in",
     NULL, 0, 0},
    {"k", TEXT, BOTH, AT(file[IN_K]), "FILE", "keys [B, T, H, K]", NULL, 0, 0},
    {"v", TEXT, BOTH, AT(file[IN_V]), "FILE", "values [B, T, HV, V]; HV: a multiple of H", NULL, 0, 0},
    {"g", TEXT, BOTH, AT(file[IN_G]), "FILE",
     "natural log of the decay per head [B, T, HV] or channel [B, T, HV, K], or of key heads, H for HV", NULL, 0, 0},
    {"b", TEXT, BOTH, AT(file[IN_B]), "FILE", "erase gate, in the same shapes, rule gdn2", NULL, 0, 0},
    {"w", TEXT, BOTH, AT(file[IN_W]), "FILE", "write gate [B, T, HV, V] or [B, T, HV], rule gdn2", NULL, 0, 0},
    {"beta", TEXT, BOTH, AT(file[IN_BETA]), "FILE", "gate of both [B, T, HV], rules kda, gdn, deltanet", NULL, 0, 0},
    {"h0", TEXT, BOTH, AT(file[IN_H0]), "FILE", "initial state [B, HV, K, V]; absent: zeros", NULL, 0, 0},
    {"A-log", TEXT, BOTH, AT(file[IN_A_LOG]), "FILE", "rate of a raw decay [heads of g]", NULL, 0, 0},
    {"dt-bias", TEXT, BOTH, AT(file[IN_DT_BIAS]), "FILE", "bias of a raw decay [heads of g, K] or [heads of g]; absent: 0", NULL,
     0, 0},
    {"do", TEXT, BOTH, AT(file[IN_DO]), "FILE", "gradient of the loss by o [B, T, HV, V]", NULL, 0, 0},
    {"dh-final", TEXT, BOTH, AT(file[IN_DH_FINAL]), "FILE", "gradient of the loss by the final state [B, HV, K, V]", NULL, 0, 0},
    {"cu-seqlens", TEXT, BOTH, AT(file[IN_CU_SEQLENS]), "FILE", "with --varlen: where sequences begin [N + 1], int32 or int64",
     NULL, 0, 0},
    {"varlen", FLAG, BOTH, AT(varlen), NULL, "B = 1, and N sequences lie one behind the other: cu_seqlens", NULL, 0, 0},
    {"rule", CHOICE, BOTH, AT(rule), "NAME", "gdn2 (default), kda, gdn, deltanet or gla", rule_names, 0, 0},
    {"scale", REAL, BOTH, AT(scale), "X", "factor on q (default K^-1/2)", NULL, -INFINITY, INFINITY},
    {"decay", CHOICE, BOTH, AT(decay), "NAME", "g is log (default), or raw: softplus or bounded", decay_names, 0, 0},
    {"lower-bound", REAL, BOTH, AT(lower_bound), "X", "the strongest log-decay of --decay bounded, below 0", NULL, -INFINITY,
     INFINITY},
    {"erase", CHOICE, BOTH, AT(erase), "NAME", "b (or beta) is given (default), or raw: sigmoid or two_sigmoid", gate_names, 0,
     0},
    {"write", CHOICE, BOTH, AT(write), "NAME", "w (or beta) is given (default), or raw: sigmoid", write_names, 0, 0},
    {"qk-l2norm", FLAG, BOTH, AT(qk_l2norm), NULL, "q and k are divided by their L2 norms", NULL, 0, 0},
    {"map", CHOICE, BOTH, AT(map), "NAME", "key head of value head j: grouped (default), j / (HV / H), or tiled, j % H",
     map_names, 0, 0},
    {"backward", FLAG, BOTH, AT(backward), NULL, "also the gradients of all inputs", NULL, 0, 0},
    {"semantics", CHOICE, VERB_RUN, AT(semantics), "NAME", "exact (default) or seed: the staged pipeline with damping and clips",
     semantics_names, 0, 0},
    {"bt", INTEGER, VERB_RUN, AT(bt), "N", "seed: tokens of a chunk (default 256)", NULL, 1, INT_LIMIT},
    {"bc", INTEGER, VERB_RUN, AT(bc), "N", "seed: tokens of a block within it (default 128)", NULL, 1, INT_LIMIT},
    {"mb", INTEGER, VERB_RUN, AT(mb), "N", "seed: tokens of a block of the solve (default 16)", NULL, 1, INT_LIMIT},
    {"clip", REAL, VERB_RUN, AT(clip), "X", "seed: limit of every stage's results (default 1e4)", NULL, 0, INFINITY},
    {"wy-eps", REAL, VERB_RUN, AT(wy_eps), "X", "seed: damping of the solve, 0 <= X < 1 (default 1e-3)", NULL, 0, 1},
    {"threads", INTEGER, ALL, AT(threads), "N", "at most N threads (default 0: as OMP_NUM_THREADS says)", NULL, 0, 4096},
    {"isa", CHOICE, ALL, AT(isa), "NAME", "auto (default), generic, avx2, avx512 or neon", isa_names, 0, 0},
    {"out", TEXT, VERB_RUN, AT(out), "FILE", "where the outputs go: NAME.safetensors, or a directory for one .npy each", NULL, 0,
     0},
    {"dtype", CHOICE, VERB_RUN, AT(dtype), "NAME",
     "element type of the outputs: f32, f64 (default where all inputs are), f16 or bf16 (.safetensors only)", dtype_names, 0, 0},
    {"set", CHOICE, VERB_BENCH, AT(set), "NAME", "shapes: quick (default), full, or seed: the shapes of atomic-ops 0.1.0",
     set_names, 0, 0},
    {"op", TEXT, VERB_BENCH, AT(lists[BENCH_OP]), "LIST",
     "shapes of your own instead: forward (default), backward, train, decode, conv, conv_backward, norm, norm_backward,\n"
     "                    seed_forward, seed_backward, seed_train",
     NULL, 0, 0},
    {"rule", TEXT, VERB_BENCH, AT(lists[BENCH_RULE]), "LIST", "gdn2 (default), kda, gdn, deltanet, gla", NULL, 0, 0},
    {"dtype", TEXT, VERB_BENCH, AT(lists[BENCH_DTYPE]), "LIST",
     "element type of q, k, v, b, w, o and the states of decode: f32 (default), bf16, f16, g stays float32; or f64 of all", NULL,
     0, 0},
    {"B", TEXT, VERB_BENCH, AT(lists[BENCH_B]), "LIST", "batch rows (default 1; decode: 64)", NULL, 0, 0},
    {"T", TEXT, VERB_BENCH, AT(lists[BENCH_T]), "LIST", "tokens (default 4096; decode: 1)", NULL, 0, 0},
    {"H", TEXT, VERB_BENCH, AT(lists[BENCH_H]), "LIST", "heads (default 6; decode: 32)", NULL, 0, 0},
    {"HV", TEXT, VERB_BENCH, AT(lists[BENCH_HV]), "LIST", "heads of v, a multiple of H (default 0: as H)", NULL, 0, 0},
    {"K", TEXT, VERB_BENCH, AT(lists[BENCH_K]), "LIST", "key channels (default 128)", NULL, 0, 0},
    {"V", TEXT, VERB_BENCH, AT(lists[BENCH_V]), "LIST", "value channels (default 0: as K)", NULL, 0, 0},
    {"threads", TEXT, VERB_BENCH, AT(lists[BENCH_THREADS]), "LIST", "threads (default 0: as OMP_NUM_THREADS says)", NULL, 0, 0},
    {"isa", TEXT, VERB_BENCH, AT(lists[BENCH_ISA]), "LIST", "auto (default), generic, avx2, avx512, neon", NULL, 0, 0},
    {"layers", INTEGER, VERB_BENCH, AT(layers), "N",
     "decode: a run is a call for each of N layers, on states of its own (default 1)", NULL, 1, 4096},
    {"layout", CHOICE, VERB_BENCH, AT(layout), "NAME",
     "decode: states with the values of a key side by side in memory, kv (default), or the keys of a value, vk", layout_names, 0,
     0},
    {"repeats", INTEGER, VERB_BENCH, AT(repeats), "N", "at least N samples of each case (default 5)", NULL, 1, 4096},
    {"min-time", REAL, VERB_BENCH, AT(min_time), "X", "and at least X seconds of samples (default 1)", NULL, 0, 3600},
    {"json", FLAG, VERB_BENCH, AT(json), NULL, "a list of objects in place of the table", NULL, 0, 0},
    {"csv", FLAG, VERB_BENCH, AT(csv), NULL, "comma-separated values in place of the table", NULL, 0, 0},
    {"plot", TEXT, VERB_BENCH, AT(plot), "FILE", "also throughput against length and threads, as SVG", NULL, 0, 0},
    {"stages", FLAG, VERB_BENCH, AT(stages), NULL, "also the time of each stage, or kernel of the seed's pipeline", NULL, 0, 0},
    {"list", FLAG, VERB_BENCH, AT(list), NULL, "only the cases; nothing is measured", NULL, 0, 0},
    {"progress", CHOICE, BOTH | VERB_BENCH, AT(progress), "WHEN", "bar on stderr: auto (default: on a terminal), on or off",
     progress_names, 0, 0},
};
enum { OPTIONS = sizeof table / sizeof *table };

static const option_table options = {table, OPTIONS};

int options_parse(int verb, int count, char **arguments, settings *s, int *help) {
  *s = (settings){.bt = 256, .bc = 128, .mb = 16, .clip = 1e4, .wy_eps = 1e-3, .layers = 1, .repeats = 5, .min_time = 1};
  parsed p = {.settings = s};
  int code = parse_arguments(&options, verb, count, arguments, &p, help);
  s->given = p.given;
  return code;
}

int options_given(const settings *s, const char *name) {
  const parsed p = {.given = s->given};
  return parse_given(&options, &p, name);
}

void options_print(int verb) { parse_print(&options, verb); }
