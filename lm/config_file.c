/* config_file.c - the settings of a run as JSON. */
#include "lm/trainer.h"
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "config.json"
static const int64_t MAX_BYTES = 1 << 20;

/* The whole numbers of the file, with what they may be. The faults of shapes are found by lm_config_fault. */
typedef struct whole {
  const char *group, *name; /* group NULL: at the top */
  size_t offset;            /* of an int64_t in lm_settings */
  double low, high;
} whole;

#define AT(field) offsetof(lm_settings, field)
#define TRAINING "training"

static const whole wholes[] = {
    {NULL, "vocab_size", AT(config.vocabulary), 1, 65536},
    {NULL, "num_hidden_layers", AT(config.layers), 1, 65536},
    {NULL, "hidden_size", AT(config.d_model), 1, 65536},
    {NULL, "num_heads", AT(config.heads), 1, 65536},
    {NULL, "head_dim", AT(config.head_dim), 1, 65536},
    {NULL, "intermediate_size", AT(config.d_mlp), 1, 65536},
    {NULL, "conv_size", AT(config.conv_width), 1, 65536},
    {TRAINING, "steps", AT(steps), 1, 0x1p24},
    {TRAINING, "warmup", AT(warmup), 0, 0x1p24},
    {TRAINING, "batch", AT(batch), 1, 65536},
    {TRAINING, "length", AT(length), 1, 0x1p24},
    {TRAINING, "accumulate", AT(accumulate), 1, 65536},
    {TRAINING, "pairs", AT(pairs), 0, 65536},
    {TRAINING, "text_bytes", AT(text_bytes), 0, 0x1p53},
};
enum { WHOLES = sizeof wholes / sizeof *wholes };

typedef struct number {
  const char *name;
  size_t offset; /* of a double */
  double high;
} number;
static const number numbers[] = {{"learning_rate", AT(learning_rate), 1e3},
                                 {"weight_decay", AT(weight_decay), 1e3},
                                 {"clip", AT(clip), 1e300},
                                 {"validation", AT(validation), 0.9}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

typedef struct choice {
  const char *group, *name;
  size_t offset; /* of an int */
  const char *const *names;
} choice;
static const choice choices[] = {{NULL, "rule", AT(config.rule), lm_rule_names},
                                 {NULL, "output_gate", AT(config.gate), lm_gate_names},
                                 {TRAINING, "task", AT(task), lm_task_names}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* ---- Writing -------------------------------------------------------------------------------------------------------------- */

static cJSON *place_of(cJSON *root, const char *group) { return group ? cJSON_GetObjectItem(root, group) : root; }

/* A 64-bit number as text: JSON's numbers are float64. */
static int add_bits(cJSON *object, const char *name, uint64_t bits) {
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, bits);
  return cJSON_AddStringToObject(object, name, text) != NULL;
}

static cJSON *describe(const lm_settings *s) {
  const char *base = (const char *)s;
  cJSON *root = cJSON_CreateObject(), *training = root ? cJSON_AddObjectToObject(root, TRAINING) : NULL;
  int good = training != NULL;
  for (int i = 0; good && i < CHOICES; i++) {
    int value;
    memcpy(&value, base + choices[i].offset, sizeof value);
    good = cJSON_AddStringToObject(place_of(root, choices[i].group), choices[i].name, choices[i].names[value]) != NULL;
  }
  for (int i = 0; good && i < WHOLES; i++) {
    int64_t value;
    memcpy(&value, base + wholes[i].offset, sizeof value);
    good = cJSON_AddNumberToObject(place_of(root, wholes[i].group), wholes[i].name, (double)value) != NULL;
  }
  for (int i = 0; good && i < NUMBERS; i++) {
    double value;
    memcpy(&value, base + numbers[i].offset, sizeof value);
    good = cJSON_AddNumberToObject(training, numbers[i].name, value) != NULL;
  }
  good = good && cJSON_AddBoolToObject(root, "tie_word_embeddings", s->config.tied) && add_bits(training, "seed", s->seed) &&
         add_bits(training, "text_fingerprint", s->text_fingerprint);
  if (good) return root;
  cJSON_Delete(root);
  return NULL;
}

int lm_config_write(const char *folder, const lm_settings *s, io_error *error) {
  char *path = lm_path(folder, FILE_NAME, error);
  if (!path) return -1;
  cJSON *root = describe(s);
  char *text = root ? cJSON_Print(root) : NULL;
  int failed = -1;
  if (text)
    failed = io_write_bytes(path, text, strlen(text), error);
  else
    snprintf(error->text, sizeof error->text, "%s: not enough memory", path);
  cJSON_free(text);
  cJSON_Delete(root);
  free(path);
  return failed;
}

int lm_config_exists(const char *folder) {
  io_error error;
  char *path = lm_path(folder, FILE_NAME, &error);
  int there = path && access(path, F_OK) == 0;
  free(path);
  return there;
}

/* ---- Reading -------------------------------------------------------------------------------------------------------------- */

static int fail(io_error *error, const char *path, const char *name, const char *what) {
  snprintf(error->text, sizeof error->text, "%s: %s %s", path, name, what);
  io_make_printable(error->text);
  return -1;
}

static const cJSON *item_of(const cJSON *root, const char *group, const char *name) {
  const cJSON *object = group ? cJSON_GetObjectItemCaseSensitive(root, group) : root;
  return object ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

static int read_whole(const cJSON *root, const whole *w, lm_settings *s, const char *path, io_error *error) {
  const cJSON *item = item_of(root, w->group, w->name);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= w->low && item->valuedouble <= w->high) ||
      item->valuedouble != floor(item->valuedouble))
    return fail(error, path, w->name, "is missing or not a whole number in its range");
  const int64_t value = (int64_t)item->valuedouble;
  memcpy((char *)s + w->offset, &value, sizeof value);
  return 0;
}

