/* bench.h - what the parts of gdn2 bench share: cases, their tensors, results. */
#ifndef GDN2_CLI_BENCH_H
#define GDN2_CLI_BENCH_H
#include "gdn2.h"
#include "inputs.h"
#include "outputs.h"
#include "progress.h"

/* seed_: the seed's pipeline with its default configuration. train: forward and then backward. decode: T new tokens of each row
 * on a state in place. */
typedef enum bench_op {
  FORWARD,
  BACKWARD,
  TRAIN,
  DECODE,
  CONV,
  CONV_BACKWARD,
  NORM,
  NORM_BACKWARD,
  SEED_FORWARD,
  SEED_BACKWARD,
  SEED_TRAIN,
  BENCH_OPS
} bench_op;
/* Both end with NULL. */
extern const char *const bench_op_names[], *const bench_dtype_names[]; /* the latter in the order of gdn2_dtype */

typedef struct bench_case {
  bench_op op;
  const rule *rule;
  gdn2_dtype dtype; /* of q, k, v, b, w, o and the states of decode; g and every gradient are float32, or float64 if it is */
  sizes n;          /* n.H: heads of q and k */
  int64_t HV;       /* heads of all else */
  int threads;
  gdn2_isa isa;       /* as it is used: not AUTO */
  int layers, layout; /* of decode: calls of a run, each on states of its own; 0: K x V, 1: V x K. Else 1, 0 */
} bench_case;

/* ---- Cases ---------------------------------------------------------------------------------------------------------------- */

enum { BENCH_MOST_CASES = 1024 };
typedef struct bench_cases {
  int count;
  bench_case at[BENCH_MOST_CASES];
} bench_cases;

/* The cases of the set, or of the lists in the options. Returns an exit code. */
int bench_cases_list(bench_cases *cases, const settings *s);

/* ---- One case ------------------------------------------------------------------------------------------------------------- */

enum { BENCH_SNAPSHOT_EVERY = 128 };

typedef struct bench_tensors {
  void *state; /* decode: [layers, B, HV, K, V], or [.., V, K], of the case's dtype */
  /* train: what the forward leaves to the backward, or NULL */
  float *snapshots;             /* [B, T / BENCH_SNAPSHOT_EVERY, HV, K, V] */
  float *residual;              /* [B, T, HV, V]; NULL: where dv goes */
  void *x[INPUTS], *y[OUTPUTS]; /* contiguous, of bench_input_dtype and bench_output_dtype; NULL: absent */
  float *weight, *dweight;      /* conv, norm: float32; the norm uses the first V */
  gdn2_seed_residuals residuals;
  gdn2_exec forward, backward; /* with their workspaces */
  gdn2_profile *profile;       /* NULL: the time of stages is not taken */
} bench_tensors;

/* Memory for the case, and inputs like a trained layer's. Returns an exit code. */
int bench_tensors_make(bench_tensors *t, const bench_case *c);
void bench_tensors_free(bench_tensors *t);
gdn2_dtype bench_input_dtype(const bench_case *c, input_id id);
gdn2_dtype bench_output_dtype(const bench_case *c, output_id id);
/* Bytes of the states that a run of decode reads, and writes. */
size_t bench_state_bytes(const bench_case *c);
/* Whether what was computed is finite, and not all zeros: else the time is that of something else. Returns an exit code. */
int bench_tensors_check(const bench_tensors *t, const bench_case *c);

/* One run of the case's op. Returns an exit code. */
int bench_run(bench_tensors *t, const bench_case *c);

typedef struct bench_result {
  bench_case c;
  int samples;
  double ms;           /* of one run: the median */
  double tok_heads;    /* token-heads per second */
  double gflops, peak; /* useful; what one thread could do at most: the median over the same time */
  double fraction;     /* gflops / (peak threads) */
  double gbs;          /* conv, norm, decode: bytes of tensors or states read and written, 1e9 per second; 0: another op */
  double of_memory;    /* conv, norm: the time of a copy that moves as many bytes, by this time; decode: of an update in place */
  double stage_ms[GDN2_STAGES]; /* with --stages: of one run, in all threads together; 0: not run */
} bench_result;

/* The ops of the layer parts, and which of the rule's tensors stand for theirs. */
int bench_is_layer(bench_op op);
int bench_layer_takes(bench_op op, input_id id);
int bench_layer_gives(bench_op op, output_id id);
/* Bytes of the tensors that a call reads and writes, each once. */
size_t bench_layer_bytes(const bench_case *c);
/* The weights; 0 if there is not enough memory. */
int bench_layer_make(bench_tensors *t, const bench_case *c);
int bench_layer_run(bench_tensors *t, const bench_case *c);

/* Memory for exec's workspace, unless it has one. Returns an exit code. */
int bench_workspace(gdn2_exec *exec, size_t bytes);

/* Measures the case for at least min_time seconds and `repeats` samples. The bar advances by 1. Returns an exit code. */
int bench_measure(const bench_case *c, const settings *s, progress *bar, bench_result *r);

/* ---- Results -------------------------------------------------------------------------------------------------------------- */

void bench_print_cases(const bench_cases *cases);
void bench_print_table(const bench_result *r, int count);
/* The stages of each case. */
void bench_print_stages(const bench_result *r, int count);
/* stages: with an object of their times. */
void bench_print_json(const bench_result *r, int count, int stages);
void bench_print_csv(const bench_result *r, int count);

/* Whether the cases have anything to draw: a case that comes with two lengths, or with two numbers of threads. */
int bench_plot_possible(const bench_cases *cases);
/* Throughput against length and against threads, as SVG. Returns an exit code. */
int bench_plot_write(const char *path, const bench_result *r, int count);

#endif
