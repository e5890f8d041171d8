#include "lm/trainer.h"
#include <stdlib.h>
#include <string.h>

#define BETA1 0.9
#define BETA2 0.95
#define EPS 1e-8
/* The learning rate ends at this part of its peak. */
#define FLOOR 0.1

int lm_trainer_create(lm_trainer *r, const lm_settings *s, const uint8_t *text) {
  const int64_t M = s->batch * s->length;
  *r = (lm_trainer){.settings = *s};
  r->data = (lm_data){.task = s->task, .T = s->length, .seed = s->seed, .vocabulary = s->config.vocabulary, .pairs = s->pairs};
  r->data.bytes = text;
  r->data.count = s->text_bytes;
  r->data.training = lm_data_training(s->text_bytes, s->validation);
  r->tokens = malloc((size_t)M * sizeof *r->tokens);
  r->targets = malloc((size_t)M * sizeof *r->targets);
  if (!r->tokens || !r->targets || lm_model_create(&r->model, &s->config, M, 1) ||
      lm_adamw_create(&r->optimiser, &r->model.params)) {
    lm_trainer_free(r);
    return -1;
  }
  lm_params_init(&r->model.params, r->model.value, s->seed);
  return 0;
}

void lm_trainer_free(lm_trainer *r) {
  lm_model_free(&r->model);
  lm_adamw_free(&r->optimiser);
  free(r->tokens);
  free(r->targets);
  *r = (lm_trainer){.step = 0};
}

static int64_t count_targets(const int32_t *targets, int64_t M) {
  int64_t count = 0;
  for (int64_t t = 0; t < M; t++) count += targets[t] >= 0;
  return count;
}

/* One pass; its mean loss is added to *loss. */
static gdn2_status accumulate(lm_trainer *r, uint64_t first, double *loss) {
  const lm_settings *s = &r->settings;
  const int64_t T = s->length;
  for (int64_t b = 0; b < s->batch; b++) lm_data_sample(&r->data, first + (uint64_t)b, r->tokens + b * T, r->targets + b * T);
  const double asked = (double)count_targets(r->targets, s->batch * T);
  double sum = 0;
  gdn2_status status = lm_forward(&r->model, r->tokens, s->batch, T, NULL);
  if (!status) status = lm_backward(&r->model, r->tokens, r->targets, (real)(1 / (asked * (double)s->accumulate)), &sum, NULL);
  *loss += sum / asked;
  return status;
}

gdn2_status lm_trainer_step(lm_trainer *r, lm_record *record) {
  const lm_settings *s = &r->settings;
  const uint64_t first = (uint64_t)(r->step * s->accumulate * s->batch);
  double loss = 0;
  memset(r->model.grad, 0, (size_t)r->model.params.floats * sizeof *r->model.grad);
  for (int64_t n = 0; n < s->accumulate; n++) {
    gdn2_status status = accumulate(r, first + (uint64_t)(n * s->batch), &loss);
    if (status) return status;
  }
  r->step++;
  const double rate = lm_learning_rate(r->step, s->warmup, s->steps, s->learning_rate, FLOOR * s->learning_rate);
  const lm_adamw_rate how = {.learning_rate = rate,
                             .weight_decay = s->weight_decay,
                             .beta1 = BETA1,
                             .beta2 = BETA2,
                             .eps = EPS,
                             .clip = s->clip,
                             .step = r->step};
  double norm = lm_adamw_step(&r->optimiser, &r->model.params, r->model.value, r->model.grad, &how);
  *record = (lm_record){
      .step = r->step, .loss = loss / (double)s->accumulate, .validation = NAN, .learning_rate = rate, .gradient_norm = norm};
  return GDN2_OK;
}

/* One held-out sample a pass, so that its answers are counted for its own level. */
gdn2_status lm_trainer_evaluate(lm_trainer *r, int64_t most, lm_score *score) {
  const int64_t held = lm_data_held(&r->data, most), T = r->settings.length;
  double sum = 0;
  int64_t asked = 0;
  *score = (lm_score){.levels = 1};
  if (r->data.task == LM_MQAR) score->levels = lm_mqar_levels(r->data.pairs, score->pairs);
  for (int64_t n = 0; n < held; n++) {
    const int level = (int)(n % score->levels);
    lm_data_held_sample(&r->data, n, r->tokens, r->targets);
    gdn2_status status = lm_forward(&r->model, r->tokens, 1, T, NULL);
    if (status) return status;
    sum += lm_evaluate(&r->model, r->targets, &score->right[level]);
    score->asked[level] += count_targets(r->targets, T);
  }
  for (int level = 0; level < score->levels; level++) asked += score->asked[level];
  score->loss = sum / (double)asked;
  return GDN2_OK;
}

double lm_useful_flop(const lm_settings *s, const lm_params *p) {
  const lm_config *c = &s->config;
  const double tokens = (double)(s->batch * s->length * s->accumulate);
  const double table = c->tied ? 0 : (double)(c->vocabulary * c->d_model);
  const double rule = 22.0 * (double)(c->head_dim * c->head_dim * c->heads * c->layers);
  return tokens * (6 * ((double)p->numbers - table) + rule);
}
