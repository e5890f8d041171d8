/* trainer.h - training: the run's settings, its state, one step at a time, and its folder.
 *
 *     FOLDER/config.json             the model and the settings of the run, written once
 *     FOLDER/checkpoint.safetensors  weights, optimiser, step; replaced as a whole
 *     FOLDER/log.csv                 a line per step
 *     FOLDER/loss.svg                the plot of the log */
#ifndef GDN2_LM_TRAINER_H
#define GDN2_LM_TRAINER_H
#include "lm/adamw.h"
#include "lm/data.h"
#include "lm/model.h"
#include "io/tensor_file.h"
#include <stdio.h>

typedef struct lm_settings {
  lm_config config;
  int64_t steps, warmup;
  int64_t batch, length, accumulate; /* samples of a pass, tokens of a sample, passes of a step */
  double learning_rate, weight_decay, clip, validation;
  uint64_t seed;
  int task; /* lm_task */
  int64_t pairs;
  int64_t text_bytes; /* of the text, and what it is known by */
  uint64_t text_fingerprint;
} lm_settings;

/* ---- The folder ----------------------------------------------------------------------------------------------------------- */

/* Each returns 0, or -1 with a sentence. */
int lm_config_write(const char *folder, const lm_settings *settings, io_error *error);
int lm_config_read(const char *folder, lm_settings *settings, io_error *error);
/* Whether the folder holds a run: its config. */
int lm_config_exists(const char *folder);

int lm_checkpoint_write(const char *folder, const lm_model *model, const lm_adamw *optimiser, int64_t step, io_error *error);
/* optimiser NULL: the weights alone. */
int lm_checkpoint_read(const char *folder, lm_model *model, lm_adamw *optimiser, int64_t *step, io_error *error);

/* FOLDER/NAME, to be freed; NULL with a sentence. */
char *lm_path(const char *folder, const char *name, io_error *error);

/* ---- The log -------------------------------------------------------------------------------------------------------------- */

typedef struct lm_record {
  int64_t step;
  double loss;       /* nats per target, mean over the step */
  double validation; /* the same, held out; NaN: not evaluated */
  double learning_rate, gradient_norm;
  double seconds; /* of the step */
} lm_record;

typedef struct lm_log {
  FILE *file;
  int64_t count, size;
  lm_record *at;
} lm_log;

/* Opens FOLDER/log.csv; what stands there beyond `step` is dropped: it was made after the last checkpoint and will be again. */
int lm_log_open(lm_log *log, const char *folder, int64_t step, io_error *error);
int lm_log_add(lm_log *log, const lm_record *record, io_error *error);
void lm_log_close(lm_log *log);
/* FOLDER/loss.svg: training and validation loss in bits against the steps. */
int lm_plot_write(const lm_log *log, const char *folder, const char *title, io_error *error);

/* ---- Steps ---------------------------------------------------------------------------------------------------------------- */

typedef struct lm_trainer {
  lm_settings settings;
  lm_data data;
  lm_model model;
  lm_adamw optimiser;
  int64_t step; /* steps that are done */
  int32_t *tokens, *targets;
} lm_trainer;

/* text[text_bytes] stays the caller's; NULL for a task without one. Returns 0, or -1 when there is no memory. The settings have
 * no fault. The weights are initial ones, the step is 0. */
int lm_trainer_create(lm_trainer *trainer, const lm_settings *settings, const uint8_t *text);
void lm_trainer_free(lm_trainer *trainer);

/* One step of the optimiser. Fails as the library does. A gradient that is not finite changes no weight: see gradient_norm. */
gdn2_status lm_trainer_step(lm_trainer *trainer, lm_record *record);

/* Mean loss over at most `most` held-out samples, in nats; and for MQAR how many answers of each level were right and asked. */
typedef struct lm_score {
  double loss;
  int levels;
  int64_t pairs[LM_MQAR_LEVELS], right[LM_MQAR_LEVELS], asked[LM_MQAR_LEVELS];
} lm_score;
gdn2_status lm_trainer_evaluate(lm_trainer *trainer, int64_t most, lm_score *score);

/* Floating-point operations of a step that any implementation needs: 6 for each parameter and token, the rule's 22 K V for each
 * head, layer and token. An embedding that is not the head too is a table, and counts for nothing. */
double lm_useful_flop(const lm_settings *settings, const lm_params *params);

#endif
