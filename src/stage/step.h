/* The stages of decode: a few tokens of one head on a state that lives in the caller's memory. step_tmpl.c. */
#ifndef GDN2_STAGE_STEP_H
#define GDN2_STAGE_STEP_H
#include "chunk/records.h"
#include "gdn2.h"

/* The state of one head in the caller's memory: element (key, value) is the element key * key_step + value * value_step behind
 * at. at == NULL: zeros where it is read, not wanted where it is written. */
typedef struct gdn2_state_at {
  char *at;
  gdn2_dtype dtype;
  int64_t key_step, value_step;
} gdn2_state_at;

/* One head on its way through its new tokens. from, to and each may be the same memory if they have the same steps. */
typedef struct gdn2_step_work {
  gdn2_shape s;
  const gdn2_head *head;
  int64_t tokens;
  gdn2_state_at from, to, each; /* before; after the last token; after token 0 */
  int64_t each_step;            /* elements from the state after one token to that after the next */
  gdn2_rows_out o;
  const char *next; /* where the state begins that will be wanted next; NULL: unknown */
} gdn2_step_work;

typedef struct gdn2_step_stages {
  /* All tokens of a head; with none, `to` becomes `from`. */
  void (*walk)(const gdn2_step_work *work);
  /* An engine's state S [K][Sp] into the caller's memory, rounded once. */
  void (*keep)(gdn2_shape s, const float *S, gdn2_state_at to);
} gdn2_step_stages;
#endif
