/*
 * distance.c: finds hosts that are far from each other, by the round trips to a few of them.
 *
 * Host 0 is the first landmark, to which all others measure the round trip. The host that is
 * farthest from all landmarks becomes the next one, as long as it is far (FAR_NS). A host's site is
 * that of its nearest landmark. If hosts turn out not to be much nearer to their landmark than
 * landmarks are to each other, there are no sites: round trips were long because hosts are busy.
 * This needs n round trips for each site instead of n^2. Source: Gonzalez, "Clustering to minimize
 * the maximum intercluster distance", Theoretical Computer Science 38 (1985).
 */
#include "libcoll/measure/distance.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define PINGS     5
#define FAR_NS    1e6 /* processes of one site that wait for a core seldom take so long five times */
#define FAR_TIMES 4   /* as far as any host from its landmark */
#define AT_ONCE   32 /* a landmark answers as many hosts in that time; with more, it takes longer */
#define TAG_PING  2
#define TAG_PONG  3

/* The shortest of a few round trips to a rank, or what the network says if that is less: ranks that
 * wait for a core answer late, kernels do not. */
static coll_status ping(coll_comm *comm, int landmark, colli_round_trip_fn *network, double *ns) {
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
  const double network_ns = status == COLL_OK ? network(comm, landmark) : 0;
  *ns = network_ns > 0 ? fmin(*ns, network_ns) : *ns;
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
                         colli_round_trip_fn *network, double *all, double *ns) {
  double mine = 0;
  coll_status status = COLL_OK;
  if (own == landmark)
    status = answer(comm, count - 1);
  else if (own >= 0)
    status = ping(comm, member[landmark], network, &mine);
  if (status == COLL_OK)
    status = coll_allgather(&mine, all, 1, COLL_FLOAT64, comm);
  for (int host = 0; host < count && status == COLL_OK; host++)
    ns[host] = all[member[host]];
  return status;
}

/* Gives each host to the new landmark if that is nearer; the host that is farthest from its
 * landmark now. nearest[host]: the round trip. */
static int add_landmark(const double *ns, int count, int number, double *nearest, int *site) {
  int farthest = 0;
  for (int host = 0; host < count; host++) {
    if (number == 0 || ns[host] < nearest[host]) {
      nearest[host] = ns[host];
      site[host] = number;
    }
    farthest = nearest[host] > nearest[farthest] ? host : farthest;
  }
  return farthest;
}

coll_status colli_measure_sites(coll_comm *comm, const int *member, int count, int own,
                                colli_round_trip_fn *network, int *site, int *sites) {
  int landmark = 0, nranks = 0;
  coll_status status = coll_comm_nranks(comm, &nranks);
  size_t n = (size_t)count;
  double *ns = malloc((2 * n + (size_t)nranks) * sizeof(*ns));
  if (!ns)
    return COLL_ERR_NO_MEMORY;
  double apart = INFINITY, far = FAR_NS * (1 + (double)count / AT_ONCE), *nearest = ns + n;
  for (*sites = 0; status == COLL_OK && *sites < COLLI_MEASURED_SITES;) {
    status = reach(comm, member, count, own, landmark, network, ns + 2 * n, ns);
    if (status != COLL_OK)
      break;
    landmark = add_landmark(ns, count, (*sites)++, nearest, site);
    if (nearest[landmark] <= far)
      break;
    if (*sites < COLLI_MEASURED_SITES)
      apart = nearest[landmark]; /* which only becomes less */
  }
  if (status == COLL_OK && FAR_TIMES * nearest[landmark] > apart) {
    *sites = 1;
    memset(site, 0, n * sizeof(*site));
  }
  free(ns);
  return status;
}
