/*
 * measure_links.c: measures how fast the hosts' links to the network are.
 *
 * One rank of each host takes part. In each round, host h sends to host h + shift, all at once, as
 * in a collective: messages that double in length until one takes long enough (SPAN_NS), so that
 * what a switch or a token bucket lets through at first no longer counts. A host's link is as fast
 * as the fastest of its rounds, on the way out and on the way in: in the others, the host at the
 * other end was slower.
 */
#include "libcoll/create/measure_links.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/assemble.h"
#include "libcoll/tuning/link_speed.h"

#define ROUNDS     3
#define LEAST      ((size_t)16 << 10)
#define MOST       ((size_t)8 << 20)
#define SPAN_NS    30000000 /* a message that takes as long is the last one */
#define TAG_DATA   0
#define TAG_ANSWER 1

enum { DATA_OUT, ANSWER_IN, DATA_IN, ANSWER_OUT, REQUESTS };

/* One rank's messages with two others, in one round. */
typedef struct probe {
  coll_comm *comm;
  int to, from;
  uint8_t *out, *in; /* MOST bytes each */
  coll_request *request[REQUESTS];
  coll_message came;
  size_t bytes; /* of the message that is under way */
  uint64_t since;
  double least_ns; /* of all messages */
  double rate;     /* bytes per ns on the way out, once `sent` */
  double rate_in;  /* the same on the way in, as the other end says, once `received` */
  bool sent, received;
} probe;

/* Starts the next message and expects the answer. */
static coll_status send_next(probe *p) {
  p->since = colli_now_ns();
  coll_status status =
      coll_irecv(p->in, 0, COLL_UINT8, p->to, TAG_ANSWER, NULL, p->comm, &p->request[ANSWER_IN]);
  if (status != COLL_OK)
    return status;
  return coll_isend(p->out, p->bytes, COLL_UINT8, p->to, TAG_DATA, p->comm, &p->request[DATA_OUT]);
}

/* A message and its answer have arrived: sends a longer one, or what came of it. */
static coll_status go_on_sending(probe *p) {
  if (p->sent) /* and even that has arrived */
    return COLL_OK;
  double took = (double)(colli_now_ns() - p->since);
  p->least_ns = p->least_ns > 0 && p->least_ns < took ? p->least_ns : took;
  if (took < SPAN_NS && p->bytes < MOST) {
    p->bytes *= 2;
    return send_next(p);
  }
  /* Short messages take next to nothing but latency, which would make slow links look slower. */
  double net = took > 2 * p->least_ns ? took - p->least_ns : took;
  p->rate = (double)p->bytes / net;
  p->sent = true;
  return coll_isend(&p->rate, sizeof(p->rate), COLL_UINT8, p->to, TAG_DATA, p->comm,
                    &p->request[DATA_OUT]);
}

/* Expects the next message. */
static coll_status receive_next(probe *p) {
  return coll_irecv(p->in, MOST, COLL_UINT8, p->from, TAG_DATA, &p->came, p->comm,
                    &p->request[DATA_IN]);
}

/* A message has come: answers it and expects the next, unless it is the last. */
static coll_status take_message(probe *p) {
  if (p->came.count == sizeof(p->rate_in)) {
    memcpy(&p->rate_in, p->in, sizeof(p->rate_in));
    p->received = true;
    return COLL_OK;
  }
  coll_status status =
      coll_isend(p->in, 0, COLL_UINT8, p->from, TAG_ANSWER, p->comm, &p->request[ANSWER_OUT]);
  return status == COLL_OK ? receive_next(p) : status;
}

/* Whether a request is under way. */
static bool any_left(const probe *p) {
  for (int i = 0; i < REQUESTS; i++)
    if (p->request[i])
      return true;
  return false;
}

