/* config.h - the shape of a model. */
#ifndef GDN2_LM_CONFIG_H
#define GDN2_LM_CONFIG_H
#include <stdint.h>

/* The member of the family: which gates the layer has, and how many numbers each is. */
typedef enum lm_rule {
  LM_GDN2,     /* decay and erase gate per key channel, write gate per value channel */
  LM_KDA,      /* decay per key channel, one number per head for erase and write */
  LM_GDN,      /* decay per head, one number per head for erase and write */
  LM_DELTANET, /* no decay, one number per head for erase and write */
  LM_RULES
} lm_rule;

/* The function on the gate of the normalised output. */
typedef enum lm_gate { LM_GATE_SILU, LM_GATE_SIGMOID, LM_GATES } lm_gate;

extern const char *const lm_rule_names[]; /* "gdn2", "kda", "gdn", "deltanet"; ends with NULL */
extern const char *const lm_gate_names[]; /* "silu", "sigmoid"; ends with NULL */

typedef struct lm_config {
  int64_t vocabulary; /* tokens are 0 .. vocabulary-1 */
  int64_t layers;
  int64_t d_model;    /* D */
  int64_t heads;      /* H */
  int64_t head_dim;   /* K, of keys and of values; at most GDN2_MAX_DIM */
  int64_t d_mlp;      /* F */
  int64_t conv_width; /* W */
  int rule;           /* lm_rule */
  int gate;           /* lm_gate */
  int tied;           /* 1: the head is the embedding */
} lm_config;

/* NULL if such a model can be made, else a sentence that names the size at fault. */
const char *lm_config_fault(const lm_config *config);

#endif
