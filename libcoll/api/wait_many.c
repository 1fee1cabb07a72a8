/*
 * wait_many.c: waits for some of many requests. Those of one communicator are waited for inside it.
 * For several communicators, each is entered in turn, and the wait itself takes place in one whose
 * requests are not complete: a wait moves all other communicators, too.
 */
#include <stdlib.h>

#include "libcoll/progress/enter.h"
#include "libcoll/progress/poll.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/request.h"

#define COMMS_ON_STACK 16

/* A list of requests that somebody waits for. */
typedef struct waiting {
  coll_request **requests;
  int count;
  bool all;          /* wait for all; otherwise for one */
  int from;          /* all before are complete */
  int open;          /* how many are in flight, */
  int ended;         /* and how many are complete but not reported, as last counted */
  coll_comm **comms; /* the different ones, */
  int ncomms;        /* so many */
  coll_comm *of_stack[COMMS_ON_STACK];
} waiting;

/* Whether a request is complete and worth returning for: a persistent one must have been started.
 */
static bool is_news(const waiting *w, const coll_request *request) {
  return request->done && (w->all || !request->kept || request->active);
}

/* What becomes of complete requests. */
typedef struct report {
  int most;              /* report so many at most */
  int count;             /* so many were */
  int *indices;          /* NULL, or which; */
  coll_status *statuses; /* NULL, or how they ended: in the order of indices, if there are any, or
                            else in that of requests */
  int first_failed;      /* the lowest index of those that failed, or -1, */
  coll_status failure;   /* and its status */
} report;

/* Takes one that is complete. */
static coll_status take_request(coll_request **request) {
  if (*request != &(*request)->comm->calls.complete)
    return colli_request_complete(request);
  *request = NULL;
  return COLL_OK;
}

/* Reports one that is complete. */
static void report_request(report *r, coll_request **requests, int i) {
  const coll_status status = take_request(&requests[i]);
  if (r->indices)
    r->indices[r->count] = i;
  if (r->statuses)
    r->statuses[r->indices ? r->count : i] = status;
  r->count++;
  if (status != COLL_OK && (r->first_failed < 0 || i < r->first_failed)) {
    r->first_failed = i;
    r->failure = status;
  }
}

/* Reports those of a communicator that are complete; a thread is inside. */
static void report_of(const waiting *w, report *r, const coll_comm *comm) {
  for (int i = 0; i < w->count && r->count < r->most; i++)
    if (w->requests[i] && w->requests[i]->comm == comm && is_news(w, w->requests[i]))
      report_request(r, w->requests, i);
}

/* Reports those that are complete, communicator by communicator. */
static coll_status report_each(const waiting *w, report *r) {
  for (int c = 0; c < w->ncomms && r->count < r->most; c++) {
    const coll_status status = colli_call_enter(w->comms[c]);
    if (status != COLL_OK)
      return status;
    report_of(w, r, w->comms[c]);
    colli_call_leave(w->comms[c]);
  }
  return COLL_OK;
}

/* Counts the requests of a communicator, which a thread is in. */
static void count_requests(waiting *w, const coll_comm *comm) {
  for (int i = w->from; i < w->count; i++) {
    const coll_request *request = w->requests[i];
    if (!request || request->comm != comm)
      continue;
    w->open += !request->done;
    w->ended += is_news(w, request);
    if (w->all && !request->done)
      return; /* one is enough to go on waiting */
  }
}

/* Whether there is nothing more to wait for. */
static bool is_satisfied(const waiting *w) {
  return w->open == 0 || (!w->all && w->ended > 0);
}

/* Counts again, in the only communicator. */
static bool look_again(waiting *w) {
  coll_request **requests = w->requests;
  while (w->all && w->from < w->count && (!requests[w->from] || requests[w->from]->done))
    w->from++;
  w->open = w->ended = 0;
  count_requests(w, w->comms[0]);
  return is_satisfied(w);
}

/* Waits inside the only communicator, and reports. */
static coll_status wait_in_one(waiting *w, report *r, int timeout_ms) {
  coll_comm *comm = w->comms[0];
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  for (int i = 0; w->all && timeout_ms < 0 && i < w->count; i++)
    if (w->requests[i])
      colli_p2p_deliver(w->requests[i]);
  const uint64_t until_ns = colli_wait_deadline_ns(comm, timeout_ms);
  colli_comm_wait_begin(comm);
  while (!look_again(w)) {
    /* A broken connection would break again and again; the watchdog ends that. */
    if (!comm->failure.suspended && colli_engine_progress(&comm->exec, &comm->p2p) != 0)
      continue;
    if (colli_wait_is_over(comm, until_ns)) {
      status = COLL_IN_PROGRESS;
      break;
    }
    colli_comm_wait_a_bit(comm, until_ns);
  }
  if (status == COLL_OK)
    report_of(w, r, comm);
  colli_call_leave(comm);
  return status;
}

/* Polls each communicator, and counts; the wait itself looks after deadlines in `waits_in`, or
 * NULL. *open_in: one with requests in flight, or NULL. */
