#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cli.h"

enum { WIDTH = 40 };

progress progress_start(int when, const char *label, double total) {
  int on = when == PROGRESS_ON || (when == PROGRESS_AUTO && isatty(STDERR_FILENO));
  /* Forced on (a log, a test), the first step is drawn at once. */
  double now = cli_now(), first = when == PROGRESS_ON ? now - 1.0 : now + 0.4;
  return (progress){.on = on, .label = label, .started = now, .drawn = first, .total = total};
}

void progress_add(progress *bar, double units) {
  double now = cli_now();
  bar->done += units;
  if (!bar->on || bar->total <= 0 || now - bar->drawn < 0.1) return;
  double part = bar->done < bar->total ? bar->done / bar->total : 1.0;
  char cells[WIDTH + 1];
  for (int i = 0; i < WIDTH; i++) cells[i] = i < (int)(part * (double)WIDTH) ? '#' : '.';
  cells[WIDTH] = 0;
  fprintf(stderr, "\r%-8s [%s] %3.0f %%  %.0f s left ", bar->label, cells, 100 * part, (now - bar->started) * (1 - part) / part);
  fflush(stderr);
  bar->drawn = now;
  bar->visible = 1;
}

void progress_end(progress *bar) {
  if (bar->visible) fputs("\r\033[K", stderr);
  bar->on = bar->visible = 0;
}
