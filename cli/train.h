/* train.h - between the files of gdn2 train. */
#ifndef GDN2_CLI_TRAIN_H
#define GDN2_CLI_TRAIN_H
#include "lm/trainer.h"
#include "lm_options.h"
#include "peak.h"

typedef struct train_text {
  uint8_t *bytes;
  int64_t count;
  uint64_t fingerprint;
} train_text;

enum { TRAIN_PEAKS = 64 };

typedef struct train_run {
  const lm_options *o;
  lm_trainer trainer;
  lm_log log;
  int64_t saved;  /* the step that the folder holds */
  lm_score score; /* of the last look; levels is 0 before the first */
  /* What the progress line and the report tell. */
  double seconds, rule_seconds, flop; /* of the steps of this process */
  int64_t steps;
  double loss; /* running mean */
  double started, drawn;
  int on, visible;
  peak peak;
  double peaks[TRAIN_PEAKS]; /* GFLOP/s of a thread, taken between steps: the machine may have other work */
  int peak_count;
} train_run;

/* Counts a step; its time is record->seconds. */
void train_begin(train_run *run);
void train_count(train_run *run, const lm_record *record);
/* The progress line, and a line on stdout for a step that was looked at. */
void train_show(train_run *run, const lm_record *record);
void train_clear(train_run *run);
/* A few milliseconds of multiply-adds, for the report. */
void train_measure_peak(train_run *run);
/* The table, or the object of --json, after the last step. Returns the exit code. */
int train_report(const train_run *run);

#endif
