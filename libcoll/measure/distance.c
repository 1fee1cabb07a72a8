/*
 * distance.c: finds hosts that are far from each other, by the round trips to a few of them.
 *
 * Host 0 is the first landmark, to which all others measure the round trip. The host that is
 * farthest from all landmarks becomes the next one, as long as it is far (FAR_NS, and FAR_TIMES as
 * far as the nearest host of all from its landmark). A host's site is that of its nearest landmark.
 * This needs n round trips for each site instead of n^2, and finds sites that are much farther from
 * each other than their hosts are. Source: Gonzalez, "Clustering to minimize the maximum
 * intercluster distance", Theoretical Computer Science 38 (1985).
 */
#include "libcoll/measure/distance.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "libcoll/base/clock.h"

#define PINGS     5
#define FAR_NS    1e6 /* what processes of one site take that wait for a core is seldom that long */
#define FAR_TIMES 4
#define TAG_PING  2
#define TAG_PONG  3

/* The shortest of a few round trips to a rank. */
static coll_status ping(coll_comm *comm, int landmark, double *ns) {
  uint8_t byte = 0;
  coll_status status = COLL_OK;
  *ns = INFINITY;
  for (int i = 0; i < PINGS && status == COLL_OK; i++) {
    uint64_t since = colli_now_ns();
    status = coll_send(&byte, 1, COLL_UINT8, landmark, TAG_PING, comm);
    if (status == COLL_OK)
      status = coll_recv(&byte, 1, COLL_UINT8, landmark, TAG_PONG, NULL, comm);
    *ns = fmin(*ns, (double)(colli_now_ns() - since));
  }
  return status;
}

/* Answers all pings of the others. */
static coll_status answer(coll_comm *comm, int others) {
  coll_status status = COLL_OK;
  for (int left = others * PINGS; left > 0 && status == COLL_OK; left--) {
    uint8_t byte;
    coll_message message;
    status = coll_recv(&byte, 1, COLL_UINT8, COLL_ANY_SOURCE, TAG_PING, &message, comm);
    if (status == COLL_OK)
      status = coll_send(&byte, 1, COLL_UINT8, message.source, TAG_PONG, comm);
  }
  return status;
}

/* The round trips of all hosts to a landmark; `all` has room for all ranks. */
static coll_status reach(coll_comm *comm, const int *member, int count, int own, int landmark,
                         double *all, double *ns) {
  double mine = 0;
  coll_status status = COLL_OK;
  if (own == landmark)
    status = answer(comm, count - 1);
  else if (own >= 0)
    status = ping(comm, member[landmark], &mine);
  if (status == COLL_OK)
    status = coll_allgather(&mine, all, 1, COLL_FLOAT64, comm);
  for (int host = 0; host < count; host++)
    ns[host] = all[member[host]];
  return status;
}

/* Gives each host to the new landmark if that is nearer; the host that is farthest from its
 * landmark now, or -1 if none is far. nearest[host]: the round trip. */
static int add_landmark(const double *ns, int count, int number, double *nearest, int *site) {
  int farthest = 0;
  double least = INFINITY;
  for (int host = 0; host < count; host++) {
    if (number == 0 || ns[host] < nearest[host]) {
      nearest[host] = ns[host];
      site[host] = number;
    }
    farthest = nearest[host] > nearest[farthest] ? host : farthest;
    if (nearest[host] > 0)
      least = fmin(least, nearest[host]);
  }
  bool far = nearest[farthest] > FAR_NS && (count == 2 || nearest[farthest] > FAR_TIMES * least);
  return far ? farthest : -1;
}

coll_status colli_measure_sites(coll_comm *comm, const int *member, int count, int own, int *site,
                                int *sites) {
  int landmark = 0, nranks = 0;
  coll_status status = coll_comm_nranks(comm, &nranks);
  size_t n = (size_t)count;
  double *ns = malloc((2 * n + (size_t)nranks) * sizeof(*ns));
  if (!ns)
    return COLL_ERR_NO_MEMORY;
  *sites = 0;
  while (landmark >= 0 && *sites < COLLI_MEASURED_SITES && status == COLL_OK) {
    status = reach(comm, member, count, own, landmark, ns + 2 * n, ns);
    if (status == COLL_OK)
      landmark = add_landmark(ns, count, (*sites)++, ns + n, site);
  }
  free(ns);
  return status;
}
