/* pending.c - files that appear whole or not at all.
 *
 * The temporary file lies in the directory of its target, so that the rename stays within one file system. Its path is put in a
 * fixed list before it is created, and a signal handler may unlink whatever the list holds: a name carries the process and a
 * running number, so it never belongs to somebody else. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { SLOTS = 32 };
static char *volatile slot_path[SLOTS];
static const int fatal[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM};

static void remove_and_end(int number) {
  for (int i = 0; i < SLOTS; i++)
    if (slot_path[i]) unlink(slot_path[i]);
  /* The handler was reset when it was entered (SA_RESETHAND): the second signal ends the process in the usual way. */
  raise(number);
}

void io_clean_up_on_signals(void) {
  struct sigaction action = {.sa_handler = remove_and_end, .sa_flags = (int)SA_RESETHAND}, before;
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
    if (!sigaction(fatal[i], NULL, &before) && before.sa_handler != SIG_IGN) sigaction(fatal[i], &action, NULL);
  signal(SIGXFSZ, SIG_IGN);
}

static int take_slot(char *path) {
  for (int i = 0; i < SLOTS; i++)
    if (!slot_path[i]) {
      slot_path[i] = path;
      return i;
    }
  return -1;
}

/* Where path leads: a symbolic link is written through, not replaced. */
static char *resolve(const char *path) {
  struct stat status;
  char *real = !lstat(path, &status) && S_ISLNK(status.st_mode) ? realpath(path, NULL) : NULL;
  return real ? real : strdup(path);
}

static char *name_beside(const char *target) {
  static unsigned number;
  const char *slash = strrchr(target, '/');
  int directory = slash ? (int)(slash - target) + 1 : 0;
  size_t size = (size_t)directory + 64;
  char *name = malloc(size);
  if (name) snprintf(name, size, "%.*s.gdn2-%ld-%u.tmp", directory, target, (long)getpid(), number++);
  return name;
}

static int check_target(const char *path, io_error *error) {
  struct stat status;
  const char *slash = strrchr(path, '/');
  if (!*(slash ? slash + 1 : path)) return io_fail(error, "'%s': does not name a file", path);
  if (stat(path, &status)) return errno == ENOENT ? 0 : io_fail(error, "%s: cannot be written: %s", path, strerror(errno));
  if (S_ISDIR(status.st_mode)) return io_fail(error, "%s: is a directory", path);
  return S_ISREG(status.st_mode) ? 0 : io_fail(error, "%s: exists and is not a regular file", path);
}

static void give_up_name(io_pending *pending) {
  if (pending->slot >= 0) slot_path[pending->slot] = NULL;
  free(pending->temporary);
  pending->temporary = NULL;
}

static int open_temporary(io_pending *pending, io_error *error) {
  for (int attempt = 0; attempt < 100; attempt++) {
    pending->temporary = name_beside(pending->target);
    if (!pending->temporary) return io_fail(error, "%s: not enough memory", pending->target);
    pending->slot = take_slot(pending->temporary);
    if (pending->slot >= 0) pending->fd = open(pending->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (pending->fd >= 0) return 0;
    int reason = pending->slot >= 0 ? errno : EMFILE;
    give_up_name(pending);
    if (reason != EEXIST) return io_fail(error, "%s: cannot be written: %s", pending->target, strerror(reason));
  }
  return io_fail(error, "%s: cannot be written: no free name for a temporary file", pending->target);
}

int io_pending_begin(io_pending *pending, const char *path, io_error *error) {
  *pending = (io_pending){.fd = -1};
  if (check_target(path, error)) return -1;
  pending->target = resolve(path);
  if (!pending->target) return io_fail(error, "%s: not enough memory", path);
  if (!open_temporary(pending, error)) return 0;
  io_pending_abort(pending);
  return -1;
}

int io_pending_write(io_pending *pending, const void *data, size_t bytes, io_error *error) {
  const char *from = data;
  while (bytes > 0) {
    ssize_t n = write(pending->fd, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_fail(error, "%s: cannot be written: %s", pending->target, strerror(errno));
    from += n;
    bytes -= (size_t)n;
  }
  return 0;
}

int io_pending_finish(io_pending *pending, io_error *error) {
  /* Some file systems have no fsync and say EINVAL; the data is as safe there as it can be. */
  int failed = fsync(pending->fd) && errno != EINVAL ? errno : 0;
  if (close(pending->fd) && !failed) failed = errno;
  pending->fd = -1;
  return failed ? io_fail(error, "%s: cannot be written: %s", pending->target, strerror(failed)) : 0;
}

int io_pending_commit(io_pending *pending, io_error *error) {
  struct stat status;
  if (!stat(pending->target, &status)) chmod(pending->temporary, status.st_mode & 0777); /* a replaced file keeps its mode */
  if (rename(pending->temporary, pending->target))
    return io_fail(error, "%s: cannot be written: %s", pending->target, strerror(errno));
  give_up_name(pending);
  return 0;
}

void io_pending_abort(io_pending *pending) {
  if (pending->temporary) {
    if (pending->fd >= 0) close(pending->fd);
    unlink(pending->temporary);
    give_up_name(pending);
  }
  free(pending->target);
  *pending = (io_pending){.fd = -1};
}

int io_check_writable(const char *path, io_error *error) {
  io_pending pending;
  if (io_pending_begin(&pending, path, error)) return -1;
  io_pending_abort(&pending);
  return 0;
}
