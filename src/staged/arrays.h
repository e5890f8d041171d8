/* The arrays of a call of the seed's pipeline, as its checks see them. */
#ifndef GDN2_STAGED_ARRAYS_H
#define GDN2_STAGED_ARRAYS_H
#include "staged/frame.h"

/* What is in an array, and so its size: gdn2_seed.h has the shapes. */
typedef enum gdn2_seed_kind {
  GDN2_SEED_KEY_TOKENS,   /* [B, L, H, K] */
  GDN2_SEED_VALUE_TOKENS, /* [B, L, H, V] */
  GDN2_SEED_KEY_CHUNKS,   /* [B, H, NC, bt, K] */
  GDN2_SEED_VALUE_CHUNKS, /* [B, H, NC, bt, V] */
  GDN2_SEED_SCORES,       /* [B, H, NC, bt, bt] */
  GDN2_SEED_STATES,       /* [B, H, NC, K, V] */
  GDN2_SEED_LAST_ROWS,    /* [B, H, NC, K] */
  GDN2_SEED_STATE         /* [B, H, K, V] */
} gdn2_seed_kind;

typedef struct gdn2_seed_array {
  const char *name;
  const float *data; /* NULL: absent */
  gdn2_seed_kind kind;
  int written, optional;
} gdn2_seed_array;

/* An argument, or the member of one, under the name that the caller wrote: that of the expression. */
#define GDN2_SEED_IN(x, what)                                                                                                    \
  { .name = #x, .data = (x), .kind = GDN2_SEED_##what }
#define GDN2_SEED_MAY(x, what)                                                                                                   \
  { .name = #x, .data = (x), .kind = GDN2_SEED_##what, .optional = 1 }
#define GDN2_SEED_OUT(x, what)                                                                                                   \
  { .name = #x, .data = (x), .kind = GDN2_SEED_##what, .written = 1 }
#define GDN2_SEED_MAY_OUT(x, what)                                                                                               \
  { .name = #x, .data = (x), .kind = GDN2_SEED_##what, .written = 1, .optional = 1 }

/* The members of a struct; WAY: one of the above. */
#define GDN2_SEED_OF_INPUTS(x)                                                                                                   \
  GDN2_SEED_IN(x->q, KEY_TOKENS), GDN2_SEED_IN(x->k, KEY_TOKENS), GDN2_SEED_IN(x->v, VALUE_TOKENS),                              \
      GDN2_SEED_IN(x->w, VALUE_TOKENS), GDN2_SEED_IN(x->b, KEY_TOKENS), GDN2_SEED_IN(x->g, KEY_TOKENS),                          \
      GDN2_SEED_MAY(x->h0, STATE)
#define GDN2_SEED_OF_RESIDUALS(WAY, x)                                                                                           \
  WAY(x->Aqk, SCORES), WAY(x->Akk, SCORES), WAY(x->A, SCORES), WAY(x->h_pre_all, STATES), WAY(x->v_new_all, VALUE_CHUNKS),       \
      WAY(x->u, VALUE_CHUNKS), WAY(x->w_pseudo, KEY_CHUNKS), WAY(x->kg, KEY_CHUNKS), WAY(x->qg, KEY_CHUNKS),                     \
      WAY(x->gc_last, LAST_ROWS)

/* Opens the frame of a call with these arrays: GDN2_ERR_ARGUMENT if one is NULL and not optional, or no place for a float, or if
 * two have an element in common and one of them is written. */
gdn2_status gdn2_seed_frame_open_arrays(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_array *arrays,
                                        int count);
/* The same for another configuration than the call's. */
gdn2_status gdn2_seed_frame_open_arrays_with(gdn2_seed_frame *frame, const gdn2_seed_call *call, const gdn2_seed_config *config,
                                             const gdn2_seed_array *arrays, int count);
#define GDN2_SEED_OPEN(frame, call, arrays)                                                                                      \
  gdn2_seed_frame_open_arrays(frame, call, arrays, (int)(sizeof(arrays) / sizeof *(arrays)))

/* The struct pointers of a call: GDN2_ERR_ARGUMENT if one is NULL. names: the arguments as written, separated by commas. */
gdn2_status gdn2_seed_present(const char *names, int count, const void *const pointers[]);
#define GDN2_SEED_NEED(...)                                                                                                      \
  gdn2_seed_present(#__VA_ARGS__, (int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),                            \
                    (const void *const[]){__VA_ARGS__})
#endif
