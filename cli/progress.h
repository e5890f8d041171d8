/* progress.h - a bar on stderr for long work. */
#ifndef GDN2_CLI_PROGRESS_H
#define GDN2_CLI_PROGRESS_H

typedef struct progress {
  int on;
  const char *label;
  double started, drawn; /* seconds of cli_now() */
  double total, done;    /* units of work */
  int visible;
} progress;

/* when: PROGRESS_AUTO, PROGRESS_ON or PROGRESS_OFF. */
progress progress_start(int when, const char *label, double total);
/* More units are done; draws at most ten times a second, and in AUTO not before the work has taken half a second. */
void progress_add(progress *bar, double units);
/* Removes the bar from the terminal. */
void progress_end(progress *bar);

#endif
