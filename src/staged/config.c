/* Configurations of the seed's pipeline: presets, checks, and the memory estimate that chooses among them. */
#include "base/error.h"
#include "gdn2.h"
#include <math.h>

#define FAIL(...) gdn2_fail(GDN2_ERR_ARGUMENT, __VA_ARGS__)

gdn2_status gdn2_seed_config_preset(gdn2_seed_preset preset, gdn2_seed_config *config) {
  if (!config) return FAIL("config is NULL; it must point to a gdn2_seed_config");
  switch (preset) {
  case GDN2_SEED_DEFAULT:
  case GDN2_SEED_MEDIUM: *config = (gdn2_seed_config){256, 128, 16, 1e4, 1e-3}; return GDN2_OK;
  case GDN2_SEED_PLAIN: *config = (gdn2_seed_config){256, 128, 16, 1e4, 0}; return GDN2_OK;
  case GDN2_SEED_SMALL: *config = (gdn2_seed_config){128, 64, 16, 1e4, 1e-3}; return GDN2_OK;
  case GDN2_SEED_LARGE: *config = (gdn2_seed_config){256, 128, 16, 5e3, 1e-3}; return GDN2_OK;
  }
  return FAIL("preset is %d; it must be one of the gdn2_seed_preset values 0 to 4", (int)preset);
}

static gdn2_status check(const gdn2_seed_config *c, int strict) {
  if (!c) return FAIL("config is NULL; it must point to a gdn2_seed_config");
  if (c->bc < 1) return FAIL("config.bc is %d; it must be at least 1", c->bc);
  if (c->mb < 1) return FAIL("config.mb is %d; it must be at least 1", c->mb);
  if (c->bt < 1 || c->bt > GDN2_SEED_MAX_CHUNK)
    return FAIL("config.bt is %d; it must be from 1 to %d", c->bt, GDN2_SEED_MAX_CHUNK);
  if (c->bt % c->bc != 0) return FAIL("config.bt is %d; it must be divisible by config.bc = %d", c->bt, c->bc);
  if (strict && c->bt != 2 * c->bc)
    return FAIL("config.bt is %d; it must equal 2 config.bc = %d, since the seed's solve has two blocks at its top level", c->bt,
                2 * c->bc);
  if (c->bc % c->mb != 0) return FAIL("config.bc is %d; it must be divisible by config.mb = %d", c->bc, c->mb);
  if (!(c->wy_eps >= 0.0 && c->wy_eps < 1.0)) return FAIL("config.wy_eps is %g; it must be in [0, 1)", c->wy_eps);
  if (!(c->clip >= 0.0)) return FAIL("config.clip is %g; it must be 0 or more", c->clip);
  return GDN2_OK;
}

gdn2_status gdn2_seed_config_check(const gdn2_seed_config *config) { return check(config, 0); }
gdn2_status gdn2_seed_config_check_strict(const gdn2_seed_config *config) { return check(config, 1); }

gdn2_status gdn2_seed_estimate_memory(int64_t batch, int64_t seq_len, int64_t heads, int64_t d_head, int64_t bt,
                                      int64_t bytes_per_param, double *megabytes) {
  const struct {
    const char *name;
    int64_t value, least;
  } sizes[] = {{"batch", batch, 0},   {"seq_len", seq_len, 0}, {"heads", heads, 0},
               {"d_head", d_head, 0}, {"bt", bt, 1},           {"bytes_per_param", bytes_per_param, 0}};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
    if (sizes[i].value < sizes[i].least)
      return FAIL("%s is %lld; it must be at least %lld", sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].least);
  if (!megabytes) return FAIL("megabytes is NULL; it must point to a double");
  /* In double: no product of sizes can overflow. The division by 2^20 comes before batch and heads, as in the seed. */
  const double C = (double)bt, d = (double)d_head, chunks = (double)(seq_len / bt);
  const double per_chunk = C * C * 3 + C * d * 7 + d * d * 2;
  const double per_head = chunks * per_chunk * (double)bytes_per_param / (1024.0 * 1024.0);
  *megabytes = (double)batch * (double)heads * per_head;
  return GDN2_OK;
}

gdn2_status gdn2_seed_recommended_config(int64_t batch, int64_t seq_len, int64_t heads, int64_t d_head,
                                         gdn2_seed_config *config) {
  if (!config) return FAIL("config is NULL; it must point to a gdn2_seed_config");
  double megabytes = 0;
  const gdn2_status status = gdn2_seed_estimate_memory(batch, seq_len, heads, d_head, 256, 4, &megabytes);
  if (status != GDN2_OK) return status;
  return gdn2_seed_config_preset(megabytes > 6000   ? GDN2_SEED_LARGE
                                 : megabytes > 2500 ? GDN2_SEED_MEDIUM
                                                    : GDN2_SEED_SMALL,
                                 config);
}
