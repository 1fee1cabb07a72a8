/* probe.c: coll_probe(), and receiving what it took. */
#include <sched.h>

#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/gpu_call.h"
#include "libcoll/run/gpu_stage.h"
#include "libcoll/run/p2p_call.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"

#define PROBES_BEFORE_YIELD 16 /* fruitless ones in a row, where others need the core */

/* Starts an operation of one post. */
static void start_post(coll_comm *comm, const char *name, colli_post post, coll_request *op) {
  op->name = name;
  op->partner = post.peer;
  op->elem_bytes = coll_type_bytes((coll_type)post.type);
  op->moved_at = comm->watch.waited_ns;
  op->tag = p2p_tag_shown(post.count, post.type);
  colli_p2p_op *p2p = colli_p2p_op_of(op);
  post.op = p2p;
  p2p->nposts = 1;
  p2p->post[0] = post;
  colli_p2p_start(&comm->p2p, p2p);
}

/* Out of memory. */
static coll_status refuse_request(coll_comm *comm, const char *name) {
  return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name,
                           "out of memory for a request; complete some first, or see ulimit -v");
}

/* Looks once. */
static colli_p2p_kept *look_once(coll_comm *comm, int peer, int tag) {
  colli_p2p_kept *message = NULL;
  if (!comm->failure.suspended)
    message = colli_p2p_poll_for(&comm->p2p, peer, tag);
  if (!message && !colli_comm_progress(comm) && colli_handover_due(&comm->watch) &&
      comm->watch.idle > PROBES_BEFORE_YIELD)
    sched_yield(); /* a loop of probes must not keep the core from the rank for which it waits */
  return message;
}

/* Waits for a message; *found is NULL if timeout_ms passed first. */
static coll_status wait_for(coll_comm *comm, int peer, int tag, int timeout_ms,
                            colli_p2p_kept **found) {
  coll_request *op = colli_request_get_message(comm);
  if (!op)
    return refuse_request(comm, "probe");
  start_post(comm, "probe", (colli_post){.kind = COLLI_POST_PROBE, .peer = peer, .tag = tag}, op);
  const uint64_t until_ns = colli_wait_deadline_ns(comm, timeout_ms);
  if (!op->done)
    colli_engine_progress(&comm->exec, &comm->p2p);
  colli_comm_wait_begin(comm);
  while (!op->done) {
    if (colli_wait_is_over(comm, until_ns))
      colli_p2p_withdraw(&comm->p2p);
    else
      colli_comm_wait_a_bit(comm, until_ns);
  }
  coll_status status = op->status;
  colli_request_put(op);
  *found = status == COLL_OK ? comm->p2p.found : NULL;
  return status;
}

/* Checks the arguments of a probe. */
static coll_status check_probe(coll_comm *comm, int peer, int tag, const coll_message *message) {
  if (!message)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "probe", "message is NULL");
  colli_call call = {.name = "probe",
                     .coll = COLLI_SENDRECV,
                     .p2p = COLLI_P2P_RECV,
                     .type = COLL_INT8,
                     .source = peer,
                     .recv_tag = tag};
  return colli_p2p_check(comm, &call);
}

/* The whole call, for a thread that is inside. */
static coll_status probe(coll_comm *comm, int peer, int tag, coll_message *message,
                         coll_matched **matched, int timeout_ms) {
  coll_status status = colli_call_check_usable(comm);
  if (status == COLL_OK)
    status = check_probe(comm, peer, tag, message);
  if (status != COLL_OK)
    return status;
  colli_p2p_kept *found = NULL;
  if (timeout_ms != 0)
    status = wait_for(comm, peer, tag, timeout_ms, &found);
  else
    found = look_once(comm, peer, tag);
  if (!found && status == COLL_OK) /* a failure may also have dropped what was found */
    status = comm->failure.status == COLL_OK ? COLL_IN_PROGRESS : comm->failure.status;
  if (status != COLL_OK)
    return status;
  *message = (coll_message){found->peer, found->head.tag, (size_t)found->head.word,
                            (coll_type)found->head.type};
  if (matched) {
    found->comm = comm;
    colli_p2p_take(&comm->p2p, found);
    *matched = found;
  }
  return COLL_OK;
}

coll_status coll_probe(coll_comm *comm, int peer, int tag, coll_message *message,
                       coll_matched **matched, int timeout_ms) {
  if (matched)
    *matched = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = probe(comm, peer, tag, message, matched, timeout_ms);
  colli_call_leave(comm);
  return status;
}

/* Fills in the request of coll_mrecv() on host memory, and starts it. */
static coll_status start_taken(coll_comm *comm, const colli_call *call, colli_plan *none,
                               coll_request *op) {
  (void)none;
  if (call->lent) {
    op->lent = call->lent;
    op->registered = COLLI_HAS_LENT;
  }
  start_post(comm, call->name,
             (colli_post){.kind = COLLI_POST_RECV,
                          .peer = call->source,
                          .tag = call->taken->head.tag,
                          .type = call->type,
                          .count = call->recv_count,
                          .buf = call->recvbuf,
                          .from = call->taken,
                          .lent = call->lent ? &call->lent[COLLI_LENT_RECEIVED] : NULL},
             op);
  return COLL_OK;
}

/* Starts to receive a taken message. */
static coll_status start_mrecv(coll_comm *comm, void *recvbuf, size_t count, coll_type type,
                               coll_matched **matched, coll_request **op) {
  colli_p2p_kept *from = *matched;
  colli_call call = {.name = "mrecv",
                     .coll = COLLI_SENDRECV,
                     .p2p = COLLI_P2P_RECV,
                     .type = (int)type,
                     .recvbuf = recvbuf,
                     .recv_count = count,
                     .source = from->peer};
  coll_status status = colli_p2p_check(comm, &call);
  if (status != COLL_OK)
    return status;
  status = colli_call_check_usable(comm);
  if (status != COLL_OK) { /* its sender has given it up */
    colli_p2p_drop_taken(&comm->p2p, from);
    *matched = NULL;
    return status;
  }
  *op = colli_request_get_message(comm);
  if (!*op)
    return refuse_request(comm, "mrecv");
  call.taken = from;
  colli_gpu_places places;
  if (comm->gpu && colli_gpu_find(comm, &call, &places))
    status = colli_gpu_call_start(comm, &call, &places, NULL, *op, start_taken);
  else
    status = start_taken(comm, &call, NULL, *op);
  if (status != COLL_OK) {
    colli_request_put(*op);
    return status;
  }
  *matched = NULL;
  colli_engine_progress(&comm->exec, &comm->p2p);
  return COLL_OK;
}

coll_status coll_mrecv(void *recvbuf, size_t count, coll_type type, coll_matched **matched) {
  if (!matched || !*matched)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*matched)->comm;
  coll_request *op;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = start_mrecv(comm, recvbuf, count, type, matched, &op);
  if (status == COLL_OK) {
    status = colli_call_wait(comm, op);
    colli_request_put(op);
  }
  colli_call_leave(comm);
  return status;
}

coll_status coll_imrecv(void *recvbuf, size_t count, coll_type type, coll_matched **matched,
                        coll_request **request) {
  if (request)
    *request = NULL;
  if (!matched || !*matched)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*matched)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (request)
    status = start_mrecv(comm, recvbuf, count, type, matched, request);
  else
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "mrecv", "request is NULL");
  colli_call_leave(comm);
  return status;
}
