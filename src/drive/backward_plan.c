#include "drive/backward_plan.h"

/* Chunks of a segment. A replayed chunk takes about twice a state's memory, and a segment of them should stay in the second-level
 * cache; the states between segments take as much memory as a tensor of K channels at V = 128. */
#define DEFAULT_SEGMENT 8
/* Blocks of sequences, where partial sums are kept for each: few, so that they stay small, and enough for many threads. */
#define MOST_BLOCKS 64

gdn2_backward_plan gdn2_backward_plan_of(const gdn2_backward_call *call) {
  const gdn2_call *in = &call->in;
  gdn2_backward_plan plan = {.heads = 1, .block = 1, .blocks = in->N};
  const int64_t group = in->H > 0 ? in->HV / in->H : 1;
  const int sums = call->dA_log.data || call->ddt_bias.data, raw_g = in->decay != GDN2_DECAY_LOG;
  const int wants[GDN2_WAITS] = {call->dq.data != NULL, call->dk.data != NULL, call->dg.data || sums, call->db.data != NULL};
  const int by_key[GDN2_WAITS] = {1, 1, in->g_key_heads, in->b_key_heads}, raw[GDN2_WAITS] = {in->l2norm, in->l2norm, raw_g, 0};
  for (int x = 0; x < GDN2_WAITS; x++) {
    const int shared = group > 1 && wants[x] && by_key[x];
    plan.waits[x] = wants[x] && (shared || raw[x]);
    if (shared) plan.heads = group;
  }
  plan.units = in->HV / plan.heads;
  plan.g_shared = in->g_key_heads;
  if (sums) {
    plan.parts = (call->dA_log.data ? 1 : 0) + (call->ddt_bias.data ? in->K : 0);
    plan.block = gdn2_ceil_div(in->N, MOST_BLOCKS) > 1 ? gdn2_ceil_div(in->N, MOST_BLOCKS) : 1;
    plan.blocks = gdn2_ceil_div(in->N, plan.block);
  }
  plan.group = gdn2_group_of(in, plan.blocks, plan.units, plan.heads);
  plan.groups = gdn2_ceil_div(plan.units, plan.group);
  const int64_t tasks = plan.groups * plan.blocks;
  plan.workers = tasks < 1 ? 1 : tasks < in->threads ? (int)tasks : in->threads;
  return plan;
}

gdn2_segments gdn2_segments_of(const gdn2_backward_call *call, int64_t tokens) {
  const int64_t chunks = gdn2_chunk_count(tokens);
  int64_t length = call->checkpoint_every ? call->checkpoint_every : DEFAULT_SEGMENT;
  if (call->snapshots.data) length = call->snapshot_every / GDN2_CHUNK;
  if (length > chunks) length = chunks > 0 ? chunks : 1;
  return (gdn2_segments){chunks, length, gdn2_ceil_div(chunks, length)};
}

float *gdn2_backward_lay_record(gdn2_arena *arena, gdn2_shape s, gdn2_chunk *c) {
  *c = gdn2_layout_chunk(arena, s, 1);
  return gdn2_arena_floats(arena, (size_t)s.Kp * (size_t)s.Sp);
}

gdn2_backward_slot gdn2_backward_lay(gdn2_arena *arena, const gdn2_backward_call *call, gdn2_shape s,
                                     const gdn2_backward_plan *plan, gdn2_segments segments) {
  const size_t heads = (size_t)(plan->heads * plan->group),
               kept = segments.count > 0 ? heads * (size_t)(segments.count - 1) * (size_t)s.K * (size_t)s.V : 0;
  gdn2_backward_slot slot;
  gdn2_arena measure = {NULL, 0};
  gdn2_chunk unused;
  (void)gdn2_backward_lay_record(&measure, s, &unused);
  slot.grad = gdn2_layout_grad(arena, s);
  slot.passing = gdn2_layout_chunk(arena, s, 0);
  slot.wait = gdn2_layout_wait(arena, s, segments.length * GDN2_CHUNK, plan->waits);
  slot.dS = gdn2_arena_floats(arena, heads * (size_t)s.Kp * (size_t)s.Sp);
  slot.checkpoints = gdn2_arena_floats(arena, call->snapshots.data ? 0 : kept);
  slot.replay_bytes = measure.used;
  slot.replay = arena->base ? arena->base + arena->used : NULL;
  /* One record more than chunks: the state behind the last chunk of a segment needs a place. */
  arena->used += measure.used * (size_t)(segments.length + 1);
  return slot;
}

size_t gdn2_backward_sum_bytes(const gdn2_backward_call *call, const gdn2_backward_plan *plan) {
  gdn2_arena measure = {NULL, 0};
  (void)gdn2_arena_floats(&measure, 2 * (size_t)(plan->blocks * gdn2_g_heads(&call->in) * plan->parts));
  return measure.used;
}

/* The most that any sequence needs: a longer one has longer segments, but not always more of them. */
size_t gdn2_backward_slot_bytes(const gdn2_backward_call *call, const gdn2_backward_plan *plan) {
  const gdn2_call *in = &call->in;
  size_t most = 0;
  int64_t before = -1;
  for (int64_t n = 0; n < (in->cu_seqlens ? in->N : 1); n++) {
    const int64_t tokens = gdn2_span_of(in, n).length;
    if (tokens == before) continue;
    gdn2_arena measure = {NULL, 0};
    (void)gdn2_backward_lay(&measure, call, gdn2_shape_of(in->K, in->V), plan, gdn2_segments_of(call, tokens));
    if (measure.used > most) most = measure.used;
    before = tokens;
  }
  return most;
}
