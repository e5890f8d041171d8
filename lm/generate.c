#include "lm/generate.h"
#include "lm/random.h"
#include <stdlib.h>

/* A random stream apart from those of parameters and data. */
#define STREAM_SAMPLE UINT64_C(0x100000010)

static int64_t largest(const real *logits, int64_t V) {
  int64_t best = 0;
  for (int64_t v = 1; v < V; v++)
    if (logits[v] > logits[best]) best = v;
  return best;
}

/* weight[v] = e^((z_v - max z) / temperature); returns their sum. */
static double weigh(const real *logits, int64_t V, double temperature, double *weight) {
  const double top = (double)logits[largest(logits, V)];
  double sum = 0;
  for (int64_t v = 0; v < V; v++) sum += weight[v] = exp(((double)logits[v] - top) / temperature);
  return sum;
}

/* Puts the n heaviest first into order[V], until they are `most` or weigh `enough`; returns how many. */
static int64_t select_heaviest(const double *weight, int64_t V, int64_t most, double enough, int32_t *order) {
  double sum = 0;
  int64_t n = 0;
  for (int64_t v = 0; v < V; v++) order[v] = (int32_t)v;
  for (; n < most && (n == 0 || sum < enough); n++) {
    int64_t best = n;
    for (int64_t i = n + 1; i < V; i++)
      if (weight[order[i]] > weight[order[best]]) best = i;
    const int32_t token = order[best];
    order[best] = order[n], order[n] = token;
    sum += weight[token];
  }
  return n;
}

int32_t lm_sample(const real *logits, int64_t V, const lm_sampling *how, uint64_t position, int32_t *order, double *weight) {
  if (how->temperature <= 0) return (int32_t)largest(logits, V);
  double sum = weigh(logits, V, how->temperature, weight);
  int64_t count = V;
  for (int64_t v = 0; v < V; v++) order[v] = (int32_t)v;
  if ((how->top_k > 0 && how->top_k < V) || how->top_p < 1) {
    const int64_t most = how->top_k > 0 && how->top_k < V ? how->top_k : V;
    count = select_heaviest(weight, V, most, how->top_p < 1 ? how->top_p * sum : INFINITY, order);
    sum = 0;
    for (int64_t i = 0; i < count; i++) sum += weight[order[i]];
  }
  double left = lm_random_uniform(how->seed, STREAM_SAMPLE, position) * sum;
  int64_t i = 0;
  while (i + 1 < count && (left -= weight[order[i]]) >= 0) i++;
  return order[i];
}

int lm_reader_create(lm_reader *r, lm_model *model) {
  const size_t V = (size_t)model->params.config.vocabulary;
  *r = (lm_reader){.model = model};
  r->order = malloc(V * sizeof *r->order);
  r->weight = malloc(V * sizeof *r->weight);
  if (r->order && r->weight && !lm_state_create(&r->state, &model->params.config, 1)) return 0;
  lm_reader_free(r);
  return -1;
}

void lm_reader_free(lm_reader *r) {
  lm_state_free(&r->state);
  free(r->order);
  free(r->weight);
  *r = (lm_reader){.model = NULL};
}

gdn2_status lm_reader_read(lm_reader *r, const int32_t *tokens, int64_t count, const real **logits) {
  for (int64_t first = 0; first < count; first += LM_PROMPT_PASS) {
    const int64_t n = count - first < LM_PROMPT_PASS ? count - first : LM_PROMPT_PASS;
    gdn2_status status = lm_forward(r->model, tokens + first, 1, n, &r->state);
    if (status) return status;
    *logits = r->model->logits + (n - 1) * r->model->params.config.vocabulary;
  }
  return GDN2_OK;
}
