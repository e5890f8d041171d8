/* Decode: what a step accepts. */
#include "drive/step.h"
#include "api/indices.h"
#include "double/double.h"
#include <inttypes.h>
#include <string.h>

/* ---- Indices --------------------------------------------------------------------------------------------------------------- */

static gdn2_status check_slots(const gdn2_step_args *args, gdn2_places *places, gdn2_step_call *call, int64_t *slots) {
  const int64_t N = call->in.N;
  gdn2_status status = gdn2_check_indices("slot", args->slot, args->slot_type, (size_t)N, places);
  if (status == GDN2_OK) status = gdn2_check_not_negative("slots", args->slots);
  if (status != GDN2_OK) return status;
  call->slot = args->slot;
  call->slot_type = args->slot_type;
  *slots = args->slots ? args->slots : N;
  if (!call->slot && *slots < N)
    return gdn2_fail(GDN2_ERR_SHAPE, "slots is %" PRId64 "; without slot it must not be below the number of rows, %" PRId64,
                     *slots, N);
  return call->slot ? gdn2_check_slots("slot", call->slot, call->slot_type, N, "slots", *slots) : GDN2_OK;
}

static gdn2_status check_accepted(const gdn2_step_args *args, gdn2_places *places, gdn2_step_call *call) {
  gdn2_status status = gdn2_check_indices("accepted", args->accepted, args->accepted_type, (size_t)call->in.N, places);
  if (status != GDN2_OK || !args->accepted) return status;
  if (!args->history.data && args->history_length > 0)
    return gdn2_fail(GDN2_ERR_ARGUMENT, "history: data is NULL; with accepted it must point to states");
  call->accepted = args->accepted;
  call->accepted_type = args->accepted_type;
  for (int64_t n = 0; n < call->in.N; n++) {
    const int64_t count = gdn2_index_at(call->accepted, call->accepted_type, n);
    if (call->slot && gdn2_index_at(call->slot, call->slot_type, n) < 0) continue;
    if (count < 0 || count > args->history_length)
      return gdn2_fail(GDN2_ERR_ARGUMENT, "accepted[%" PRId64 "] is %" PRId64 "; it must be from 0 to history_length, %" PRId64,
                       n, count, args->history_length);
  }
  return GDN2_OK;
}

/* ---- States ---------------------------------------------------------------------------------------------------------------- */

/* States [slot, head, key, value] as states that have one moment. */
static gdn2_states_view one_moment(char *data, gdn2_dtype dtype, const int64_t *stride) {
  return (gdn2_states_view){data, dtype, {stride[0], 0, stride[1], stride[2], stride[3]}};
}

static gdn2_status check_pool(const gdn2_step_args *args, int64_t slots, gdn2_places *places, gdn2_step_call *call) {
  const gdn2_call *in = &call->in;
  const gdn2_expect from = {.name = "from", .size = {slots, in->HV, in->K, in->V}, .state = 1, .f64 = in->f64};
  const gdn2_expect to = {.name = "to", .size = {slots, in->HV, in->K, in->V}, .state = 1, .f64 = in->f64, .in_place = {"from"}};
  gdn2_view old;
  gdn2_view_out new;
  gdn2_status status = gdn2_check_input(&args->from, &from, places, &old);
  if (status == GDN2_OK) status = gdn2_check_output(&args->to, &to, places, &new);
  if (status != GDN2_OK) return status;
  union {
    const char *given;
    char *at;
  } read = {.given = old.data};
  call->from = one_moment(read.at, old.dtype, old.stride);
  call->to = one_moment(new.data, new.dtype, new.stride);
  return GDN2_OK;
}

static gdn2_status check_states(const gdn2_step_args *args, int64_t slots, gdn2_places *places, gdn2_step_call *call) {
  const gdn2_call *in = &call->in;
  const int64_t rows = call->by_slot ? slots : in->N;
  const gdn2_expect each = {.name = "each",
                            .size = {rows, gdn2_longest(in), in->HV, in->K, in->V},
                            .state = 1,
                            .moments = 1,
                            .f64 = in->f64,
                            .in_place = {"history"}};
  const gdn2_expect history = {
      .name = "history", .size = {rows, args->history_length, in->HV, in->K, in->V}, .state = 1, .moments = 1, .f64 = in->f64};
  gdn2_status status = check_pool(args, slots, places, call);
  if (status == GDN2_OK) status = gdn2_check_states(&args->history, &history, 0, places, &call->history);
  if (status == GDN2_OK) status = gdn2_check_states(&args->each, &each, 1, places, &call->each);
  return status;
}

/* ---- The call -------------------------------------------------------------------------------------------------------------- */

static gdn2_status check_problem(const gdn2_step_args *args, gdn2_places *places, gdn2_call *in) {
  const gdn2_problem *p = &args->problem;
  if (p->h0.data) return gdn2_fail(GDN2_ERR_ARGUMENT, "h0 is given; a step takes its states from `from`: h0 must be absent");
  return gdn2_check_problem(p, &args->exec, places, in);
}

static gdn2_status check(const gdn2_step_args *args, gdn2_step_call *call) {
  gdn2_places places;
  gdn2_places_start(&places, 0);
  memset(call, 0, sizeof *call);
  if (!args) return gdn2_fail(GDN2_ERR_ARGUMENT, "args is NULL; it must point to a gdn2_step_args");
  gdn2_status status = gdn2_check_size(args->struct_size, sizeof *args, "gdn2_step_args");
  if (status == GDN2_OK) status = check_problem(args, &places, &call->in);
  if (status != GDN2_OK) return status;
  status = gdn2_check_not_negative("history_length", args->history_length);
  if (status == GDN2_OK) status = gdn2_check_flag("drafts_by_slot", args->drafts_by_slot, 1);
  if (status != GDN2_OK) return status;
  call->by_slot = args->drafts_by_slot;
  call->reset = args->reset;
  int64_t slots;
  status = gdn2_places_add_bytes(&places, "reset", args->reset, (size_t)call->in.N, 0);
  if (status == GDN2_OK) status = check_slots(args, &places, call, &slots);
  if (status == GDN2_OK) status = check_states(args, slots, &places, call);
  if (status == GDN2_OK) status = check_accepted(args, &places, call);
  const gdn2_expect o = gdn2_expect_tokens(&call->in, "o", call->in.HV, call->in.V);
  return status == GDN2_OK ? gdn2_check_output(&args->o, &o, &places, &call->o) : status;
}

gdn2_status gdn2_step(const gdn2_step_args *args) {
  gdn2_step_call call;
  const gdn2_status status = check(args, &call);
  if (status != GDN2_OK) return status;
  if (call.in.f64)
    gdn2_double_decode(&call);
  else
    gdn2_drive_step(&call);
  return GDN2_OK;
}
