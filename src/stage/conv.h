/* The stages of the causal depthwise convolution: one panel of channels, one run of tokens of one sequence at a time. A caller's
 * arrays come as pointers to their element of token 0 of the sequence and channel 0 of the panel. */
#ifndef GDN2_STAGE_CONV_H
#define GDN2_STAGE_CONV_H
#include "base/view.h"
#include "gdn2.h"

/* Channels of a panel at most: its taps, sums and a few rows of each tensor stay in the first-level cache. */
#define GDN2_CONV_PANEL 512
#define GDN2_CONV_PAST (GDN2_CONV_MAX_WIDTH - 1)
/* Sums of a channel in the backward: one for each tap, one for the bias. */
#define GDN2_CONV_SUMS (GDN2_CONV_MAX_WIDTH + 1)

/* A weight [D][W] or a state [D][W-1]: channel c, tap j is element c * channel + j * tap. at == NULL: zeros, or not wanted. */
typedef struct gdn2_conv_grid {
  const char *at;
  gdn2_dtype dtype;
  int64_t channel, tap;
} gdn2_conv_grid;

typedef struct gdn2_conv_grid_out {
  char *at;
  gdn2_dtype dtype;
  int64_t channel, tap;
} gdn2_conv_grid_out;

/* The panel's part of the problem: `channels` of them. */
typedef struct gdn2_conv_panel {
  int W, silu, channels;
  int stream; /* y or dx is written past the caches where it can be */
  gdn2_conv_grid weight;
  gdn2_rows bias; /* one row */
} gdn2_conv_panel;

/* Tokens first .. first+count-1 of a sequence of `length`; where first is not 0 it is at least W-1 (or count is 0). */
typedef struct gdn2_conv_run {
  int64_t first, count, length;
  gdn2_rows x;
  gdn2_conv_grid state;
} gdn2_conv_run;

typedef struct gdn2_conv_grad {
  gdn2_rows dy;                /* at == NULL: zeros */
  gdn2_conv_grid dstate_final; /* read where the run has tokens among the last W-1, or begins the sequence */
  gdn2_rows_out dx;            /* at == NULL: not wanted */
  gdn2_conv_grid_out dstate;   /* written where the run begins the sequence */
  void *sums;                  /* [GDN2_CONV_SUMS][ld], added to; float, or double where the call is float64; NULL: not wanted */
  int64_t ld;
} gdn2_conv_grad;

typedef struct gdn2_conv_stages {
  /* y of the run's tokens; if it begins the sequence, state_final of the whole sequence, which may be the state itself. */
  void (*forward)(const gdn2_conv_panel *p, const gdn2_conv_run *run, gdn2_rows_out y, gdn2_conv_grid_out state_final);
  void (*backward)(const gdn2_conv_panel *p, const gdn2_conv_run *run, const gdn2_conv_grad *grad);
  /* to = the sum of `blocks` rows of `channels` numbers, `step` apart, added in order in float64; f64: the rows are double. */
  void (*total)(int channels, int64_t blocks, const void *rows, int64_t step, int f64, gdn2_conv_grid_out to);
  /* After the last of the above in a task. */
  void (*finish)(void);
  /* Zeros in the first `count` tokens of a panel. */
  void (*clear)(int channels, int64_t count, gdn2_rows_out y);
} gdn2_conv_stages;
#endif
