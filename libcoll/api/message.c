/*
 * message.c: sends and receives. A short message mostly ends in the call that starts it: there is
 * room to send it, or it has arrived. Then it needs no request from the pool: nonblocking calls
 * return one that is complete and the same for all. A short receive whose message has not arrived
 * is posted here. Everything else takes the general way (run.c).
 */
#include "libcoll/api/message.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/comm/pool.h"
#include "libcoll/exec/event.h"
#include "libcoll/p2p/p2p_at_once.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/handover.h"
#include "libcoll/progress/poll.h"
#include "libcoll/run/p2p_call.h"
#include "libcoll/run/run.h"

#define RECV_POLLS     64u /* of a blocking receive, 1 to 2 us, before it becomes an operation */
#define CALLS_PER_POLL 8u  /* while operations are in flight */

/* Whether a communicator has nothing to tell a caller, and nobody watches its operations. */
static inline bool is_plain(const coll_comm *comm) {
  const unsigned tells =
      (unsigned)comm->failure.status | comm->failure.suspended |
      (unsigned)atomic_load_explicit(&comm->failure.aborts, memory_order_relaxed);
  return __builtin_expect(tells == 0 && !comm->exec.observers, 1);
}

/* Whether `count` elements of a predefined type are an eager message in valid memory of the host.
 */
static inline bool is_short(const coll_comm *comm, const void *buf, size_t count, int type) {
  if (__builtin_expect(comm->gpu != NULL, 0) &&
      (colli_streams_unstarted(comm) || colli_gpu_device_of(comm->gpu, buf) != COLLI_GPU_HOST))
    return false;
  return (unsigned)type < COLL_TYPE_COUNT && count <= comm->exec.slot_bytes && buf &&
         count * colli_type_sizes[type] <= comm->exec.slot_bytes;
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

/* A nonblocking call ended at once. */
static inline coll_status end_at_once(coll_comm *comm, coll_request **request) {
  if (__builtin_expect(comm->entry.locked, 0))
    colli_bell_ring(comm);
  *request = &comm->calls.complete;
  return COLL_OK;
}

/* A nonblocking call was given no place for its request. */
__attribute__((noinline, cold)) static coll_status refuse_no_request(coll_comm *comm,
                                                                     const char *name) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name, "request is NULL");
  colli_call_leave(comm);
  return status;
}

/* ---- send ------------------------------------------------------------------------------------ */

/* Sends if that can be done at once. */
__attribute__((always_inline)) static inline bool
send_at_once(coll_comm *comm, const void *buf, size_t count, int type, int peer, int tag) {
  if (!is_plain(comm) || (unsigned)peer >= (unsigned)comm->nranks || tag < 0 ||
      !is_short(comm, buf, count, type))
    return false;
  coll_tag wire = p2p_tag_make(P2P_EAGER, tag, type, count, 0);
  if (!colli_p2p_send_at_once(&comm->p2p, peer, &wire, buf, count * colli_type_sizes[type]))
    return false;
  const coll_tag shown = p2p_tag_shown(count, type);
  colli_event_message_ran(&comm->exec, &shown, peer, "send");
  return true;
}

/* The general way. */
__attribute__((noinline)) static coll_status run_send(const void *buf, size_t count, coll_type type,
                                                      int peer, int tag, coll_comm *comm) {
  const colli_call call = colli_send_call(buf, count, type, peer, tag);
  return colli_call_run(comm, &call);
}

__attribute__((noinline)) static coll_status launch_send(const void *buf, size_t count,
                                                         coll_type type, int peer, int tag,
                                                         coll_comm *comm, coll_request **request) {
  const colli_call call = colli_send_call(buf, count, type, peer, tag);
  return colli_call_launch(comm, &call, request);
}

coll_status colli_send_run(const void *buf, size_t count, coll_type type, int peer, int tag,
                           coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  if (comm->calls.group.depth == 0 && send_at_once(comm, buf, count, (int)type, peer, tag)) {
    if (__builtin_expect(comm->p2p.outgoing > 0, 0))
      colli_p2p_flush(comm, peer);
    poll_rarely(comm);
  } else {
    status = run_send(buf, count, type, peer, tag, comm);
  }
  colli_call_leave(comm);
  return status;
}

coll_status colli_send_launch(const void *buf, size_t count, coll_type type, int peer, int tag,
                              coll_comm *comm, coll_request **request) {
  if (__builtin_expect(!request, 0))
    return refuse_no_request(comm, "send");
  *request = NULL;
  coll_status status = colli_call_enter(comm);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  status = send_at_once(comm, buf, count, (int)type, peer, tag)
               ? end_at_once(comm, request)
               : launch_send(buf, count, type, peer, tag, comm, request);
  poll_rarely(comm);
  colli_call_leave(comm);
  return status;
}

