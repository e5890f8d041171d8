/* Decode in float64: one task per (row, value head). The state is walked in panels of value channels, which do not see each
 * other, so that one fits on the stack: a step allocates nothing. A token's gates are finished once for each panel. */
#include "base/par_for.h"
#include "double/double.h"
#include "double/head.h"
#include "drive/step.h"

#define PANEL 16

/* A panel of a head on its way. */
typedef struct {
  double S[GDN2_MAX_DIM * PANEL], u[PANEL];
  double
      tokens[8 * GDN2_MAX_DIM + 2 * PANEL + 8 * (GDN2_STAGGER + GDN2_ALIGN) / sizeof(double)]; /* room for the token's arrays */
} panel_room;

static void panel_load(gdn2_state_at from, int64_t K, int64_t width, double *S) {
  const double *at = (const double *)(const void *)from.at;
  for (int64_t d = 0; d < K; d++)
    for (int64_t c = 0; c < width; c++) S[d * width + c] = at ? at[d * from.key_step + c * from.value_step] : 0;
}

/* Value channels value .. value+width-1 of a head through the tokens of its row. */
static void walk_panel(const gdn2_step_call *call, const gdn2_step_row *row, int64_t j, int64_t value, int64_t width) {
  const gdn2_call *in = &call->in;
  panel_room room;
  gdn2_arena arena = {(char *)room.tokens, 0};
  gdn2_double_token token = gdn2_double_lay_token(&arena, in->K, width);
  gdn2_double_head head = gdn2_double_head_of(in, row->at, j);
  head.V = width;
  gdn2_rows_skip(&head.v, value);
  gdn2_rows_skip(&head.w, value);
  const gdn2_rows_out o = gdn2_view_rows_out(&call->o, row->at.batch, row->at.start, j);
  panel_load(gdn2_step_from(call, row, j, value), in->K, width, room.S);
  for (int64_t t = 0; t < row->at.length; t++) {
    gdn2_double_load(&head, t, &token);
    gdn2_double_step(&head, &token, room.S, room.S, room.u, o.at ? (double *)(void *)o.at + t * o.step + value : NULL);
    gdn2_double_state_put(room.S, in->K, width, gdn2_states_at(&call->each, gdn2_step_drafts(call, row), t, j, value));
  }
  gdn2_double_state_put(room.S, in->K, width, gdn2_states_at(&call->to, row->slot, 0, j, value));
}

static void decode_task(void *context, int64_t task, int worker) {
  const gdn2_step_call *call = context;
  const gdn2_call *in = &call->in;
  const int64_t j = task % in->HV;
  const gdn2_step_row row = gdn2_step_row_of(call, task / in->HV);
  (void)worker;
  if (row.slot < 0) {
    const gdn2_rows_out o = gdn2_view_rows_out(&call->o, row.at.batch, row.at.start, j);
    for (int64_t t = 0; o.at && t < row.at.length; t++)
      memset((double *)(void *)o.at + t * o.step, 0, (size_t)in->V * sizeof(double));
    return;
  }
  for (int64_t value = 0; value < in->V; value += PANEL)
    walk_panel(call, &row, j, value, in->V - value < PANEL ? in->V - value : PANEL);
}

void gdn2_double_decode(const gdn2_step_call *call) {
  const gdn2_call *in = &call->in;
  const int64_t tasks = in->N * in->HV;
  gdn2_step_call copy = *call;
  gdn2_par_for(tasks < in->threads ? (int)tasks : in->threads, tasks, decode_task, &copy);
  if (in->cu_seqlens) gdn2_double_clear(&call->o, gdn2_offset(in, in->N), in->T, in->HV, in->V);
}