static int read_number(const cJSON *root, const number *n, lm_settings *s, const char *path, io_error *error) {
  const cJSON *item = item_of(root, TRAINING, n->name);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= n->high))
    return fail(error, path, n->name, "is missing or not a number in its range");
  memcpy((char *)s + n->offset, &item->valuedouble, sizeof item->valuedouble);
  return 0;
}

static int read_choice(const cJSON *root, const choice *c, lm_settings *s, const char *path, io_error *error) {
  const cJSON *item = item_of(root, c->group, c->name);
  for (int value = 0; cJSON_IsString(item) && c->names[value]; value++)
    if (!strcmp(item->valuestring, c->names[value])) {
      memcpy((char *)s + c->offset, &value, sizeof value);
      return 0;
    }
  return fail(error, path, c->name, "is missing or not one of its words");
}

static int read_bits(const cJSON *root, const char *name, uint64_t *bits, const char *path, io_error *error) {
  const cJSON *item = item_of(root, TRAINING, name);
  char *end = NULL;
  if (cJSON_IsString(item) && item->valuestring[0] >= '0' && item->valuestring[0] <= '9')
    *bits = strtoull(item->valuestring, &end, 10);
  return end && !*end ? 0 : fail(error, path, name, "is missing or not a number in quotes");
}

static int read_all(const cJSON *root, lm_settings *s, const char *path, io_error *error) {
  *s = (lm_settings){.steps = 0};
  for (int i = 0; i < CHOICES; i++)
    if (read_choice(root, &choices[i], s, path, error)) return -1;
  for (int i = 0; i < WHOLES; i++)
    if (read_whole(root, &wholes[i], s, path, error)) return -1;
  for (int i = 0; i < NUMBERS; i++)
    if (read_number(root, &numbers[i], s, path, error)) return -1;
  if (read_bits(root, "seed", &s->seed, path, error) || read_bits(root, "text_fingerprint", &s->text_fingerprint, path, error))
    return -1;
  const cJSON *tied = item_of(root, NULL, "tie_word_embeddings");
  if (!cJSON_IsBool(tied)) return fail(error, path, "tie_word_embeddings", "is missing or neither true nor false");
  s->config.tied = cJSON_IsTrue(tied);
  const char *fault = lm_config_fault(&s->config);
  if (!fault && s->task == LM_TEXT && s->config.vocabulary != LM_BYTES) fault = "vocab_size must be 256, as there are bytes";
  return fault ? fail(error, path, "does not describe a model:", fault) : 0;
}

/* The text of the file, with a zero after it; NULL with a sentence. */
static char *read_text(const char *path, io_error *error) {
  FILE *file = fopen(path, "rb");
  char *text = file ? malloc((size_t)MAX_BYTES + 1) : NULL;
  if (text) {
    size_t got = fread(text, 1, (size_t)MAX_BYTES, file);
    text[got] = 0;
    if (ferror(file)) {
      free(text);
      text = NULL;
    }
  }
  if (!text) fail(error, path, "cannot be read:", "is it the folder of a run of gdn2 train?");
  if (file) fclose(file);
  return text;
}

int lm_config_read(const char *folder, lm_settings *s, io_error *error) {
  char *path = lm_path(folder, FILE_NAME, error), *text = path ? read_text(path, error) : NULL;
  int failed = -1;
  if (text) {
    cJSON *root = cJSON_Parse(text);
    failed = root ? read_all(root, s, path, error) : fail(error, path, "is not", "valid JSON");
    cJSON_Delete(root);
  }
  free(text);
  free(path);
  return failed;
}
