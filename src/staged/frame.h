/* The frame of a call of the seed's pipeline: what was asked for, checked, with the memory of every thread. The drivers of this
 * folder loop over batch, heads and chunks; all arithmetic is in the stages of the table. */
#ifndef GDN2_STAGED_FRAME_H
#define GDN2_STAGED_FRAME_H
#include "gdn2.h"
#include "isa/table.h"

/* Columns of a state that one task of kernels D and B1 walks through all chunks. */
#define GDN2_SEED_PANEL_WIDTH 64

typedef struct gdn2_seed_frame {
  const gdn2_seed_call *call;
  const gdn2_table *table;
  gdn2_seed_config config;
  gdn2_seed_dims dims;
  int64_t B, L, H, chunks; /* chunks = ceil(L / bt) */
  int threads;
  char *memory; /* threads x slot_bytes */
  size_t slot_bytes;
} gdn2_seed_frame;

/* The call's configuration, or the default; checked, and the call's struct_size too. */
gdn2_status gdn2_seed_config_of(const gdn2_seed_call *call, gdn2_seed_config *config);
/* Checks the call and allocates, for a configuration that has been checked. On an error nothing is held. */
gdn2_status gdn2_seed_frame_open_with(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_config *config);
void gdn2_seed_frame_close(gdn2_seed_frame *frame);

/* The scratch of worker `slot`. */
gdn2_seed_scratch gdn2_seed_frame_scratch(const gdn2_seed_frame *frame, int slot);

static inline int64_t gdn2_seed_heads(const gdn2_seed_frame *frame) { return frame->B * frame->H; }
/* Tasks of the kernels that take chunks one by one; task = (b H + h) chunks + c. */
static inline int64_t gdn2_seed_tasks(const gdn2_seed_frame *frame) { return gdn2_seed_heads(frame) * frame->chunks; }
/* Numbers in one chunk of a chunk tensor, in a score matrix, in a state. */
static inline int64_t gdn2_seed_keys(const gdn2_seed_frame *frame) { return (int64_t)frame->dims.C * frame->dims.K; }
static inline int64_t gdn2_seed_values(const gdn2_seed_frame *frame) { return (int64_t)frame->dims.C * frame->dims.V; }
static inline int64_t gdn2_seed_scores_size(const gdn2_seed_frame *frame) { return (int64_t)frame->dims.C * frame->dims.C; }
static inline int64_t gdn2_seed_state(const gdn2_seed_frame *frame) { return (int64_t)frame->dims.K * frame->dims.V; }

/* Real rows of the chunk of a task: bt, or fewer in the last chunk. */
int gdn2_seed_rows(const gdn2_seed_frame *frame, int64_t task);
/* Its first row in a token tensor of D channels; the rows are H D apart. */
int64_t gdn2_seed_first_row(const gdn2_seed_frame *frame, int64_t task, int64_t D);
/* The chunk of a task: token tensor <-> bt x D; rows past the end are 0, and dropped on the way back. */
void gdn2_seed_gather(const gdn2_seed_frame *frame, int64_t task, int64_t D, const float *tokens, float *chunk);
void gdn2_seed_scatter(const gdn2_seed_frame *frame, int64_t task, int64_t D, const float *chunk, float *tokens);
/* q, k, b, g into the scratch; those of v, w too. */
void gdn2_seed_gather_keys(const gdn2_seed_frame *frame, int64_t task, const gdn2_seed_inputs *in, gdn2_seed_scratch *s);
void gdn2_seed_gather_values(const gdn2_seed_frame *frame, int64_t task, const gdn2_seed_inputs *in, gdn2_seed_scratch *s);
/* gdn2_seed_chunk holds whole chunk tensors, or, of those, one chunk's part; the columns of u start at `column`. */
gdn2_seed_chunk gdn2_seed_chunk_of(const gdn2_seed_frame *frame, const gdn2_seed_chunk *whole, int64_t task, int column);

/* Tasks of the kernels that walk through the chunks: columns first .. first+width-1 of the states of one head. */
typedef struct gdn2_seed_panel {
  int64_t head;
  int first, width;
} gdn2_seed_panel;
int64_t gdn2_seed_panels(const gdn2_seed_frame *frame);
gdn2_seed_panel gdn2_seed_panel_of(const gdn2_seed_frame *frame, int64_t task);
/* A panel of a state, from and to leading dimension V; the pointers are at its first column. */
void gdn2_seed_copy_panel(const gdn2_seed_frame *frame, const gdn2_seed_panel *panel, const float *from, float *to);

/* 64-byte aligned; NULL if there is no memory. */
void *gdn2_seed_allocate(size_t bytes);
#endif
