/* bench_plot.c - throughput as SVG: against the length on the left, against the threads on the right. A line joins the cases that
 * differ in nothing else. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "bench.h"

typedef enum axis { LENGTH, THREADS } axis;

enum {
  WIDTH = 560,
  HEIGHT = 354,
  LEFT = 74,
  TOP = 58,
  RIGHT = 24,
  BOTTOM = 52,
  LEGEND_ROW = 18,
  MOST_LINES = 40,
  MOST_POINTS = 32
};
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#999933"};
enum { COLOURS = sizeof colours / sizeof *colours };

typedef struct line {
  int count;
  const bench_result *at[MOST_POINTS]; /* by rising x */
} line;

typedef struct panel {
  axis x;
  int count;
  line lines[MOST_LINES];
  double x_low, x_high, y_high; /* x: log2 */
} panel;

static double x_of(const bench_case *c, axis x) { return x == LENGTH ? (double)c->n.T : c->threads; }

/* Whether two cases differ in length and threads at most. */
static int related(const bench_case *a, const bench_case *b) {
  return a->op == b->op && a->rule == b->rule && a->isa == b->isa && a->n.B == b->n.B && a->n.H == b->n.H && a->HV == b->HV &&
         a->dtype == b->dtype && a->n.K == b->n.K && a->n.V == b->n.V;
}

/* Whether two cases lie on one line. */
static int joined(const bench_case *a, const bench_case *b, axis x) {
  return related(a, b) && (x == LENGTH ? a->threads == b->threads : a->n.T == b->n.T);
}

/* ---- Lines ---------------------------------------------------------------------------------------------------------------- */

static void add_point(line *l, const bench_result *r, axis x) {
  if (l->count == MOST_POINTS) return;
  int i = l->count++;
  for (; i && x_of(&l->at[i - 1]->c, x) > x_of(&r->c, x); i--) l->at[i] = l->at[i - 1];
  l->at[i] = r;
}

static int has_line(const panel *p, const bench_result *r) {
  for (int i = 0; i < p->count; i++)
    if (joined(&p->lines[i].at[0]->c, &r->c, p->x)) return 1;
  return 0;
}

/* Against threads, one line for each length would be a thicket: the longest stands for all. */
static int is_shown(const panel *p, const bench_result *r, int count, const bench_case *c) {
  if (p->x == LENGTH) return 1;
  for (int i = 0; i < count; i++)
    if (related(&r[i].c, c) && r[i].c.n.T > c->n.T) return 0;
  return 1;
}

/* The lines of at least two points. */
static void find_lines(panel *p, const bench_result *r, int count) {
  for (int i = 0; i < count && p->count < MOST_LINES; i++) {
    if (has_line(p, &r[i]) || !is_shown(p, r, count, &r[i].c)) continue;
    line *l = &p->lines[p->count];
    l->count = 0;
    for (int j = i; j < count; j++)
      if (joined(&r[i].c, &r[j].c, p->x)) add_point(l, &r[j], p->x);
    p->count += l->count > 1;
  }
}

static void find_ranges(panel *p) {
  double y = 0;
  p->x_low = INFINITY, p->x_high = -INFINITY;
  for (int i = 0; i < p->count; i++)
    for (int j = 0; j < p->lines[i].count; j++) {
      const bench_result *r = p->lines[i].at[j];
      double x = log2(x_of(&r->c, p->x));
      p->x_low = fmin(p->x_low, x), p->x_high = fmax(p->x_high, x), y = fmax(y, r->tok_heads);
    }
  p->y_high = 1.08 * y;
}

int bench_plot_possible(const bench_cases *cases) {
  for (int i = 0; i < cases->count; i++)
    for (int j = 0; j < i; j++)
      if (joined(&cases->at[i], &cases->at[j], LENGTH) || joined(&cases->at[i], &cases->at[j], THREADS)) return 1;
  return 0;
}

/* ---- Text ----------------------------------------------------------------------------------------------------------------- */

