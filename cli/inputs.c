#include "inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gdn2.h"

#define BIT(id) (1u << (id))
enum {
  QKV = BIT(IN_Q) | BIT(IN_K) | BIT(IN_V),
  OPTIONAL = BIT(IN_H0),
  GRADIENTS = BIT(IN_DO) | BIT(IN_DH_FINAL),
  RAW = BIT(IN_A_LOG) | BIT(IN_DT_BIAS)
};

const rule rules[] = {
    {"gdn2", QKV | BIT(IN_G) | BIT(IN_B) | BIT(IN_W), 0},
    {"kda", QKV | BIT(IN_G) | BIT(IN_BETA), 0},
    {"gdn", QKV | BIT(IN_G) | BIT(IN_BETA), 1},
    {"deltanet", QKV | BIT(IN_BETA), 0},
    {"gla", QKV | BIT(IN_G), 0},
};
const char *const rule_names[] = {"gdn2", "kda", "gdn", "deltanet", "gla", NULL};

static const struct {
  const char *key, *option, *axes;
} table[INPUTS] = {
    [IN_Q] = {"q", "q", "BTHK"},
    [IN_K] = {"k", "k", "BTHK"},
    [IN_V] = {"v", "v", "BTJV"},
    [IN_G] = {"g", "g", "BTGK"},
    [IN_B] = {"b", "b", "BTEK"},
    [IN_W] = {"w", "w", "BTJV"},
    [IN_BETA] = {"beta", "beta", "BTJ"},
    [IN_H0] = {"h0", "h0", "NJKV"},
    [IN_A_LOG] = {"A_log", "A-log", "G"},
    [IN_DT_BIAS] = {"dt_bias", "dt-bias", "GK"},
    [IN_DO] = {"do", "do", "BTJV"},
    [IN_DH_FINAL] = {"dh_final", "dh-final", "NJKV"},
    [IN_CU_SEQLENS] = {"cu_seqlens", "cu-seqlens", "S"},
};
/* The axes of what may be one number per head. */
static const char *const head_axes[INPUTS] = {[IN_G] = "BTG", [IN_B] = "BTE", [IN_W] = "BTJ", [IN_DT_BIAS] = "G"};

inputs inputs_plain(const rule *r) { return (inputs){.rule = r, .per_head = r->g_per_head ? BIT(IN_G) : 0}; }

const char *inputs_axes(const inputs *x, input_id id) { return x->per_head & BIT(id) ? head_axes[id] : table[id].axes; }
const char *inputs_name(input_id id) { return table[id].key; }

static int64_t size_of(const sizes *n, char axis) {
  if (axis == 'N' || axis == 'S') return n->N + (axis == 'S');
  if (axis == 'J' || axis == 'G' || axis == 'E') return axis == 'J' ? n->HV : axis == 'G' ? n->G : n->E;
  return axis == 'B' ? n->B : axis == 'T' ? n->T : axis == 'H' ? n->H : axis == 'K' ? n->K : n->V;
}

int sizes_shape(const sizes *n, const char *axes, int64_t *shape) {
  int rank = 0;
  for (; axes[rank]; rank++) shape[rank] = size_of(n, axes[rank]);
  return rank;
}

int64_t sizes_count(const sizes *n, const char *axes) {
  int64_t count = 1, shape[MAX_AXES];
  int rank = sizes_shape(n, axes, shape);
  for (int i = 0; i < rank; i++)
    if (shape[i] == 0) return 0;
  for (int i = 0; i < rank; i++)
    if (__builtin_mul_overflow(count, shape[i], &count) || count > INT64_MAX / 8) return -1;
  return count;
}

/* ---- Finding the tensors -------------------------------------------------------------------------------------------------- */

static int key_is_known(const char *key) {
  for (int id = 0; id < INPUTS; id++)
    if (!strcmp(table[id].key, key)) return 1;
  return 0;
}

static int open_container(inputs *x, const settings *s, unsigned wanted) {
  io_error error;
  if (!s->in) return DONE;
  if (io_open_safetensors(s->in, &x->opened[INPUTS], &error)) return cli_wrong_use("--in: %s", error.text);
  const io_file *file = x->opened[INPUTS];
  for (int i = 0; i < file->count; i++)
    if (!key_is_known(file->entries[i].name))
      cli_note("%s: key %s is not an input and is not used", s->in, file->entries[i].name);
  for (int id = 0; id < INPUTS; id++) {
    const io_entry *entry = io_find(file, table[id].key);
    if (entry && !s->file[id] && !(wanted & BIT(id)))
      cli_note("%s: key %s is not used %s", s->in, entry->name,
               BIT(id) & GRADIENTS   ? "without --backward"
               : BIT(id) & RAW       ? "without --decay"
               : id == IN_CU_SEQLENS ? "without --varlen"
                                     : "by this rule");
    if (!entry || !(wanted & BIT(id))) continue;
    x->source[id].file = file;
    x->source[id].entry = entry;
  }
  return DONE;
}

