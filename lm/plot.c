/* plot.c - the loss against the steps, as SVG: every step in light, their mean over some in dark, the held-out loss as dots. */
#include "lm/trainer.h"
#include <stdlib.h>

#define FILE_NAME "loss.svg"
enum { WIDTH = 640, HEIGHT = 400, LEFT = 64, TOP = 52, RIGHT = 24, BOTTOM = 52, MOST_POINTS = 600 };

typedef struct frame {
  double steps, low, high; /* the ranges of the axes; bits */
} frame;

static double bits(double nats) { return nats / log(2); }

static double x_of(const frame *f, double step) { return (double)LEFT + step / f->steps * (WIDTH - LEFT - RIGHT); }
static double y_of(const frame *f, double y) {
  return HEIGHT - BOTTOM - (y - f->low) / (f->high - f->low) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about six steps fill the axis. */
static double tick_of(double range) {
  double power = pow(10, floor(log10(range / 6))), ratio = range / 6 / power;
  return power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
}

static frame frame_of(const lm_log *log) {
  frame f = {1, INFINITY, -INFINITY};
  for (int64_t i = 0; i < log->count; i++) {
    const double y = bits(log->at[i].loss);
    if (isfinite(y)) f.low = fmin(f.low, y), f.high = fmax(f.high, y);
    f.steps = fmax(f.steps, (double)log->at[i].step);
  }
  if (!(f.low <= f.high)) f.low = 0, f.high = 1;
  const double tick = tick_of(fmax(f.high - f.low, 0.1));
  f.low = tick * floor(f.low / tick), f.high = tick * floor(f.high / tick + 1);
  return f;
}

static void draw_axes(FILE *out, const frame *f) {
  double tick = tick_of(f->high - f->low);
  for (int i = 0; f->low + i * tick <= f->high * (1 + 1e-9); i++) {
    double y = f->low + i * tick, at = y_of(f, y);
    fprintf(out, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#dddddd'/>\n", LEFT, at, WIDTH - RIGHT, at);
    fprintf(out, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8, at + 4, y);
  }
  tick = fmax(1, tick_of(f->steps));
  for (int i = 0; i * tick <= f->steps; i++)
    fprintf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", x_of(f, i * tick), HEIGHT - BOTTOM + 20, i * tick);
  fprintf(out, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#333333'/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT,
          HEIGHT - BOTTOM);
  fprintf(out, "<text x='%d' y='%d' text-anchor='middle'>step</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
  fprintf(out, "<text transform='translate(18 %d) rotate(-90)' text-anchor='middle'>bits per token</text>\n",
          (TOP + HEIGHT - BOTTOM) / 2);
}

/* A line through the means of `span` steps each. */
static void draw_means(FILE *out, const frame *f, const lm_log *log, int64_t span, const char *colour, double width) {
  fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='%g' points='", colour, width);
  for (int64_t first = 0; first < log->count; first += span) {
    double sum = 0;
    int64_t n = 0;
    for (; n < span && first + n < log->count; n++) sum += bits(log->at[first + n].loss);
    if (isfinite(sum)) fprintf(out, "%.1f,%.1f ", x_of(f, (double)log->at[first + n / 2].step), y_of(f, sum / (double)n));
  }
  fputs("'/>\n", out);
}

static void draw_held_out(FILE *out, const frame *f, const lm_log *log) {
  for (int64_t i = 0; i < log->count; i++) {
    const lm_record *r = &log->at[i];
    if (!isfinite(r->validation)) continue;
    const double y = fmin(fmax(bits(r->validation), f->low), f->high);
    fprintf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='#d55e00'><title>step %lld: %.4f bits</title></circle>\n",
            x_of(f, (double)r->step), y_of(f, y), (long long)r->step, bits(r->validation));
  }
}

static void draw(FILE *out, const lm_log *log, const char *title) {
  const frame f = frame_of(log);
  const int64_t thin = (log->count + MOST_POINTS - 1) / MOST_POINTS, wide = log->count / 60 + 1;
  fprintf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' ", WIDTH, HEIGHT, WIDTH,
          HEIGHT);
  fprintf(out, "font-family='sans-serif' font-size='12'>\n<title>%s</title>\n", title);
  fprintf(out, "<rect width='%d' height='%d' fill='#ffffff'/>\n<text x='%d' y='22' font-size='15'>%s</text>\n", WIDTH, HEIGHT,
          LEFT, title);
  fprintf(out, "<text x='%d' y='42'><tspan fill='#0072b2'>training</tspan>, ", LEFT);
  fprintf(out, "<tspan fill='#d55e00'>held out</tspan></text>\n");
  draw_axes(out, &f);
  if (log->count) {
    draw_means(out, &f, log, thin < 1 ? 1 : thin, "#b0cfe4", 1);
    draw_means(out, &f, log, wide, "#0072b2", 2);
  }
  draw_held_out(out, &f, log);
  fputs("</svg>\n", out);
}

int lm_plot_write(const lm_log *log, const char *folder, const char *title, io_error *error) {
  char *path = lm_path(folder, FILE_NAME, error), *text = NULL;
  size_t length = 0;
  FILE *out = path ? open_memstream(&text, &length) : NULL;
  int failed = -1;
  if (out) {
    draw(out, log, title);
    failed = ferror(out) | fclose(out) ? -1 : io_write_bytes(path, text, length, error);
  }
  free(text);
  free(path);
  return failed;
}