typedef struct text {
  char *data;
  size_t length, size;
  int failed;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...) {
  char piece[512];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(piece, sizeof piece, format, args);
  va_end(args);
  size_t more = n < 0 ? 0 : (size_t)n;
  if (more >= sizeof piece) t->failed = 1;
  if (t->failed) return;
  if (t->length + more >= t->size) {
    char *bigger = realloc(t->data, t->size = 2 * t->size + sizeof piece);
    if (!bigger) {
      t->failed = 1;
      return;
    }
    t->data = bigger;
  }
  memcpy(t->data + t->length, piece, more);
  t->length += more;
}

/* What a line's cases differ in from the others of its panel: a bit each. */
enum {
  BY_RULE = 1,
  BY_B = 2,
  BY_T = 4,
  BY_H = 8,
  BY_K = 16,
  BY_V = 32,
  BY_THREADS = 64,
  BY_ISA = 128,
  BY_HV = 256,
  BY_DTYPE = 512
};

static int differences(const panel *p, const bench_case *c) {
  int by = 0;
  for (int i = 0; i < p->count; i++) {
    const bench_case *d = &p->lines[i].at[0]->c;
    by |= (c->rule != d->rule ? BY_RULE : 0) | (c->isa != d->isa ? BY_ISA : 0) | (c->n.B != d->n.B ? BY_B : 0);
    by |= (c->n.H != d->n.H ? BY_H : 0) | (c->n.K != d->n.K ? BY_K : 0) | (c->n.V != d->n.V ? BY_V : 0);
    by |= (c->HV != d->HV ? BY_HV : 0) | (c->dtype != d->dtype ? BY_DTYPE : 0);
    by |= p->x == THREADS && c->n.T != d->n.T ? BY_T : 0;
    by |= p->x == LENGTH && c->threads != d->threads ? BY_THREADS : 0;
  }
  return by;
}

static void put_name(text *t, const bench_case *c, int by) {
  put(t, "%s", bench_op_names[c->op]);
  if (by & BY_RULE) put(t, " %s", c->rule->name);
  if (by & BY_DTYPE) put(t, " %s", bench_dtype_names[c->dtype]);
  if (by & BY_B) put(t, ", B=%lld", (long long)c->n.B);
  if (by & BY_T) put(t, ", T=%lld", (long long)c->n.T);
  if (by & BY_H) put(t, ", H=%lld", (long long)c->n.H);
  if (by & BY_HV) put(t, ", HV=%lld", (long long)c->HV);
  if (by & BY_K) put(t, ", K=%lld", (long long)c->n.K);
  if (by & BY_V) put(t, ", V=%lld", (long long)c->n.V);
  if (by & BY_THREADS) put(t, ", %d thread%s", c->threads, c->threads == 1 ? "" : "s");
  if (by & BY_ISA) put(t, ", %s", gdn2_isa_name(c->isa));
}

/* ---- Drawing -------------------------------------------------------------------------------------------------------------- */

static double place_x(const panel *p, double x) {
  return (double)LEFT + (log2(x) - p->x_low) / (p->x_high - p->x_low) * (WIDTH - LEFT - RIGHT);
}
static double place_y(const panel *p, double y) { return HEIGHT - BOTTOM - y / p->y_high * (HEIGHT - TOP - BOTTOM); }