static int open_arrays(inputs *x, const settings *s, unsigned wanted) {
  io_error error;
  for (int id = 0; id < INPUTS; id++) {
    if (!s->file[id]) continue;
    if (!(wanted & BIT(id)) && BIT(id) & GRADIENTS) return cli_wrong_use("--%s needs --backward", table[id].option);
    if (!(wanted & BIT(id)) && id == IN_CU_SEQLENS) return cli_wrong_use("--cu-seqlens needs --varlen");
    if (!(wanted & BIT(id)) && BIT(id) & RAW) return cli_wrong_use("--%s needs --decay softplus or bounded", table[id].option);
    if (!(wanted & BIT(id)))
      return cli_wrong_use("--%s: rule %s does not take %s", table[id].option, x->rule->name, table[id].key);
    if (io_open_npy(s->file[id], &x->opened[id], &error)) return cli_wrong_use("--%s: %s", table[id].option, error.text);
    x->source[id].file = x->opened[id];
    x->source[id].entry = x->opened[id]->entries;
  }
  return DONE;
}

static int check_presence(const inputs *x, const settings *s) {
  if (s->varlen && !x->source[IN_CU_SEQLENS].file) return cli_wrong_use("cu_seqlens is missing: --varlen needs it");
  if (s->decay && !x->source[IN_A_LOG].file) return cli_wrong_use("A_log is missing: --decay softplus and bounded need it");
  for (int id = 0; id < INPUTS; id++) {
    if (x->source[id].file || !(x->rule->needs & BIT(id))) continue;
    if (s->in)
      return cli_wrong_use("%s is missing: rule %s needs the key %s in %s or --%s FILE", table[id].key, x->rule->name,
                           table[id].key, s->in, table[id].option);
    return cli_wrong_use("%s is missing: rule %s needs --%s FILE or --in FILE", table[id].key, x->rule->name, table[id].option);
  }
  return DONE;
}

/* ---- Shapes --------------------------------------------------------------------------------------------------------------- */

static const char *print_shape(char *text, size_t size, const int64_t *shape, int rank) {
  int n = snprintf(text, size, "[");
  for (int i = 0; i < rank; i++) n += snprintf(text + n, size - (size_t)n, i ? ", %lld" : "%lld", (long long)shape[i]);
  snprintf(text + n, size - (size_t)n, "]");
  return text;
}

static int wrong_shape(const inputs *x, int id, const char *wanted) {
  char text[256];
  const io_entry *e = x->source[id].entry;
  return cli_wrong_use("%s (%s): shape %s must be %s", table[id].key, x->source[id].file->path,
                       print_shape(text, sizeof text, e->shape, e->rank), wanted);
}

static int check_shape(const inputs *x, int id) {
  char text[256], wanted[320];
  int64_t shape[MAX_AXES];
  const io_entry *e = x->source[id].entry;
  const char *axes = inputs_axes(x, (input_id)id);
  int rank = sizes_shape(&x->n, axes, shape);
  if (e->rank == rank && !memcmp(e->shape, shape, (size_t)rank * sizeof *shape)) return DONE;
  snprintf(wanted, sizeof wanted, "%s (B, T, H, K as in q; HV, V as in v)", print_shape(text, sizeof text, shape, rank));
  return wrong_shape(x, id, wanted);
}

static int check_limits(const sizes *n) {
  if (n->K < 1 || n->K > GDN2_MAX_DIM)
    return cli_wrong_use("q: the last size, K = %lld, must be from 1 to %d", (long long)n->K, GDN2_MAX_DIM);
  if (n->V < 1 || n->V > GDN2_MAX_DIM)
    return cli_wrong_use("v: the last size, V = %lld, must be from 1 to %d", (long long)n->V, GDN2_MAX_DIM);
  if (sizes_count(n, "NJKV") < 0 || sizes_count(n, "BTHK") < 0 || sizes_count(n, "BTJV") < 0)
    return cli_wrong_use("the product of B, T, H, K and V overflows");
  return DONE;
}

/* The heads of a gate: H where its tensor has as many as the keys, else HV. */
static int64_t gate_heads(const inputs *x, input_id id) {
  const io_entry *e = x->source[id].entry;
  return e && e->rank > 2 && e->shape[2] == x->n.H ? x->n.H : x->n.HV;
}

static int take_sizes(inputs *x) {
  const io_entry *cu = x->source[IN_CU_SEQLENS].entry;
  const io_entry *q = x->source[IN_Q].entry, *v = x->source[IN_V].entry;
  x->n = (sizes){.B = q->shape[0], .T = q->shape[1], .H = q->shape[2], .K = q->shape[3], .HV = v->shape[2], .V = v->shape[3]};
  if (cu && (cu->rank != 1 || cu->shape[0] < 1)) return wrong_shape(x, IN_CU_SEQLENS, "[N + 1]");
  if (cu && x->n.B != 1) return cli_wrong_use("q: B = %lld must be 1 with --varlen", (long long)x->n.B);
  x->n.N = cu ? cu->shape[0] - 1 : x->n.B;
  x->n.G = gate_heads(x, IN_G);
  x->n.E = gate_heads(x, IN_B);
  for (int id = 0; id < INPUTS; id++)
    if (x->source[id].entry && head_axes[id] && x->source[id].entry->rank == (int)strlen(head_axes[id])) x->per_head |= BIT(id);
  if (x->n.H ? x->n.HV % x->n.H : x->n.HV)
    return cli_wrong_use("v: the number of heads, HV = %lld, must be a multiple of q's, H = %lld", (long long)x->n.HV,
                         (long long)x->n.H);
  return DONE;
}