/* One round. */
static coll_status run_round(probe *p) {
  p->bytes = LEAST;
  p->least_ns = p->rate = p->rate_in = 0;
  p->sent = p->received = false;
  coll_status status = receive_next(p);
  if (status == COLL_OK)
    status = send_next(p);
  while (status == COLL_OK && any_left(p)) {
    int index = 0;
    status = coll_wait_any(p->request, REQUESTS, &index, -1);
    if (status == COLL_OK && index == DATA_IN)
      status = take_message(p);
    else if (status == COLL_OK && index <= ANSWER_IN && !p->request[DATA_OUT] &&
             !p->request[ANSWER_IN])
      status = go_on_sending(p);
  }
  return status;
}

/* All rounds of a host's first rank: the speed of its link in bytes per ns. first: that rank of
 * each host. */
static coll_status run_rounds(probe *p, const int *first, int hosts, int own, double *rate) {
  double out = 0, in = 0;
  coll_status status = COLL_OK;
  for (int shift = 1; shift <= ROUNDS && shift < hosts && status == COLL_OK; shift++) {
    p->to = first[(own + shift) % hosts];
    p->from = first[(own + hosts - shift) % hosts];
    status = run_round(p);
    out = p->rate > out ? p->rate : out;
    in = p->rate_in > in ? p->rate_in : in;
  }
  *rate = out < in ? out : in;
  return status;
}

/* Measures on the first rank of each host; elsewhere *rate is 0. `first` has room for all hosts. */
static coll_status measure(coll_comm *comm, int *first, double *rate) {
  const colli_plans *plans = &comm->calls.plans;
  for (int rank = comm->nranks - 1; rank >= 0; rank--)
    first[plans->group[rank]] = rank;
  int own = plans->group[comm->rank];
  *rate = 0;
  if (first[own] != comm->rank)
    return COLL_OK;
  probe p = {.comm = comm, .out = calloc(2, MOST)};
  if (!p.out)
    return COLL_ERR_NO_MEMORY;
  p.in = p.out + MOST;
  coll_status status = run_rounds(&p, first, plans->ngroups, own, rate);
  free(p.out);
  return status;
}

/* Puts the speeds of all hosts into the table of ranks, unless they were declared. */
static void note_speeds(coll_comm *comm, const double *rate) {
  const double mbit_per_rate = 8e3; /* a byte per ns */
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_rank_info *info = &comm->table[rank];
    if (rate[rank] <= 0 || info->link_source == COLLI_SPEED_DECLARED)
      continue;
    info->link_mbit = rate[rank] * mbit_per_rate;
    info->link_source = COLLI_SPEED_MEASURED;
    if (comm->rank == 0)
      colli_log_write(&comm->log, COLLI_LOG_INFO, "the link of host %s: %.4g Mbit/s measured",
                      info->host, info->link_mbit);
  }
}

/* What a communicator that takes this one's place, after a failure, finds in its settings. */
static void keep_speed(coll_comm *comm) {
  char text[32];
  const int32_t *group = comm->calls.plans.group;
  for (int rank = 0; rank < comm->nranks; rank++)
    if (group[rank] == group[comm->rank] && comm->table[rank].link_source == COLLI_SPEED_MEASURED) {
      colli_link_speed_print(comm->table[rank].link_mbit, text, sizeof(text));
      (void)colli_params_set_text(&comm->params, COLLI_PARAM_LINK_SPEED,
                                  text); /* or measured anew */
      return;
    }
}

/* Whether some rank wants it. */
static bool is_wanted(const coll_comm *comm) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (comm->table[rank].link_source == COLLI_SPEED_WANTED)
      return comm->calls.plans.ngroups > 1;
  return false;
}

coll_status colli_measure_links(coll_comm *comm) {
  if (!is_wanted(comm))
    return COLL_OK;
  double own = 0, *rate = calloc((size_t)comm->nranks, sizeof(*rate));
  int *first = calloc((size_t)comm->calls.plans.ngroups, sizeof(*first));
  coll_status status = rate && first ? measure(comm, first, &own) : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status = coll_allgather(&own, rate, 1, COLL_FLOAT64, comm);
  if (status == COLL_OK) {
    coll_error error = COLL_ERROR_INIT;
    note_speeds(comm, rate);
    status = colli_comm_refresh_model(comm, &error);
    keep_speed(comm);
  }
  free(first);
  free(rate);
  return status;
}
