/*
 * distance.c: finds hosts that are far from each other, by the round trips to a few of them.
 *
 * One host is the first landmark, to which all others measure the round trip. The host that is
 * farthest from all landmarks becomes the next one, as long as it is far. A host's group is that of
 * its nearest landmark. If hosts turn out not to be much nearer to their landmark than to
 * all others, there are no groups: distances grow gradually, or round trips were long because hosts
 * are busy. This needs n round trips for each group instead of n^2. Source: Gonzalez, "Clustering
 * to minimize the maximum intercluster distance", Theoretical Computer Science 38 (1985).
 *
 * Sites are divided in the same way into racks, all at the same time.
 *
 * After a deadline, each by its own clock, hosts begin no round trip but the first one to each
 * landmark, or the first two if the network says nothing, and there are no more landmarks once some
 * rank has seen it pass. But for sites there are always two, so that far ones are found, however
 * long that takes. What is known by then makes groups only by the same rules.
 */
#include "libcoll/measure/distance.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define PINGS    5
#define PING_NS  3e7 /* which take no longer together, but for the first: far is far */
#define AT_ONCE  32  /* a landmark answers as many hosts in that time; with more, it takes longer */
#define TAG_PING 2
#define TAG_PONG 3

/* What makes hosts far from each other. */
typedef struct far_rule {
  double ns;         /* at least */
  double times;      /* as far as any host from its landmark, at least */
  bool network_only; /* only what the network says counts, and groups have two hosts on average */
  int most;          /* groups; hosts of further ones count to the nearest of these */
  int least;         /* landmarks, even if time is over */
} far_rule;

/* Processes of one site that wait for a core seldom take so long five times. */
static const far_rule site_rule = {1e6, 4, false, 8, 2};
/* Kernels on busy cores answer within half of that. */
static const far_rule rack_rule = {1e5, 3, true, 32, 0};

/* A group that is being divided. */
typedef struct parent {
  int size;     /* hosts */
  int landmark; /* the host that is one now; */
  int count;    /* how many there have been before it */
  bool done;
} parent;

/* What a rank says after each round. */
typedef struct report {
  double ns;   /* its round trip; 0: it has none */
  double late; /* 1: its time is over */
} report;

/* What is under way. */
typedef struct division {
  coll_comm *comm;
  const colli_distances *distances;
  far_rule rule;
  const int *of;   /* the parent of each host */
  parent *parents; /* `count` */
  int count;
  int *near;       /* each host's nearest landmark, by its number in the parent, */
  double *nearest; /* and the round trip to it, */
  double *second;  /* and to the second nearest one */
  double *ns;      /* from each host to the landmark of this round */
  report *all;     /* of each rank */
  bool late;       /* some rank's time is over */
} division;

/* ---- round trips ----------------------------------------------------------------------------- */

/* What the network says of the way to a rank, or if it says nothing, the shortest of a few round
 * trips, less what it takes if all hosts ask at once: ranks that wait for a core answer late,
 * kernels do not. */
static coll_status ping(const division *d, int landmark, double *ns) {
  uint8_t more = 1;
  coll_comm *comm = d->comm;
  coll_status status = COLL_OK;
  uint64_t begin = colli_now_ns(), since = begin, now = begin;
  *ns = INFINITY;
  for (int i = 0; more && status == COLL_OK; i++) {
    more = i == 0 || (i < PINGS && now < d->distances->until_ns && (double)(now - begin) < PING_NS);
    if (i == 1 && !more && d->distances->round_trip(comm, landmark) <= 0)
      more = 1; /* or it would not be known without what it takes to connect */
    status = coll_send(&more, 1, COLL_UINT8, landmark, TAG_PING, comm);
    if (!more || status != COLL_OK)
      break;
    status = coll_recv(&more, 1, COLL_UINT8, landmark, TAG_PONG, NULL, comm);
    now = colli_now_ns();
    *ns = fmin(*ns, (double)(now - since));
    begin = i == 0 ? now : begin; /* the first one may have had to connect */
    since = now;
  }
  const double network_ns = status == COLL_OK ? d->distances->round_trip(comm, landmark) : 0;
  *ns /= 1 + (double)d->distances->delegates.count / AT_ONCE;
  if (network_ns > 0 || d->rule.network_only)
    *ns = network_ns;
  return status;
}

/* Answers all pings of the others, until each has said that it has no more. */
static coll_status answer(coll_comm *comm, int others) {
  coll_status status = COLL_OK;
  while (others > 0 && status == COLL_OK) {
    uint8_t more;
    coll_message message;
    status = coll_recv(&more, 1, COLL_UINT8, COLL_ANY_SOURCE, TAG_PING, &message, comm);
    if (status == COLL_OK && more)
      status = coll_send(&more, 1, COLL_UINT8, message.source, TAG_PONG, comm);
    else
      others--;
  }
  return status;
}

/* Tells all ranks what this one has measured, and whether its time is over. */
static coll_status report_to_all(division *d, double ns, int nranks) {
  const report mine = {ns, colli_now_ns() >= d->distances->until_ns};
  const coll_status status =
      coll_allgather(&mine, d->all, sizeof(mine) / sizeof(double), COLL_FLOAT64, d->comm);
  for (int rank = 0; rank < nranks && status == COLL_OK; rank++)
    d->late = d->late || d->all[rank].late > 0;
  return status;
}

