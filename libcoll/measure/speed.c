/*
 * speed.c: measures how fast messages travel between ranks of different hosts.
 *
 * In each round, host h sends to host h + shift, all at once, as in a collective: messages that
 * double in length until one takes long enough, so that what a switch or a token bucket lets
 * through at first no longer counts, nor the slow start of TCP. A host's link is as fast as the
 * fastest of its rounds, on the way out and on the way in: in the others, the host at the other end
 * was slower.
 *
 * A short message takes next to nothing but latency, which does not count. What a message takes
 * more than that tells the speed only if it is much more, as slow starts and what announces a long
 * message take round trips, too; or if time grows as bytes do. Else the speed is not known.
 *
 * Each sender has a deadline, and sends no message that would end later, if twice as many bytes
 * take twice as long. Before each round all agree on whether there is time for it: even a short
 * message may have to wait for a new connection.
 */
#include "libcoll/measure/speed.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define ROUNDS     3
#define LEAST      ((size_t)4 << 10)
#define MOST       ((size_t)8 << 20)
#define SPAN_NS    30e6 /* a message that takes so long, and ... */
#define LATENCIES  10   /* ... as many times as long as a short one, is the last; so is ... */
#define LINK_NS    1e8  /* ... one after which a longer one would end a link's round later, */
#define LINE_NS    3e9  /* or a line's */
#define ENOUGH     4 /* times as long as a short one: its bytes count, and not how TCP starts, ... */
#define GROWS      0.9  /* ... if times grow as bytes do, or so many times as much */
#define ALIKE      1.25 /* times as long: then it is latency that counts, ... */
#define LEAP       4    /* ... and messages grow by that, otherwise by ... */
#define STEP       2
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
  uint64_t until_ns;  /* the deadline of the round */
  double least_ns;    /* of all messages; 0: there was none */
  size_t least_bytes; /* of that message */
  double before_ns;   /* of the message before the last one */
  size_t before_bytes;
  double rate;    /* bytes per ns on the way out, once `sent`; 0: not known */
  double rate_in; /* the same on the way in, as the other end says */
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

/* Sends what came of it, which is the last message. */
static coll_status send_rate(probe *p, double rate) {
  p->rate = rate;
  p->sent = true;
  return coll_isend(&p->rate, sizeof(p->rate), COLL_UINT8, p->to, TAG_DATA, p->comm,
                    &p->request[DATA_OUT]);
}

/* Whether the times of two messages, of which one is so many times as long, grow as their bytes. */
static bool grows(double before_ns, double ns, double times) {
  return ns >= GROWS * times * before_ns && ns * GROWS <= times * before_ns;
}

/* What the last message, which took so long, tells of the rate, if it does; else 0. */
static double rate_of(const probe *p, double took) {
  const double latency_ns = p->least_ns, bytes = (double)p->bytes, least = (double)p->least_bytes;
  const double more_ns = took - latency_ns;
  if (bytes <= least || more_ns <= 0)
    return 0;
  if (took >= LATENCIES * latency_ns || grows(latency_ns, took, bytes / least) ||
      (took >= ENOUGH * latency_ns &&
       grows(p->before_ns - latency_ns, more_ns, bytes / (double)p->before_bytes)))
    return (bytes - least) / more_ns;
  /* The longest one says how much may be sent in some round trips. */
  return p->bytes < MOST ? 0 : bytes / (took > 2 * latency_ns ? more_ns : took);
}

