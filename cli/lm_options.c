#include "lm_options.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "lm/config.h"
#include "lm/data.h"

static const char *const progress_names[] = {"auto", "on", "off", NULL};

#define AT(field) offsetof(lm_options, field)
/* FIXED: a property of the run. */
enum { FIXED = 4, TRAIN = VERB_TRAIN, RUN = VERB_TRAIN | FIXED, WRITE = VERB_GENERATE };
static const double INT_LIMIT = 1 << 24;

static const option table[] = {
    {"out", TEXT, TRAIN, AT(out), "DIR", "folder of the run: config, checkpoint, log, plot; made if it is not there", NULL, 0, 0},
    {"steps", INTEGER, TRAIN, AT(steps), "N", "steps of the optimiser (default 2500)", NULL, 1, INT_LIMIT},
    {"resume", FLAG, TRAIN, AT(resume), NULL, "go on with the run in --out; its other options are those it was started with",
     NULL, 0, 0},
    {"task", CHOICE, RUN, AT(task), "NAME", "text (default) or mqar: multi-query associative recall", lm_task_names, 0, 0},
    {"pairs", INTEGER, RUN, AT(pairs), "N", "mqar: most key-value pairs of a sample (default 32)", NULL, 1, 16384},
    {"vocabulary", INTEGER, RUN, AT(vocabulary), "N", "mqar: tokens (default 256)", NULL, 4, 65536},
    {"rule", CHOICE, RUN, AT(rule), "NAME", "gdn2 (default), kda, gdn or deltanet", lm_rule_names, 0, 0},
    {"output-gate", CHOICE, RUN, AT(gate), "NAME", "silu (default), as published, or sigmoid, as flash-linear-attention has it",
     lm_gate_names, 0, 0},
    {"tied", FLAG, RUN, AT(tied), NULL, "the head is the embedding", NULL, 0, 0},
    {"layers", INTEGER, RUN, AT(layers), "N", "blocks (default 2)", NULL, 1, 256},
    {"d-model", INTEGER, RUN, AT(d_model), "N", "width of the model (default 128)", NULL, 1, 65536},
    {"heads", INTEGER, RUN, AT(heads), "N", "heads (default 0: width / head size)", NULL, 0, 65536},
    {"head-dim", INTEGER, RUN, AT(head_dim), "N", "size of keys and values of a head (default 64)", NULL, 1, 256},
    {"mlp", INTEGER, RUN, AT(d_mlp), "N", "width of the MLP (default 0: 8/3 of the model's, to a multiple of 32)", NULL, 0,
     65536},
    {"conv", INTEGER, RUN, AT(conv_width), "N", "taps of the convolution (default 4)", NULL, 2, 4},
    {"batch", INTEGER, RUN, AT(batch), "N", "samples of a pass (default 2)", NULL, 1, 65536},
    {"length", INTEGER, RUN, AT(length), "N", "tokens of a sample (default 256)", NULL, 1, INT_LIMIT},
    {"accumulate", INTEGER, RUN, AT(accumulate), "N", "passes of a step (default 1)", NULL, 1, 65536},
    {"learning-rate", REAL, RUN, AT(learning_rate), "X", "its peak (default 3e-3); it ends at a tenth", NULL, 0, 1e3},
    {"warmup", INTEGER, RUN, AT(warmup), "N", "steps in which it rises (default: a twentieth of the steps)", NULL, 0, INT_LIMIT},
    {"weight-decay", REAL, RUN, AT(weight_decay), "X", "of matrices (default 0.1)", NULL, 0, 1e3},
    {"clip", REAL, RUN, AT(clip), "X", "largest norm of the gradient (default 1; 0: any)", NULL, 0, INFINITY},
    {"validation", REAL, RUN, AT(validation), "X", "part of the text that is held out, at its end (default 0.1)", NULL, 0, 0.9},
    {"evaluate-every", INTEGER, TRAIN, AT(evaluate_every), "N", "steps between looks at what is held out (default 250)", NULL, 1,
     INT_LIMIT},
    {"evaluate-samples", INTEGER, TRAIN, AT(evaluate_samples), "N", "held-out samples, at most (default 64)", NULL, 1, INT_LIMIT},
    {"save-every", INTEGER, TRAIN, AT(save_every), "N", "steps between checkpoints (default 500)", NULL, 1, INT_LIMIT},
    {"json", FLAG, TRAIN, AT(json), NULL, "one object at the end in place of the lines", NULL, 0, 0},
    {"progress", CHOICE, TRAIN, AT(progress), "WHEN", "line on stderr: auto (default: on a terminal), on or off", progress_names,
     0, 0},
    {"prompt", TEXT, WRITE, AT(prompt), "TEXT", "what is written goes on from there (default: a new line)", NULL, 0, 0},
    {"tokens", INTEGER, WRITE, AT(tokens), "N", "bytes to write (default 256)", NULL, 0, 1 << 30},
    {"temperature", REAL, WRITE, AT(temperature), "X", "below 1 likelier, above 1 wilder; 0: always the likeliest (default 0.8)",
     NULL, 0, 1e3},
    {"top-k", INTEGER, WRITE, AT(top_k), "N", "only of the N likeliest (default 0: of all)", NULL, 0, 65536},
    {"top-p", REAL, WRITE, AT(top_p), "X", "only of the likeliest that have probability X together (default 1)", NULL, 0, 1},
    {"logits", TEXT, WRITE, AT(logits), "FILE", "also the logits after every byte of the prompt, [bytes, 256] (.safetensors)",
     NULL, 0, 0},
    {"speed", FLAG, WRITE, AT(speed), NULL, "at the end, tokens per second of each tenth and the memory, on stderr", NULL, 0, 0},
    {"seed", INTEGER, RUN | WRITE, AT(seed), "N", "of weights and samples, or of what is drawn (default 1)", NULL, 0, 1 << 30},
    {"threads", INTEGER, TRAIN | WRITE, AT(threads), "N", "at most N threads (default 0: as OMP_NUM_THREADS says)", NULL, 0,
     4096},
};
enum { OPTIONS = sizeof table / sizeof *table };
static const option_table options = {table, OPTIONS};

static const lm_options defaults = {
    .steps = 2500,
    .pairs = 32,
    .vocabulary = 256,
    .layers = 2,
    .d_model = 128,
    .head_dim = 64,
    .conv_width = 4,
    .batch = 2,
    .length = 256,
    .accumulate = 1,
    .learning_rate = 3e-3,
    .weight_decay = 0.1,
    .clip = 1,
    .validation = 0.1,
    .evaluate_every = 250,
    .evaluate_samples = 64,
    .save_every = 500,
    .seed = 1,
    .tokens = 256,
    .temperature = 0.8,
    .top_p = 1,
};

int lm_options_parse(int verb, int count, char **arguments, lm_options *o, int *help) {
  *o = defaults;
  o->given.settings = o;
  o->given.words = calloc((size_t)count + 1, sizeof *o->given.words);
  if (!o->given.words) return cli_failed("not enough memory");
  return parse_arguments(&options, verb, count, arguments, &o->given, help);
}

int lm_options_given(const lm_options *o, const char *name) { return parse_given(&options, &o->given, name); }

void lm_options_print(int verb) { parse_print(&options, verb); }

const char *lm_options_fixed(const lm_options *o) {
  for (int i = 0; i < OPTIONS; i++)
    if (table[i].verbs & FIXED && o->given.given >> i & 1) return table[i].name;
  return NULL;
}