/* 1, 2 or 5 times a power of ten, so that about six steps fill the axis. */
static double step_of(double high) {
  double power = pow(10, floor(log10(high / 6))), ratio = high / 6 / power;
  return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static void draw_y_axis(text *t, const panel *p) {
  double step = step_of(p->y_high);
  for (int i = 0; i * step <= p->y_high; i++) {
    double y = i * step, at = place_y(p, y);
    put(t, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#dddddd'/>\n", LEFT, at, WIDTH - RIGHT, at);
    put(t, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8, at + 4, y / 1000);
  }
  put(t, "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>thousand token-heads / s</text>\n",
      (TOP + HEIGHT - BOTTOM) / 2);
}

/* A tick at every x that was measured. */
static void draw_x_axis(text *t, const panel *p) {
  double last = -INFINITY;
  for (double low = 0;;) {
    double x = INFINITY;
    for (int i = 0; i < p->count; i++)
      for (int j = 0; j < p->lines[i].count; j++) {
        double here = x_of(&p->lines[i].at[j]->c, p->x);
        if (here > low && here < x) x = here;
      }
    if (isinf(x)) break;
    double at = place_x(p, low = x);
    if (at - last < 34) continue; /* labels would overlap */
    last = at;
    put(t, "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#333333'/>\n", at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5);
    put(t, "<text x='%.1f' y='%d' text-anchor='middle'>%.0f</text>\n", at, HEIGHT - BOTTOM + 20, x);
  }
  put(t, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#333333'/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
  put(t, "<text x='%d' y='%d' text-anchor='middle'>%s (logarithmic)</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10,
      p->x == LENGTH ? "length T, tokens" : "threads");
}

static void draw_line(text *t, const panel *p, int i) {
  const line *l = &p->lines[i];
  const char *colour = colours[i % COLOURS];
  put(t, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", colour, i < COLOURS ? "" : " stroke-dasharray='6 4'");
  for (int j = 0; j < l->count; j++) put(t, "%.1f,%.1f ", place_x(p, x_of(&l->at[j]->c, p->x)), place_y(p, l->at[j]->tok_heads));
  put(t, "'/>\n");
  for (int j = 0; j < l->count; j++) {
    const bench_result *r = l->at[j];
    put(t,
        "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'><title>%.1f thousand token-heads/s, %.3f of the peak</title></circle>\n",
        place_x(p, x_of(&r->c, p->x)), place_y(p, r->tok_heads), colour, 1e-3 * r->tok_heads, r->fraction);
  }
  int y = HEIGHT + 12 + i * LEGEND_ROW;
  put(t, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='%s' stroke-width='2'%s/>\n", LEFT, y - 4, LEFT + 28, y - 4, colour,
      i < COLOURS ? "" : " stroke-dasharray='6 4'");
  put(t, "<text x='%d' y='%d'>", LEFT + 36, y);
  put_name(t, &l->at[0]->c, differences(p, &l->at[0]->c));
  put(t, "</text>\n");
}

static void draw_panel(text *t, const panel *p, int left) {
  const bench_case *c = &p->lines[0].at[0]->c;
  put(t, "<g transform='translate(%d 0)'>\n<text x='%d' y='24' font-size='15'>Throughput against %s</text>\n", left, LEFT,
      p->x == LENGTH ? "length" : "threads");
  put(t, "<text x='%d' y='42' fill='#666666'>%s, B=%lld H=%lld K=%lld V=%lld, %s", LEFT, c->rule->name, (long long)c->n.B,
      (long long)c->n.H, (long long)c->n.K, (long long)c->n.V, gdn2_isa_name(c->isa));
  if (p->x == THREADS) put(t, ", T=%lld", (long long)c->n.T);
  put(t, "; or as the line says</text>\n");
  draw_y_axis(t, p);
  draw_x_axis(t, p);
  for (int i = 0; i < p->count; i++) draw_line(t, p, i);
  put(t, "</g>\n");
}

static void draw(text *t, const panel *panels) {
  int shown = 0, rows = 0;
  for (int i = 0; i < 2; i++) {
    shown += panels[i].count > 0;
    rows = panels[i].count > rows ? panels[i].count : rows;
  }
  int width = shown * WIDTH, height = HEIGHT + 20 + rows * LEGEND_ROW;
  put(t, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' ", width, height, width, height);
  put(t, "font-family='sans-serif' font-size='12'>\n<title>gdn2 %s bench</title>\n", gdn2_version());
  put(t, "<rect width='%d' height='%d' fill='#ffffff'/>\n", width, height);
  for (int i = 0, left = 0; i < 2; i++) {
    if (!panels[i].count) continue;
    draw_panel(t, &panels[i], left);
    left += WIDTH;
  }
  put(t, "</svg>\n");
}

static int write_file(const char *path, const text *t) {
  io_error error;
  return io_write_bytes(path, t->data, t->length, &error) ? cli_failed("--plot: %s", error.text) : DONE;
}

int bench_plot_write(const char *path, const bench_result *r, int count) {
  text t = {0};
  panel *panels = calloc(2, sizeof *panels);
  for (int i = 0; i < 2 && panels; i++) {
    panels[i].x = (axis)i;
    find_lines(&panels[i], r, count);
    find_ranges(&panels[i]);
  }
  if (panels) draw(&t, panels);
  int code = !panels || t.failed ? cli_failed("not enough memory for the plot") : write_file(path, &t);
  free(panels);
  free(t.data);
  return code;
}
