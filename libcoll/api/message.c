/*
 * message.c: sends and receives. A short message mostly ends in the call that starts it: there is
 * room to send it, or it has arrived. Then it needs no request from the pool: nonblocking calls
 * return one that is complete and the same for all. Everything else takes the general way (run.c).
 */
#include "libcoll/api/message.h"

#include "libcoll/api/p2p_call.h"
#include "libcoll/api/run.h"
#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/exec/event.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/progress/poll.h"

#define RECV_POLLS     64u /* of a blocking receive, 1 to 2 us, before it becomes an operation */
#define CALLS_PER_POLL 8u  /* while operations are in flight */

/* Whether a communicator has nothing to tell a caller, and nobody watches its operations. */
static inline bool is_plain(const coll_comm *comm) {
  return comm->failure.status == COLL_OK && !comm->failure.suspended && !comm->exec.observers &&
         !atomic_load_explicit(&comm->failure.aborts, memory_order_relaxed);
}

/* Whether `count` elements of a type are an eager message in valid memory; their size if so. */
static inline bool is_short(const coll_comm *comm, const void *buf, size_t count, int type,
                            size_t *elem_bytes) {
  if ((unsigned)type >= COLL_TYPE_COUNT || count > comm->exec.slot_bytes || !buf)
    return false;
  *elem_bytes = colli_type_bytes(type);
  return count * *elem_bytes <= comm->exec.slot_bytes;
}

/* Sends if that can be done at once. */
static bool send_at_once(coll_comm *comm, const colli_call *call) {
  static const char name[COLLI_FLIGHT_NAME] = "send";
  size_t elem_bytes;
  if (!is_plain(comm) || (unsigned)call->dest >= (unsigned)comm->nranks || call->send_tag < 0 ||
      !is_short(comm, call->sendbuf, call->count, call->type, &elem_bytes))
    return false;
  coll_tag tag = p2p_tag_make(P2P_EAGER, call->send_tag, call->type, call->count, 0);
  if (!colli_p2p_send_at_once(&comm->p2p, call->dest, &tag, call->sendbuf,
                              call->count * elem_bytes))
    return false;
  tag = p2p_tag_shown(call->count, call->type);
  colli_event_message_ran(&comm->exec, &tag, call->dest, name);
  return true;
}

/* What became of an attempt to receive at once. */
typedef enum attempt {
  TAKEN,
  NOT_YET, /* the arguments are right, and the message is an eager one */
  LEFT     /* to the general way */
} attempt;

/* Receives if that can be done at once; looks up to `polls` times. */
static attempt recv_at_once(coll_comm *comm, const colli_call *call, unsigned polls) {
  static const char name[COLLI_FLIGHT_NAME] = "recv";
  colli_p2p_wanted wanted = {.buf = call->recvbuf,
                             .count = call->recv_count,
                             .tag = call->recv_tag,
                             .type = call->type,
                             .message = call->message};
  if (!is_plain(comm) || (unsigned)call->source >= (unsigned)comm->nranks ||
      call->recv_tag < COLL_ANY_TAG ||
      !is_short(comm, call->recvbuf, call->recv_count, call->type, &wanted.elem_bytes))
    return LEFT;
  while (!colli_p2p_recv_at_once(&comm->p2p, call->source, &wanted)) {
    if (--polls == 0)
      return NOT_YET;
    colli_cpu_relax();
  }
  coll_tag tag = p2p_tag_shown(call->recv_count, call->type);
  colli_event_message_ran(&comm->exec, &tag, call->source, name);
  return TAKEN;
}

/* Whether operations are in flight, which other calls should advance. */
static inline bool is_busy(const coll_comm *comm) {
  return comm->p2p.busy > 0 || comm->exec.oldest;
}

/* Advances operations in flight, but not in each of many short calls. */
static inline void poll_rarely(coll_comm *comm) {
  if (is_busy(comm) && ++comm->calls.unpolled % CALLS_PER_POLL == 0)
    colli_comm_poll(comm);
}

/* Whether a blocking receive may look for its message for a moment, with nothing else to do. */
static inline bool may_spin(const coll_comm *comm) {
  return !is_busy(comm) && !comm->watch.crowded && !comm->world.pause &&
         (!comm->entry.locked || comm->family->inside == 1);
}

coll_status colli_message_run(coll_comm *comm, const colli_call *call) {
  const bool spins = may_spin(comm);
  bool over =
      comm->calls.group.depth == 0 &&
      (call->p2p == COLLI_P2P_SEND ? send_at_once(comm, call)
                                   : recv_at_once(comm, call, spins ? RECV_POLLS : 1) == TAKEN);
  if (!over)
    return colli_call_run(comm, call);
  if (__builtin_expect(comm->p2p.outgoing > 0, 0) && call->p2p == COLLI_P2P_SEND)
    colli_p2p_flush(comm, call->dest);
  poll_rarely(comm);
  return COLL_OK;
}

/* Starts a send. */
static coll_status launch_send(coll_comm *comm, const colli_call *call, coll_request **request) {
  if (!send_at_once(comm, call))
    return colli_call_launch(comm, call, request);
  *request = &comm->calls.complete;
  return COLL_OK;
}

/* Starts a receive. A short one that is posted was looked for just now, and needs no poll. */
static coll_status launch_recv(coll_comm *comm, const colli_call *call, coll_request **request) {
  switch (recv_at_once(comm, call, 1)) {
  case TAKEN:
    *request = &comm->calls.complete;
    return COLL_OK;
  case NOT_YET:
    return colli_call_start(comm, call, request);
  default:
    return colli_call_launch(comm, call, request);
  }
}

coll_status colli_message_launch(coll_comm *comm, const colli_call *call, coll_request **request) {
  coll_status status = call->p2p == COLLI_P2P_SEND ? launch_send(comm, call, request)
                                                   : launch_recv(comm, call, request);
  if (__builtin_expect(comm->entry.locked, 0) && *request == &comm->calls.complete)
    colli_bell_ring(comm);
  poll_rarely(comm);
  return status;
}
