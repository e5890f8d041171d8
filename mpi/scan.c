/* Recursive doubling. Before round d = 1, 2, 4, ... the rank at place p knows the composition of its own map and the d-1 before
 * it; it sends that to place p + d. Compositions that reach back to the beginning of a sequence are absolute: they stay what they
 * are, are sent without M, and nobody behind them asks for more. The order of the products depends on the places alone. */
#include "scan.h"
#include "error.h"
#include "states.h"
#include <string.h>

/* ---- Products ---- */

/* The rule itself, without gates, on K tokens: S = add + sum over t of left_t right_t^T. The engine has the vectors, the threads
 * and the float64 that a matrix product of our own would need. */
gdn2_forward_args gdn2_scan_product(const gdn2_scan *s, const void *left, const void *right, int64_t columns, const void *add,
                                    void *out) {
  return (gdn2_forward_args){.struct_size = sizeof(gdn2_forward_args),
                             .problem = {.B = s->heads,
                                         .T = s->K,
                                         .H = 1,
                                         .K = s->K,
                                         .V = columns,
                                         .q = {.data = left, .dtype = s->dtype},
                                         .k = {.data = left, .dtype = s->dtype},
                                         .v = {.data = right, .dtype = s->dtype},
                                         .h0 = {.data = add, .dtype = s->dtype}},
                             .h_final = {.data = out, .dtype = s->dtype},
                             .exec = s->exec};
}

static gdn2_status multiply(const gdn2_scan *s, const void *left, const void *right, int64_t columns, const void *add,
                            void *out) {
  const gdn2_forward_args args = gdn2_scan_product(s, left, right, columns, add, out);
  return gdn2_mpi_pass(gdn2_forward(&args));
}

static void transpose_bytes(int64_t n, size_t unit, const char *from, char *to) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) memcpy(to + (size_t)(j * n + i) * unit, from + (size_t)(i * n + j) * unit, unit);
}

void gdn2_scan_transpose(const gdn2_scan *s, const void *from, void *to) {
  const size_t unit = gdn2_number_bytes(s->dtype), matrix = (size_t)(s->K * s->K) * unit;
  for (int64_t h = 0; h < s->heads; h++)
    transpose_bytes(s->K, unit, (const char *)from + (size_t)h * matrix, (char *)to + (size_t)h * matrix);
}

/* ---- Who knows what ---- */

static int place_of(const gdn2_scan *s, int rank) { return s->reversed ? s->group->ranks - 1 - rank : rank; }

static int rank_at(const gdn2_scan *s, int place) { return place_of(s, place); }

/* Whether a state arrives at the place from the one before it. */
static bool arrives(const gdn2_scan *s, int place) {
  return place > 0 && gdn2_group_continues(s->group, s->reversed ? rank_at(s, place - 1) : place);
}

static bool absolute(const gdn2_scan *s, int place) {
  return !arrives(s, place) || !gdn2_group_through(s->group, rank_at(s, place));
}

/* Whether one of the `count` places up to `place` is absolute, and so is their composition. Place 0 is. */
static bool absolute_among(const gdn2_scan *s, int place, int count) {
  for (int i = 0; i < count && i <= place; i++)
    if (absolute(s, place - i)) return true;
  return false;
}

/* Whether place - d sends to place in round d. */
static bool sends(const gdn2_scan *s, int place, int d) {
  return place < s->group->ranks && place - d >= 0 && arrives(s, place) && !absolute_among(s, place - 1, d - 1);
}

/* ---- Messages ---- */

static gdn2_status post(const gdn2_scan *s, const gdn2_map *map, bool whole, bool send, int place, MPI_Request request[2]) {
  gdn2_message m = {map->c, s->heads, s->K * s->V, s->dtype, rank_at(s, place), 0};
  const gdn2_status status = send ? gdn2_group_send(s->group, &m, request) : gdn2_group_receive(s->group, &m, request);
  if (status != GDN2_OK || !whole) return status;
  m = (gdn2_message){map->M, s->heads, s->K * s->K, s->dtype, m.peer, 1};
  return send ? gdn2_group_send(s->group, &m, request + 1) : gdn2_group_receive(s->group, &m, request + 1);
}

/* Round d of this place: `map` to place + d, s->received from place - d. */
static gdn2_status exchange(const gdn2_scan *s, const gdn2_map *map, int place, int d) {
  MPI_Request requests[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status unused[4];
  gdn2_status status = GDN2_OK;
  if (sends(s, place, d)) status = post(s, &s->received, !absolute_among(s, place - d, d), false, place - d, requests);
  if (status == GDN2_OK && sends(s, place + d, d))
    status = post(s, map, !absolute_among(s, place, d), true, place + d, requests + 2);
  const gdn2_status end = gdn2_mpi_code(MPI_Waitall(4, requests, unused), "MPI_Waitall");
  return status == GDN2_OK ? end : status;
}

/* ---- The scan ---- */

/* to = later o earlier, (M2). */
static gdn2_status compose(const gdn2_scan *s, const gdn2_map *later, const gdn2_map *earlier, bool whole, gdn2_map *to) {
  const gdn2_status status = multiply(s, later->left, earlier->c, s->V, later->c, to->c);
  return status == GDN2_OK && whole ? multiply(s, later->left, earlier->M, s->K, NULL, to->M) : status;
}

/* s->before takes in s->received, the composition of the d places up to place - d. */
static gdn2_status extend(gdn2_scan *s, int place, int d) {
  const bool whole = !absolute_among(s, place - d, d);
  if (d == 1) {
    const gdn2_map swap = s->before;
    s->before.c = s->received.c;
    s->before.M = s->received.M;
    s->received = (gdn2_map){.c = swap.c, .M = swap.M};
  } else {
    const gdn2_status status = compose(s, &s->before, &s->received, whole, &s->before);
    if (status != GDN2_OK) return status;
  }
  if (whole) gdn2_scan_transpose(s, s->before.M, s->before.left);
  return GDN2_OK;
}

gdn2_status gdn2_scan_run(gdn2_scan *s) {
  const int place = place_of(s, s->group->rank);
  const gdn2_map *known = &s->own;
  gdn2_status status = GDN2_OK;
  for (int d = 1; d < s->group->ranks && status == GDN2_OK; d *= 2) {
    status = exchange(s, known, place, d);
    if (status == GDN2_OK && sends(s, place, d)) status = extend(s, place, d);
    /* What is known now, where somebody will ask for it; what was absolute stays as it was. */
    if (status == GDN2_OK && !absolute_among(s, place, d) && sends(s, place + 2 * d, 2 * d)) {
      status = compose(s, &s->own, &s->before, !absolute_among(s, place, 2 * d), &s->sent);
      known = &s->sent;
    }
  }
  return status;
}