static coll_status poll_each(waiting *w, const coll_comm *waits_in, coll_comm **open_in,
                             bool deliver) {
  *open_in = NULL;
  w->open = w->ended = 0;
  for (int c = 0; c < w->ncomms; c++) {
    coll_comm *comm = w->comms[c];
    const coll_status status = colli_call_enter(comm);
    if (status != COLL_OK)
      return status;
    for (int i = 0; deliver && i < w->count; i++)
      if (w->requests[i] && w->requests[i]->comm == comm)
        colli_p2p_deliver(w->requests[i]);
    if (comm == waits_in)
      colli_comm_poll(comm);
    else
      colli_comm_progress(comm);
    const int before = w->open;
    count_requests(w, comm);
    if (w->open > before && !*open_in)
      *open_in = comm;
    colli_call_leave(comm);
  }
  return COLL_OK;
}

/* Whether any of the communicators was woken; takes all these wakes. */
static bool was_any_woken(const waiting *w) {
  bool woken = false;
  for (int c = 0; c < w->ncomms; c++)
    woken |= colli_wait_was_woken(w->comms[c]);
  return woken;
}

/* Waits for requests of several communicators. */
static coll_status wait_in_several(waiting *w, int timeout_ms) {
  const uint64_t until_ns = colli_wait_deadline_ns(w->comms[0], timeout_ms);
  const bool deliver = w->all && timeout_ms < 0;
  coll_comm *begun = NULL;
  for (bool first = true;; first = false) {
    coll_comm *comm;
    coll_status status = poll_each(w, begun, &comm, deliver && first);
    if (status != COLL_OK || is_satisfied(w))
      return status;
    if (colli_wait_has_passed(comm, until_ns) || was_any_woken(w))
      return COLL_IN_PROGRESS;
    status = colli_call_enter(comm);
    if (status != COLL_OK)
      return status;
    if (begun != comm)
      colli_comm_wait_begin(comm);
    begun = comm;
    colli_comm_wait_a_bit(comm, until_ns);
    colli_call_leave(comm);
  }
}

/* Adds the communicator of a request to the list of different ones; false if out of memory. */
static bool add_comm(waiting *w, coll_comm *comm) {
  for (int c = w->ncomms - 1; c >= 0; c--)
    if (w->comms[c] == comm)
      return true;
  /* Never for fewer requests, which a compiler that knows their number must be told. */
  if (w->count > COMMS_ON_STACK && w->ncomms == COMMS_ON_STACK && w->comms == w->of_stack) {
    w->comms = malloc((size_t)w->count * sizeof(coll_comm *));
    if (!w->comms) {
      w->comms = w->of_stack;
      return false;
    }
    for (int c = 0; c < w->ncomms; c++)
      w->comms[c] = w->of_stack[c];
  }
  w->comms[w->ncomms++] = comm;
  return true;
}

/* Waits until enough are complete, and reports them. */
static coll_status wait_for(waiting *w, report *r, int timeout_ms) {
  w->comms = w->of_stack;
  for (int i = 0; i < w->count; i++)
    if (w->requests[i] && !add_comm(w, w->requests[i]->comm))
      return COLL_ERR_NO_MEMORY;
  if (w->ncomms == 0)
    return COLL_OK;
  if (w->ncomms == 1)
    return wait_in_one(w, r, timeout_ms);
  const coll_status status = wait_in_several(w, timeout_ms);
  return status == COLL_OK ? report_each(w, r) : status;
}

/* The whole call: returns the status of the operation with the lowest index that failed. */
static coll_status wait_and_report(waiting *w, report *r, int timeout_ms) {
  r->first_failed = -1;
  const coll_status status = wait_for(w, r, timeout_ms);
  if (w->comms != w->of_stack)
    free(w->comms);
  return status == COLL_OK && r->first_failed >= 0 ? r->failure : status;
}

coll_status coll_wait_any(coll_request **requests, int count, int *index, int timeout_ms) {
  if (!index || count < 0 || (count > 0 && !requests))
    return COLL_ERR_INVALID_ARGUMENT;
  *index = -1;
  waiting w = {.requests = requests, .count = count};
  report r = {.most = 1, .indices = index};
  return wait_and_report(&w, &r, timeout_ms);
}

coll_status coll_wait_some(coll_request **requests, int count, int *indices, coll_status *statuses,
                           int *completed, int timeout_ms) {
  if (!completed || count < 0 || (count > 0 && (!requests || !indices)))
    return COLL_ERR_INVALID_ARGUMENT;
  waiting w = {.requests = requests, .count = count};
  report r = {.most = count, .indices = indices, .statuses = statuses};
  coll_status status = wait_and_report(&w, &r, timeout_ms);
  *completed = r.count;
  return status;
}

coll_status coll_wait_all(coll_request **requests, int count, coll_status *statuses,
                          int timeout_ms) {
  if (count < 0 || (count > 0 && !requests))
    return COLL_ERR_INVALID_ARGUMENT;
  for (int i = 0; statuses && i < count; i++)
    statuses[i] = requests[i] ? COLL_IN_PROGRESS : COLL_OK;
  waiting w = {.requests = requests, .count = count, .all = true};
  report r = {.most = count, .statuses = statuses};
  return wait_and_report(&w, &r, timeout_ms);
}