/* ---- receive --------------------------------------------------------------------------------- */

/* What became of an attempt to receive at once. */
typedef enum attempt {
  TAKEN,
  NOT_YET, /* the arguments are right, and the message is an eager one */
  LEFT     /* to the general way */
} attempt;

/* Receives if that can be done at once; looks up to `polls` times. */
__attribute__((always_inline)) static inline attempt
recv_at_once(coll_comm *comm, const colli_p2p_wanted *wanted, unsigned polls) {
  if (!is_plain(comm) || (unsigned)wanted->source >= (unsigned)comm->nranks ||
      wanted->tag < COLL_ANY_TAG || !is_short(comm, wanted->buf, wanted->count, wanted->type))
    return LEFT;
  while (!colli_p2p_recv_at_once(&comm->p2p, wanted)) {
    if (--polls == 0)
      return NOT_YET;
    colli_cpu_relax();
  }
  const coll_tag shown = p2p_tag_shown(wanted->count, wanted->type);
  colli_event_message_ran(&comm->exec, &shown, wanted->source, "recv");
  return TAKEN;
}

/* Posts a receive that NOT_YET was said of. NULL: the general way says why not. */
static inline coll_request *post_recv(coll_comm *comm, const colli_p2p_wanted *wanted) {
  if (!is_plain(comm) || !comm->p2p.peers[wanted->source]) /* it failed just now, or is new */
    return NULL;
  coll_request *op = colli_request_get_message(comm);
  if (__builtin_expect(!op, 0))
    return NULL;
  op->moved_at = comm->watch.waited_ns;
  colli_p2p_prepare_recv(wanted, colli_type_sizes[wanted->type], op);
  colli_p2p_start_recv(&comm->p2p, colli_p2p_op_of(op));
  return op;
}

/* Whether a blocking receive may look for its message for a moment, with nothing else to do. */
static inline bool may_spin(const coll_comm *comm) {
  return !is_busy(comm) && !colli_handover_due(&comm->watch) && !comm->world.pause &&
         (!comm->entry.locked || comm->family->inside == 1);
}

/* The general way. */
__attribute__((noinline)) static coll_status run_recv(coll_comm *comm,
                                                      const colli_p2p_wanted *wanted) {
  const colli_call call = colli_recv_call(wanted->buf, wanted->count, (coll_type)wanted->type,
                                          wanted->source, wanted->tag, wanted->message);
  return colli_call_run(comm, &call);
}

__attribute__((noinline)) static coll_status
launch_recv(coll_comm *comm, const colli_p2p_wanted *wanted, coll_request **request) {
  const colli_call call = colli_recv_call(wanted->buf, wanted->count, (coll_type)wanted->type,
                                          wanted->source, wanted->tag, wanted->message);
  return colli_call_launch(comm, &call, request);
}

/* Waits for a receive that is posted now. */
static coll_status wait_for_posted(coll_comm *comm, const colli_p2p_wanted *wanted) {
  coll_request *op = post_recv(comm, wanted);
  if (__builtin_expect(!op, 0))
    return run_recv(comm, wanted);
  const coll_status status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

coll_status colli_recv_run(void *buf, size_t count, coll_type type, int peer, int tag,
                           coll_message *message, coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  const colli_p2p_wanted wanted = colli_p2p_wanted_by(buf, count, (int)type, peer, tag, message);
  attempt result = LEFT;
  if (comm->calls.group.depth == 0)
    result = recv_at_once(comm, &wanted, may_spin(comm) ? RECV_POLLS : 1);
  if (result == TAKEN)
    poll_rarely(comm);
  else
    status = result == NOT_YET ? wait_for_posted(comm, &wanted) : run_recv(comm, &wanted);
  colli_call_leave(comm);
  return status;
}

/* Starts a receive. A short one that is posted was looked for just now, and needs no poll. */
static inline coll_status start_recv(coll_comm *comm, const colli_p2p_wanted *wanted,
                                     coll_request **request) {
  const attempt result = recv_at_once(comm, wanted, 1);
  if (result == TAKEN)
    return end_at_once(comm, request);
  if (result == NOT_YET)
    *request = post_recv(comm, wanted);
  return *request ? COLL_OK : launch_recv(comm, wanted, request);
}

coll_status colli_recv_launch(void *buf, size_t count, coll_type type, int peer, int tag,
                              coll_message *message, coll_comm *comm, coll_request **request) {
  if (__builtin_expect(!request, 0))
    return refuse_no_request(comm, "recv");
  *request = NULL;
  coll_status status = colli_call_enter(comm);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  const colli_p2p_wanted wanted = colli_p2p_wanted_by(buf, count, (int)type, peer, tag, message);
  status = start_recv(comm, &wanted, request);
  poll_rarely(comm);
  colli_call_leave(comm);
  return status;
}