/* The round trips of all hosts to the landmarks of their parents. */
static coll_status reach(division *d, int nranks) {
  const colli_delegates *delegates = &d->distances->delegates;
  const parent *own = delegates->own >= 0 ? &d->parents[d->of[delegates->own]] : NULL;
  double mine = 0;
  coll_status status = COLL_OK;
  if (own && !own->done && delegates->own == own->landmark)
    status = answer(d->comm, own->size - 1);
  else if (own && !own->done)
    status = ping(d, delegates->rank[own->landmark], &mine);
  if (status == COLL_OK)
    status = report_to_all(d, mine, nranks);
  for (int host = 0; host < delegates->count && status == COLL_OK; host++)
    d->ns[host] = d->all[delegates->rank[host]].ns;
  return status;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Gives a host to the new landmark of its parent if that is nearer. */
static void add_host(division *d, int host, int landmark_number) {
  const double ns = d->ns[host];
  if (ns >= d->nearest[host]) {
    d->second[host] = fmin(d->second[host], ns);
    return;
  }
  d->second[host] = d->nearest[host];
  d->nearest[host] = ns;
  d->near[host] = landmark_number;
}

/* Has a new landmark in a parent; the host that is farthest from its own then becomes the next one,
 * if it is far. */
static void add_landmark(division *d, int which) {
  parent *p = &d->parents[which];
  int farthest = -1;
  for (int host = 0; host < d->distances->delegates.count; host++) {
    if (d->of[host] != which)
      continue;
    add_host(d, host, p->count);
    if (farthest < 0 || d->nearest[host] > d->nearest[farthest])
      farthest = host;
  }
  p->count++;
  p->landmark = farthest;
  p->done = d->nearest[farthest] <= d->rule.ns || p->count == d->rule.most;
}

/* The shortest round trip from a host of a parent to another group's landmark. */
static double apart(const division *d, int which) {
  double ns = INFINITY;
  for (int host = 0; host < d->distances->delegates.count; host++)
    if (d->of[host] == which)
      ns = fmin(ns, d->second[host]);
  return ns;
}

/* Whether a parent has hosts enough for so many groups. */
static bool has_room(const division *d, int which, int groups) {
  return !d->rule.network_only || 2 * groups <= d->parents[which].size;
}

/* Whether a parent, which is done, is divided. */
static bool is_divided(const division *d, int which) {
  const parent *p = &d->parents[which];
  return p->count > 1 && apart(d, which) > 0 &&
         d->rule.times * d->nearest[p->landmark] <= apart(d, which) && has_room(d, which, p->count);
}

/* Numbers the groups that parents were divided into. */
static void number_groups(const division *d, colli_measured_groups *out) {
  int next = 0;
  out->inside_ns = 0;
  out->apart_ns = INFINITY;
  for (int which = 0; which < d->count; which++) {
    const parent *p = &d->parents[which];
    const bool divided = is_divided(d, which);
    for (int host = 0; host < d->distances->delegates.count; host++)
      if (d->of[host] == which)
        out->group[host] = next + (divided ? d->near[host] : 0);
    next += divided ? p->count : 1;
    if (divided) {
      out->inside_ns = fmax(out->inside_ns, d->nearest[p->landmark]);
      out->apart_ns = fmin(out->apart_ns, apart(d, which));
    }
  }
  out->count = next;
  out->apart_ns = isinf(out->apart_ns) ? 0 : out->apart_ns;
}

/* Whether some parent is not done. */
static bool any_left(const division *d) {
  for (int which = 0; which < d->count; which++)
    if (!d->parents[which].done)
      return true;
  return false;
}

/* Finds landmarks until all parents are done, or time is over. */
static coll_status find_landmarks(division *d, int nranks) {
  coll_status status = COLL_OK;
  for (int which = 0; which < d->count; which++)
    d->parents[which].done = !has_room(d, which, 2);
  for (int i = 0; status == COLL_OK && (!d->late || i < d->rule.least) && any_left(d); i++) {
    status = reach(d, nranks);
    for (int which = 0; which < d->count && status == COLL_OK; which++)
      if (!d->parents[which].done)
        add_landmark(d, which);
  }
  return status;
}

/* Divides the groups in `out`. d: but for what is allocated. */
static coll_status divide(division *d, colli_measured_groups *out) {
  const size_t n = (size_t)d->distances->delegates.count;
  int nranks = 0;
  coll_status status = coll_comm_nranks(d->comm, &nranks);
  double *numbers = malloc(3 * n * sizeof(*numbers));
  d->all = malloc((size_t)nranks * sizeof(*d->all));
  int *of = malloc(2 * n * sizeof(*of));
  d->count = out->count;
  d->parents = calloc((size_t)out->count, sizeof(*d->parents));
  d->late = out->late;
  if (numbers && of && d->parents && d->all) {
    d->of = memcpy(of, out->group, n * sizeof(*of));
    d->near = of + n;
    d->nearest = numbers;
    d->second = numbers + n;
    d->ns = numbers + 2 * n;
    for (int host = d->distances->delegates.count - 1; host >= 0; host--) {
      d->parents[of[host]].size++;
      d->parents[of[host]].landmark = host;
      d->nearest[host] = d->second[host] = INFINITY;
    }
    if (status == COLL_OK)
      status = find_landmarks(d, nranks);
    if (status == COLL_OK)
      number_groups(d, out);
    out->late = any_left(d);
  } else {
    status = COLL_ERR_NO_MEMORY;
  }
  free(numbers);
  free(of);
  free(d->parents);
  free(d->all);
  return status;
}

coll_status colli_measure_sites(coll_comm *comm, const colli_distances *distances,
                                colli_measured_groups *out) {
  division d = {.comm = comm, .distances = distances, .rule = site_rule};
  memset(out->group, 0, (size_t)distances->delegates.count * sizeof(*out->group));
  out->count = 1;
  out->late = false;
  return divide(&d, out);
}

coll_status colli_measure_racks(coll_comm *comm, const colli_distances *distances,
                                colli_measured_groups *out) {
  division d = {.comm = comm, .distances = distances, .rule = rack_rule};
  return divide(&d, out);
}