static int check_tensors(inputs *x) {
  const io_entry *q = x->source[IN_Q].entry, *v = x->source[IN_V].entry;
  for (int id = 0; id < INPUTS; id++) {
    const io_entry *e = x->source[id].entry;
    if (e && id == IN_CU_SEQLENS) {
      if (e->dtype == IO_I32 || e->dtype == IO_I64) continue;
      return cli_wrong_use("%s: cu_seqlens: element type %s must be I32 or I64", x->source[id].file->path, e->dtype_name);
    }
    if (e && e->dtype > IO_BF16)
      return cli_wrong_use("%s: %s: element type %s must be F32, F64, F16 or BF16", x->source[id].file->path, table[id].key,
                           e->dtype_name);
  }
  if (q->rank != 4) return wrong_shape(x, IN_Q, "[B, T, H, K]");
  if (v->rank != 4) return wrong_shape(x, IN_V, "[B, T, H, V]");
  int code = take_sizes(x);
  for (int id = 0; id < INPUTS && !code; id++)
    if (x->source[id].entry) code = check_shape(x, id);
  return code ? code : check_limits(&x->n);
}

/* ---- Opening -------------------------------------------------------------------------------------------------------------- */

/* Options that finish an input must have that input. */
static int check_options(const settings *s) {
  const rule *r = &rules[s->rule];
  int bounded = s->decay == GDN2_DECAY_BOUNDED, beta = (r->needs & BIT(IN_BETA)) != 0;
  if (s->decay && !(r->needs & BIT(IN_G))) return cli_wrong_use("--decay: rule %s has no g", r->name);
  if (s->erase && !beta && !(r->needs & BIT(IN_B))) return cli_wrong_use("--erase: rule %s has no erase gate", r->name);
  if (s->write && !beta && !(r->needs & BIT(IN_W))) return cli_wrong_use("--write: rule %s has no write gate", r->name);
  if (!bounded && options_given(s, "lower-bound")) return cli_wrong_use("--lower-bound needs --decay bounded");
  if (bounded && !(s->lower_bound < 0)) return cli_wrong_use("--decay bounded needs --lower-bound X, X below 0");
  return DONE;
}

/* The seed's pipeline is float32. */
static int all_float64(const inputs *x, const settings *s) {
  for (int id = 0; id < INPUTS; id++)
    if (id != IN_CU_SEQLENS && x->source[id].entry && x->source[id].entry->dtype != IO_F64) return 0;
  return s->semantics == SEMANTICS_EXACT;
}

int inputs_open(inputs *x, const settings *s, int gradients) {
  *x = inputs_plain(&rules[s->rule]);
  unsigned wanted =
      x->rule->needs | OPTIONAL | (gradients ? GRADIENTS : 0) | (s->decay ? RAW : 0) | (s->varlen ? BIT(IN_CU_SEQLENS) : 0);
  int code = check_options(s);
  if (!code) code = open_container(x, s, wanted);
  if (!code) code = open_arrays(x, s, wanted);
  if (!code) code = check_presence(x, s);
  x->f64 = all_float64(x, s);
  return code ? code : check_tensors(x);
}

/* ---- Data ----------------------------------------------------------------------------------------------------------------- */

static void close_files(inputs *x) {
  for (int i = 0; i <= INPUTS; i++) {
    io_close(x->opened[i]);
    x->opened[i] = NULL;
  }
}

size_t inputs_element(const inputs *x) { return x->f64 ? sizeof(double) : sizeof(float); }

double inputs_number(const inputs *x, const void *data, int64_t i) {
  return x->f64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static int read_tensor(inputs *x, int id) {
  io_error error;
  const io_entry *e = x->source[id].entry;
  x->data[id] = malloc((size_t)e->count * (id == IN_CU_SEQLENS ? sizeof(int64_t) : inputs_element(x)) + 1);
  if (!x->data[id]) return cli_failed("%s: not enough memory for %lld elements", table[id].key, (long long)e->count);
  int failed = id == IN_CU_SEQLENS ? io_read_i64(x->source[id].file, e, x->data[id], &error)
               : x->f64            ? io_read_f64(x->source[id].file, e, x->data[id], &error)
                                   : io_read_f32(x->source[id].file, e, x->data[id], &error);
  return failed ? cli_wrong_use("%s", error.text) : DONE;
}

int inputs_read(inputs *x) {
  int code = DONE;
  for (int id = 0; id < INPUTS && !code; id++)
    if (x->source[id].entry) code = read_tensor(x, id);
  close_files(x);
  return code;
}

void inputs_free(inputs *x) {
  close_files(x);
  for (int id = 0; id < INPUTS; id++) free(x->data[id]);
}
