#include "staged/report.h"
#include "base/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above this a finite value is suspicious. */
#define LARGE_VALUE 1e6f

void gdn2_seed_inspect(const gdn2_seed_frame *frame, const char *stage, int64_t n, const float *x, int64_t replaced) {
  const gdn2_seed_call *call = frame->call;
  if (!call->report) return;
  gdn2_seed_report report = {.tag = call->tag ? call->tag : "", .stage = stage, .replaced = replaced};
  frame->table->seed.inspect((ptrdiff_t)n, x, &report.nonfinite, &report.max_abs);
  if (report.nonfinite > 0 || report.max_abs > LARGE_VALUE || replaced > 0) call->report(call->report_context, &report);
}

int gdn2_seed_diag_wanted(void) {
  const char *value = getenv("GDN2_FWD_DIAG");
  return value && strcmp(value, "1") == 0;
}

static int write_text(const gdn2_seed_report *r, char *text, size_t size) {
  const double most = (double)r->max_abs;
  if (r->nonfinite > 0)
    return snprintf(text, size, "[GDN2-FWD-DIAG] non-finite at %s:%s: n_nonfinite=%lld max_abs_finite=%.3e", r->tag, r->stage,
                    (long long)r->nonfinite, most);
  if (r->max_abs > LARGE_VALUE)
    return snprintf(text, size, "[GDN2-FWD-DIAG] suspiciously large (still finite) at %s:%s: max_abs=%.3e", r->tag, r->stage,
                    most);
  return snprintf(text, size, "[GDN2-FWD-DIAG] clipped at %s:%s: n_replaced=%lld max_abs=%.3e", r->tag, r->stage,
                  (long long)r->replaced, most);
}

int gdn2_seed_report_text(const gdn2_seed_report *report, char *text, size_t size) {
  const char *missing = !report             ? "report is NULL; it must point to a gdn2_seed_report"
                        : !report->tag      ? "report->tag is NULL; it must point to a text"
                        : !report->stage    ? "report->stage is NULL; it must point to a text"
                        : !text && size > 0 ? "text is NULL; where size is not 0 it must point to so many bytes"
                                            : NULL;
  if (!missing) return write_text(report, text, size);
  (void)gdn2_fail(GDN2_ERR_ARGUMENT, "%s", missing);
  return -1;
}
