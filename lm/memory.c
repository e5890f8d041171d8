/* memory.c - where a model's arrays lie. */
#include "lm/model.h"
#include <stdlib.h>

/* One array of a block: where its address goes, and its numbers. A count of 0 leaves NULL. */
typedef struct piece {
  real **address;
  int64_t count;
} piece;

enum { ALIGN = 64 / sizeof(real), MOST = 40 };

typedef struct pieces {
  int count;
  piece at[MOST];
} pieces;

static void want(pieces *p, real **address, int64_t count) { p->at[p->count++] = (piece){address, count}; }

static int64_t padded(int64_t count) { return (count + ALIGN - 1) / ALIGN * ALIGN; }

static int64_t total_of(const pieces *p) {
  int64_t total = 0;
  for (int i = 0; i < p->count; i++) total += padded(p->at[i].count);
  return total;
}

static real *place(const pieces *p, real *next) {
  for (int i = 0; i < p->count; i++) {
    *p->at[i].address = p->at[i].count ? next : NULL;
    next += padded(p->at[i].count);
  }
  return next;
}

static pieces block_pieces(const lm_model *m, lm_block_acts *a, int training) {
  const lm_config *c = &m->params.config;
  const int64_t M = m->tokens, D = c->d_model, N = c->heads * c->head_dim;
  const int64_t moments = training && LM_DTYPE == GDN2_F32 ? M / LM_KEEP_EVERY : 0; /* of however many sequences */
  pieces p = {.count = 0};
  want(&p, &a->x, M * D);
  want(&p, &a->p, M * m->params.columns.total);
  want(&p, &a->c, M * 3 * N);
  want(&p, &a->f, m->params.offset[0][LM_F_PROJ_1] < 0 ? 0 : M * N);
  want(&p, &a->z, M * N);
  want(&p, &a->o, M * N);
  want(&p, &a->S, moments * N * c->head_dim);
  want(&p, &a->x_mid, M * D);
  want(&p, &a->u, M * 2 * c->d_mlp);
  return p;
}

static pieces shared_pieces(lm_model *m, int training) {
  const lm_config *c = &m->params.config;
  const int64_t M = m->tokens, D = c->d_model, N = c->heads * c->head_dim, once = training ? 1 : 0;
  lm_scratch *s = &m->scratch;
  pieces p = {.count = 0};
  want(&p, &m->value, m->params.floats);
  want(&p, &m->grad, once * m->params.floats);
  want(&p, &m->x_out, M * D);
  want(&p, &m->logits, M * c->vocabulary);
  want(&p, &s->n, M * D);
  want(&p, &s->y, M * N);
  want(&p, &s->h, M * c->d_mlp);
  want(&p, &s->dx, once * M * D);
  want(&p, &s->dn, once * M * D);
  want(&p, &s->dp, once * M * m->params.columns.total);
  want(&p, &s->dc, once * M * 3 * N);
  want(&p, &s->df, once * M * N);
  want(&p, &s->dz, once * M * N);
  want(&p, &s->d_o, once * M * N);
  want(&p, &s->du, once * M * 2 * c->d_mlp);
  want(&p, &s->dh, once * M * c->d_mlp);
  want(&p, &s->dw, once * M * c->heads);
  want(&p, &s->dA_log, once * c->heads);
  want(&p, &s->ddt_bias, once * N);
  want(&p, &s->sums, once * (3 * N * c->conv_width + D + c->head_dim));
  return p;
}

int lm_model_create(lm_model *m, const lm_config *config, int64_t tokens, int training) {
  *m = (lm_model){.tokens = tokens};
  if (lm_params_create(&m->params, config)) return -1;
  const int64_t layers = config->layers;
  m->acts = calloc((size_t)layers, sizeof *m->acts);
  m->loss = malloc((size_t)tokens * sizeof *m->loss);
  if (!m->acts || !m->loss) return lm_model_free(m), -1;
  pieces shared = shared_pieces(m, training), block = block_pieces(m, &m->acts[0], training);
  int64_t count = total_of(&shared) + (training ? layers : 1) * total_of(&block);
  real *memory = aligned_alloc(64, (size_t)count * sizeof *memory);
  if (!memory) return lm_model_free(m), -1;
  m->value = memory; /* the first piece: what lm_model_free releases */
  real *next = place(&shared, memory);
  for (int64_t layer = 0; layer < layers; layer++) {
    block = block_pieces(m, &m->acts[layer], training);
    if (training || layer == 0) next = place(&block, next);
    if (!training) m->acts[layer] = m->acts[0];
  }
  return 0;
}

void lm_model_free(lm_model *m) {
  lm_params_free(&m->params);
  free(m->value);
  free(m->acts);
  free(m->loss);
  free(m->workspace);
  *m = (lm_model){.value = NULL};
}

/* A step of generation is over before a second thread would have begun. */
#define FEW_TOKENS 16

void lm_reserve(lm_model *m, size_t bytes, gdn2_exec *exec) {
  if (bytes > m->workspace_bytes) {
    free(m->workspace);
    m->workspace_bytes = (bytes + 63) / 64 * 64;
    m->workspace = aligned_alloc(64, m->workspace_bytes);
    /* Without memory the library tries for itself, and says so. */
    if (!m->workspace) m->workspace_bytes = 0;
  }
  exec->threads = m->B * m->T < FEW_TOKENS ? 1 : 0;
  exec->workspace = m->workspace;
  exec->workspace_bytes = m->workspace_bytes;
}

int lm_state_create(lm_state *state, const lm_config *c, int64_t B) {
  const size_t N = (size_t)(c->heads * c->head_dim), rows = (size_t)(c->layers * B);
  state->conv = calloc(rows * 3 * N * (size_t)(c->conv_width - 1), sizeof *state->conv);
  state->S = calloc(rows * N * (size_t)c->head_dim, sizeof *state->S);
  if (state->conv && state->S) return 0;
  lm_state_free(state);
  return -1;
}

void lm_state_free(lm_state *state) {
  free(state->conv);
  free(state->S);
  *state = (lm_state){.conv = NULL};
}
