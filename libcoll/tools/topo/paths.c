/* paths.c: asks the ranks of a run which ways through the network their messages take. */
#include "libcoll/tools/topo/paths.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define PATIENCE_NS 3000000000ull /* as long as a pair of addresses may take to answer */

/* The peer of a rank's text; -1: none. */
static int peer_of(const topo_paths *paths, int rank, int slot) {
  if (paths->pair[0] < 0)
    return slot == rank ? -1 : slot;
  return rank == paths->pair[0] ? paths->pair[1] : rank == paths->pair[1] ? paths->pair[0] : -1;
}

/* Adds what the network says of the time; only to one pair's text, as others' are compared. */
static void add_round_trip(const topo_paths *paths, double ns, char *text) {
  const size_t used = strlen(text);
  if (paths->pair[0] >= 0 && ns > 0)
    snprintf(text + used, TOPO_PATHS_BYTES - used, "; shortest round trip %.3g ms", ns * 1e-6);
}

/* Writes this rank's texts; returns how many ways it lacks. */
static int tell(const topo_paths *paths, coll_comm *comm, int rank,
                char (*mine)[TOPO_PATHS_BYTES]) {
  int lacking = 0;
  for (int slot = 0; slot < paths->slots; slot++) {
    const int peer = peer_of(paths, rank, slot);
    const int lacks = peer < 0 ? 0 : colli_comm_paths(comm, peer, mine[slot], TOPO_PATHS_BYTES);
    if (lacks > 0 && *mine[slot] == '\0')
      strcpy(mine[slot], TOPO_PATHS_LOST);
    add_round_trip(paths, peer < 0 ? 0 : colli_comm_round_trip(comm, peer), mine[slot]);
    lacking += lacks;
  }
  return lacking;
}

/* Writes this rank's texts once no rank lacks a way, or has no patience left. */
static coll_status await_all(const topo_paths *paths, coll_comm *comm, int rank,
                             char (*mine)[TOPO_PATHS_BYTES]) {
  const uint64_t deadline_ns = colli_now_ns() + PATIENCE_NS;
  coll_status status = COLL_OK;
  for (int32_t waits = 1; status == COLL_OK && waits;) {
    waits = tell(paths, comm, rank, mine) > 0 && colli_now_ns() < deadline_ns;
    status = coll_allreduce(&waits, &waits, 1, COLL_INT32, COLL_MAX, comm); /* moves connections */
  }
  return status;
}

coll_status topo_paths_gather(coll_comm *comm, const int pair[2], topo_paths *out) {
  int nranks = 0, rank = 0;
  (void)coll_comm_nranks(comm, &nranks);
  (void)coll_comm_rank(comm, &rank);
  *out = (topo_paths){.comm = comm, .nranks = nranks, .pair = {pair[0], pair[1]}};
  out->slots = pair[0] >= 0 ? 1 : nranks <= TOPO_PATHS_RANKS ? nranks : 0;
  if (out->slots == 0)
    return COLL_OK;
  const size_t bytes = (size_t)out->slots * sizeof(*out->all);
  char(*mine)[TOPO_PATHS_BYTES] = calloc((size_t)out->slots, sizeof(*mine));
  out->all = malloc(bytes * (size_t)nranks);
  coll_status status = mine && out->all ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status = await_all(out, comm, rank, mine);
  if (status == COLL_OK)
    status = coll_allgather(mine, out->all, bytes, COLL_UINT8, comm);
  free(mine);
  return status;
}

void topo_paths_free(topo_paths *paths) {
  free(paths->all);
  paths->all = NULL;
}

const char *topo_paths_of(const topo_paths *paths, int rank, int peer) {
  for (int slot = 0; slot < paths->slots; slot++)
    if (peer_of(paths, rank, slot) == peer)
      return paths->all[rank * paths->slots + slot];
  return "";
}

/* Whether a pair is the first one with its ways, from the lower rank; *count receives how many
 * there are. */
static bool is_first(const topo_paths *paths, int rank, int peer, int *count) {
  const char *text = topo_paths_of(paths, rank, peer);
  *count = 0;
  for (int r = 0; r < paths->nranks; r++)
    for (int p = r + 1; p < paths->nranks; p++) {
      if (strcmp(topo_paths_of(paths, r, p), text) != 0)
        continue;
      if (*count == 0 && (r != rank || p != peer))
        return false;
      (*count)++;
    }
  return true;
}

void topo_paths_print(const topo_paths *paths, FILE *out) {
  const char *title = "\nways through the network\n";
  for (int r = 0; r < paths->nranks; r++)
    for (int p = r + 1; p < paths->nranks; p++) {
      int count;
      if (*topo_paths_of(paths, r, p) == '\0' || !is_first(paths, r, p, &count))
        continue;
      fprintf(out, "%s  %d link%s (the first from %d to %d): %s\n", title, count,
              count == 1 ? "" : "s", r, p, topo_paths_of(paths, r, p));
      title = "";
    }
}
