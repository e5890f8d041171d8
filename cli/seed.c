/* seed.c - gdn2 run --semantics seed. The pipeline's arrays are contiguous, so its slices are whole batch rows. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "engine.h"

static void print_report(void *context, const gdn2_seed_report *report) {
  char text[512];
  (void)context;
  gdn2_seed_report_text(report, text, sizeof text);
  fprintf(stderr, "%s\n", text);
}

static gdn2_seed_config config_of(const settings *s) {
  return (gdn2_seed_config){.bt = s->bt, .bc = s->bc, .mb = s->mb, .clip = s->clip, .wy_eps = s->wy_eps};
}

static gdn2_seed_call call_of(const engine *e, const slice *part, const gdn2_seed_config *config) {
  const sizes *n = &e->x->n;
  gdn2_seed_call call = {.struct_size = sizeof call, .B = part->B, .L = n->T, .H = n->H, .K = n->K, .V = n->V};
  call.config = config;
  call.scale = &e->scale;
  call.exec = (gdn2_exec){.threads = e->s->threads, .isa = e->isa};
  return call;
}

/* The first element of batch row b. */
static const float *input_row(const engine *e, input_id id, int64_t b) {
  sizes one = e->x->n;
  one.B = one.N = 1;
  return e->x->data[id] ? (const float *)e->x->data[id] + b * sizes_count(&one, inputs_axes(e->x, id)) : NULL;
}

static float *output_row(const engine *e, output_id id, int64_t b) {
  sizes one = e->x->n;
  one.B = one.N = 1;
  return (float *)e->y->data[id] + b * sizes_count(&one, outputs_axes(e->x, id));
}

static gdn2_seed_inputs inputs_row(const engine *e, int64_t b) {
  return (gdn2_seed_inputs){.q = input_row(e, IN_Q, b),
                            .k = input_row(e, IN_K, b),
                            .v = input_row(e, IN_V, b),
                            .w = input_row(e, IN_W, b),
                            .b = input_row(e, IN_B, b),
                            .g = input_row(e, IN_G, b),
                            .h0 = input_row(e, IN_H0, b)};
}

static int forward_slice(void *context, const slice *part) {
  const engine *e = context;
  gdn2_seed_config config = config_of(e->s);
  gdn2_seed_call call = call_of(e, part, &config);
  gdn2_seed_inputs in = inputs_row(e, part->b);
  if (gdn2_seed_diag_wanted()) call.report = print_report;
  return engine_code(gdn2_seed_forward(&call, &in, output_row(e, OUT_O, part->b), output_row(e, OUT_H_FINAL, part->b), NULL));
}

static int backward_slice(void *context, const slice *part) {
  const engine *e = context;
  gdn2_seed_config config = config_of(e->s);
  gdn2_seed_call call = call_of(e, part, &config);
  gdn2_seed_inputs in = inputs_row(e, part->b);
  gdn2_seed_gradients out = {.dq = output_row(e, OUT_DQ, part->b),
                             .dk = output_row(e, OUT_DK, part->b),
                             .dv = output_row(e, OUT_DV, part->b),
                             .dw = output_row(e, OUT_DW, part->b),
                             .db = output_row(e, OUT_DB, part->b),
                             .dg = output_row(e, OUT_DG, part->b),
                             .dh0 = output_row(e, OUT_DH0, part->b)};
  const float *d_o = input_row(e, IN_DO, part->b), *dh_final = input_row(e, IN_DH_FINAL, part->b);
  sizes rows = e->x->n;
  rows.B = part->B;
  float *zeros = d_o ? NULL : calloc((size_t)sizes_count(&rows, "BTJV") + 1, sizeof *zeros);
  if (!d_o && !zeros) return cli_failed("not enough memory for the gradient of o");
  int code = engine_code(gdn2_seed_backward(&call, &in, NULL, d_o ? d_o : zeros, dh_final, &out));
  free(zeros);
  return code;
}

int seed_check(const engine *e) {
  if (e->x->n.HV != e->x->n.H || e->x->per_head)
    return cli_wrong_use("--semantics seed has no grouped heads and no gates per head");
  gdn2_seed_config config = config_of(e->s);
  return engine_code(gdn2_seed_config_check(&config));
}

/* A report speaks of the whole batch, so there is no slicing when reports are wanted. */
static int64_t heads_at_a_time(const engine *e, const progress *bar) {
  return bar->on && !gdn2_seed_diag_wanted() ? e->x->n.H : 0;
}

int seed_forward(engine *e, progress *bar) { return slices_run(&e->x->n, heads_at_a_time(e, bar), forward_slice, e, bar, 1); }

int seed_backward(engine *e, progress *bar) {
  return slices_run(&e->x->n, heads_at_a_time(e, bar), backward_slice, e, bar, BACKWARD_WEIGHT);
}
