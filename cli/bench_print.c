#include <stdio.h>

#include "bench.h"

/* The columns that say which case it is. */
static void print_case(const bench_case *c) {
  printf("%-13s %-8s %-5s %4lld %6lld %4lld %4lld %4lld %4lld %7d  %-7s", bench_op_names[c->op], c->rule->name,
         bench_dtype_names[c->dtype], (long long)c->n.B, (long long)c->n.T, (long long)c->n.H, (long long)c->HV,
         (long long)c->n.K, (long long)c->n.V, c->threads, gdn2_isa_name(c->isa));
}

static const char case_head[] = "op            rule     dtype    B      T    H   HV    K    V threads  isa    ";

void bench_print_cases(const bench_cases *cases) {
  printf("%s\n", case_head);
  for (int i = 0; i < cases->count; i++) {
    print_case(&cases->at[i]);
    printf("\n");
  }
}

void bench_print_table(const bench_result *r, int count) {
  printf("gdn2 %s. ktok-heads/s: thousand tokens times value heads a second. peak: multiply-adds in registers, of one thread,\n"
         "measured in turns with the op. fraction: useful GFLOP/s (6 K V a token and head forward, 16 backward, 22 both) by\n"
         "peak x threads. conv, norm: GB/s of tensors read and written, and as a fraction of a copy; decode: of states, and of a "
         "plain\n"
         "update in place. Medians.\n\n"
         "%s         ms  ktok-heads/s  GFLOP/s     peak  fraction    GB/s  fraction\n",
         gdn2_version(), case_head);
  for (int i = 0; i < count; i++) {
    print_case(&r[i].c);
    printf(" %10.3f %13.1f %8.1f %8.1f %9.3f", r[i].ms, 1e-3 * r[i].tok_heads, r[i].gflops, r[i].peak, r[i].fraction);
    if (r[i].gbs > 0)
      printf(" %7.1f %9.3f\n", r[i].gbs, r[i].of_memory);
    else
      printf(" %7s %9s\n", "-", "-");
  }
}

static double stages_sum(const bench_result *r) {
  double sum = 0;
  for (int i = 0; i < GDN2_STAGES; i++) sum += r->stage_ms[i];
  return sum;
}

void bench_print_stages(const bench_result *r, int count) {
  printf("\nstages: milliseconds of a run in all threads together, share, nanoseconds for a token and value head\n");
  for (int n = 0; n < count; n++, r++) {
    const double tokens = (double)r->c.n.B * (double)r->c.n.T * (double)r->c.HV, sum = stages_sum(r);
    printf("\n");
    print_case(&r->c);
    printf("\n");
    for (int i = 0; i < GDN2_STAGES; i++)
      if (r->stage_ms[i] > 0)
        printf("  %-14s %10.3f %6.1f %% %9.1f\n", gdn2_stage_name((gdn2_stage)i), r->stage_ms[i], 100 * r->stage_ms[i] / sum,
               1e6 * r->stage_ms[i] / tokens);
  }
}

/* How a result is written where a program reads it: name, is it text, value. */
static void print_fields(const bench_result *r, void (*put)(const char *name, int text, const char *value)) {
  const sizes *n = &r->c.n;
  char value[64];
#define PUT(name, text, ...) (snprintf(value, sizeof value, __VA_ARGS__), put(name, text, value))
  PUT("op", 1, "%s", bench_op_names[r->c.op]);
  PUT("rule", 1, "%s", r->c.rule->name);
  PUT("dtype", 1, "%s", bench_dtype_names[r->c.dtype]);
  PUT("B", 0, "%lld", (long long)n->B);
  PUT("T", 0, "%lld", (long long)n->T);
  PUT("H", 0, "%lld", (long long)n->H);
  PUT("HV", 0, "%lld", (long long)r->c.HV);
  PUT("K", 0, "%lld", (long long)n->K);
  PUT("V", 0, "%lld", (long long)n->V);
  PUT("threads", 0, "%d", r->c.threads);
  PUT("isa", 1, "%s", gdn2_isa_name(r->c.isa));
  PUT("layers", 0, "%d", r->c.layers);
  PUT("layout", 1, "%s", r->c.layout ? "vk" : "kv");
  PUT("samples", 0, "%d", r->samples);
  PUT("ms", 0, "%.6g", r->ms);
  PUT("tok_heads_per_s", 0, "%.6g", r->tok_heads);
  PUT("gflops_useful", 0, "%.6g", r->gflops);
  PUT("peak_gflops", 0, "%.6g", r->peak);
  PUT("fraction", 0, "%.6g", r->fraction);
  /* Of an op that is not bound by memory: no value. */
  if (r->gbs > 0) {
    PUT("bandwidth_gbs", 0, "%.6g", r->gbs);
    PUT("bandwidth_fraction", 0, "%.6g", r->of_memory);
  } else {
    put("bandwidth_gbs", 0, "");
    put("bandwidth_fraction", 0, "");
  }
#undef PUT
}

static int column;

static void put_json(const char *name, int text, const char *value) {
  const char *quote = text ? "\"" : "";
  printf("%s\"%s\": %s%s%s", column++ ? ", " : "", name, quote, *value ? value : "null", quote);
}

static void put_name(const char *name, int text, const char *value) {
  (void)text, (void)value;
  printf("%s%s", column++ ? "," : "", name);
}

static void put_value(const char *name, int text, const char *value) {
  (void)name, (void)text;
  printf("%s%s", column++ ? "," : "", value);
}

static void print_stages_object(const bench_result *r) {
  const char *before = "";
  printf(", \"stages_ms\": {");
  for (int i = 0; i < GDN2_STAGES; i++) {
    if (!(r->stage_ms[i] > 0)) continue;
    printf("%s\"%s\": %.6g", before, gdn2_stage_name((gdn2_stage)i), r->stage_ms[i]);
    before = ", ";
  }
  printf("}");
}

void bench_print_json(const bench_result *r, int count, int stages) {
  printf("[\n");
  for (int i = 0; i < count; i++) {
    column = 0;
    printf("  {");
    print_fields(&r[i], put_json);
    if (stages) print_stages_object(&r[i]);
    printf("}%s\n", i + 1 < count ? "," : "");
  }
  printf("]\n");
}

void bench_print_csv(const bench_result *r, int count) {
  column = 0;
  print_fields(&r[0], put_name);
  printf("\n");
  for (int i = 0; i < count; i++) {
    column = 0;
    print_fields(&r[i], put_value);
    printf("\n");
  }
}
