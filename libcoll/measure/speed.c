/*
 * speed.c: measures how fast messages travel between ranks of different hosts.
 *
 * In each round, host h sends to host h + shift, all at once, as in a collective: messages that
 * double in length until one takes long enough, so that what a switch or a token bucket lets
 * through at first no longer counts, nor the slow start of TCP. A host's link is as fast as the
 * fastest of its rounds, on the way out and on the way in: in the others, the host at the other end
 * was slower.
 */
#include "libcoll/measure/speed.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define ROUNDS     3
#define LEAST      ((size_t)16 << 10)
#define MOST       ((size_t)8 << 20)
#define SPAN_NS    30e6 /* a message that takes so long, and ... */
#define LATENCIES  10   /* ... as many times as long as a short one, is the last; so is ... */
#define LINK_NS    1e8  /* ... one after which a round of a link has taken so long, */
#define LINE_NS    5e8  /* or that of a line */
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
  uint64_t began;  /* the round */
  double most_ns;  /* that it may take, about */
  double least_ns; /* of all messages */
  double rate;     /* bytes per ns on the way out, once `sent` */
  double rate_in;  /* the same on the way in, as the other end says */
  bool sent;
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
  uint64_t now = colli_now_ns();
  double took = (double)(now - p->since);
  bool late = (double)(now - p->began) > p->most_ns;
  p->least_ns = p->least_ns > 0 && p->least_ns < took ? p->least_ns : took;
  if (!late && took < SPAN_NS + LATENCIES * p->least_ns && p->bytes < MOST) {
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
    return COLL_OK;
  }
  coll_status status = COLL_OK;
  if (p->request[ANSWER_OUT]) /* the one before, which has arrived */
    status = coll_wait(&p->request[ANSWER_OUT], -1);
  if (status == COLL_OK)
    status =
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

/* Ends what is under way, on all ranks, so that no message needs the probe's memory. */
static void give_up(probe *p) {
  coll_comm_revoke(p->comm);
  for (int i = 0; i < REQUESTS; i++)
    if (p->request[i])
      coll_wait(&p->request[i], -1);
}

/* One round. */
static coll_status run_round(probe *p) {
  p->bytes = LEAST;
  p->began = colli_now_ns();
  p->least_ns = p->rate = p->rate_in = 0;
  p->sent = false;
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
  if (status != COLL_OK)
    give_up(p);
  return status;
}

/* Memory for the messages of a rank; false if there is none. */
static bool open_probe(probe *p, coll_comm *comm, double most_ns) {
  *p = (probe){.comm = comm, .out = calloc(2, MOST), .most_ns = most_ns};
  p->in = p->out ? p->out + MOST : NULL;
  return p->out;
}

coll_status colli_measure_link(coll_comm *comm, const int *member, int count, int own,
                               double *rate) {
  probe p;
  double out = 0, in = 0;
  if (!open_probe(&p, comm, LINK_NS))
    return COLL_ERR_NO_MEMORY;
  coll_status status = COLL_OK;
  for (int shift = 1; shift <= ROUNDS && shift < count && status == COLL_OK; shift++) {
    p.to = member[(own + shift) % count];
    p.from = member[(own + count - shift) % count];
    status = run_round(&p);
    out = p.rate > out ? p.rate : out;
    in = p.rate_in > in ? p.rate_in : in;
  }
  free(p.out);
  *rate = out < in ? out : in;
  return status;
}

coll_status colli_measure_line(coll_comm *comm, const int *member, int count, int own,
                               double *alpha_ns, double *rate) {
  probe p;
  if (!open_probe(&p, comm, LINE_NS))
    return COLL_ERR_NO_MEMORY;
  p.to = member[(own + 1) % count];
  p.from = member[(own + count - 1) % count];
  coll_status status = run_round(&p);
  free(p.out);
  *alpha_ns = p.least_ns / 2;
  *rate = p.rate < p.rate_in ? p.rate : p.rate_in;
  return status;
}