/* A message and its answer have arrived: sends a longer one, or what came of it. */
static coll_status go_on_sending(probe *p) {
  if (p->sent) /* and even that has arrived */
    return COLL_OK;
  const uint64_t now = colli_now_ns();
  const double took = (double)(now - p->since), least = p->least_ns;
  const bool in_time = now + (uint64_t)(STEP * took) <= p->until_ns;
  if (least <= 0 || took <= least) {
    p->least_ns = took;
    p->least_bytes = p->bytes;
  }
  if (in_time && took < SPAN_NS + LATENCIES * p->least_ns && p->bytes < MOST) {
    p->before_ns = took;
    p->before_bytes = p->bytes;
    p->bytes *= least > 0 && took < ALIKE * least ? LEAP : STEP;
    p->bytes = p->bytes < MOST ? p->bytes : MOST;
    return send_next(p);
  }
  return send_rate(p, rate_of(p, took));
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

/* The deadline of the next of some rounds that must have ended at a time. */
static uint64_t until(uint64_t end_ns, int rounds, double most_ns) {
  const uint64_t now = colli_now_ns();
  const double share = end_ns > now ? (double)(end_ns - now) / rounds : 0;
  return now + (uint64_t)(share < most_ns ? share : most_ns);
}

/* One round. */
static coll_status run_round(probe *p) {
  p->bytes = p->before_bytes = LEAST;
  p->least_ns = p->rate = p->rate_in = 0;
  p->sent = false;
  coll_status status = receive_next(p);
  if (status == COLL_OK)
    status = colli_now_ns() < p->until_ns ? send_next(p) : send_rate(p, 0);
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

/* The slower of two rates, of which any may not be known. */
static double slower(double a, double b) {
  return a <= 0 || (b > 0 && b < a) ? b : a;
}

/* Memory for the messages of a rank; false if there is none. */
static bool open_probe(probe *p, coll_comm *comm) {
  *p = (probe){.comm = comm, .out = calloc(2, MOST)};
  p->in = p->out ? p->out + MOST : NULL;
  return p->out;
}

coll_status colli_measure_agree(coll_comm *comm, uint64_t until_ns, bool *late) {
  int32_t over = colli_now_ns() >= until_ns;
  const coll_status status = coll_allreduce(&over, &over, 1, COLL_INT32, COLL_MAX, comm);
  *late = over;
  return status;
}

/* The rounds of one rank of a host. */
static coll_status run_rounds(probe *p, const colli_delegates *delegates, uint64_t until_ns,
                              double *rate, bool *late) {
  double out = 0, in = 0;
  coll_status status = COLL_OK;
  for (int shift = 1; shift <= ROUNDS; shift++) {
    status = colli_measure_agree(p->comm, until_ns, late);
    if (status != COLL_OK || *late)
      break;
    if (delegates->own < 0 || shift >= delegates->count)
      continue;
    p->to = delegates->rank[(delegates->own + shift) % delegates->count];
    p->from = delegates->rank[(delegates->own + delegates->count - shift) % delegates->count];
    p->until_ns = until(until_ns, ROUNDS - shift + 1, LINK_NS);
    status = run_round(p);
    out = p->rate > out ? p->rate : out;
    in = p->rate_in > in ? p->rate_in : in;
    if (status != COLL_OK)
      break;
  }
  *rate = slower(out, in);
  return status;
}

coll_status colli_measure_link(coll_comm *comm, const colli_delegates *delegates, uint64_t until_ns,
                               double *rate, bool *late) {
  probe p;
  if (!open_probe(&p, comm))
    return COLL_ERR_NO_MEMORY;
  const coll_status status = run_rounds(&p, delegates, until_ns, rate, late);
  free(p.out);
  return status;
}

coll_status colli_measure_line(coll_comm *comm, const colli_delegates *delegates, uint64_t until_ns,
                               double *alpha_ns, double *rate) {
  probe p;
  if (!open_probe(&p, comm))
    return COLL_ERR_NO_MEMORY;
  p.until_ns = until(until_ns, 1, LINE_NS);
  p.to = delegates->rank[(delegates->own + 1) % delegates->count];
  p.from = delegates->rank[(delegates->own + delegates->count - 1) % delegates->count];
  coll_status status = run_round(&p);
  free(p.out);
  *alpha_ns = p.least_ns / 2;
  *rate = slower(p.rate, p.rate_in);
  return status;
}
