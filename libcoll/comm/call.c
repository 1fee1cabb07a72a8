/* call.c: the collectives, sends and receives of coll.h: checks arguments and starts operations. */
#include <stdlib.h>

#include "libcoll/comm/comm.h"

/* One call's arguments. */
typedef struct call {
  colli_coll coll;
  const char *name;
  const void *sendbuf;
  void *recvbuf;
  size_t count; /* as the caller gave it */
  int type;
  int op;
  int root; /* or peer */
  bool sending;
} call;

/* Checks a type, a count and that `copies` times as many bytes exist. */
static coll_status check_vector(coll_comm *comm, const call *c, size_t copies) {
  size_t bytes = coll_type_bytes((coll_type)c->type);
  if (bytes == 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name,
                             "%d is no coll_type; see coll.h for the list", c->type);
  size_t total;
  if (__builtin_mul_overflow(c->count, bytes, &total) ||
      __builtin_mul_overflow(total, copies, &total) || total > PTRDIFF_MAX)
    return colli_comm_refuse(
        comm, COLL_ERR_INVALID_ARGUMENT, c->name,
        "count %zu of %s is more than memory can hold; is it a negative number?", c->count,
        colli_type_name(c->type));
  return COLL_OK;
}

/* Whether two buffers overlap without being equal. */
static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
  return a != b && a < b + b_bytes && b < a + a_bytes;
}

/* Checks the buffers of a call; `mine` is the part of recvbuf that sendbuf may be. */
static coll_status check_buffers(coll_comm *comm, const call *c, bool reads, bool writes,
                                 size_t recv_count, const void *mine) {
  if (c->count == 0)
    return COLL_OK;
  if (reads && !c->sendbuf)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name, "sendbuf is NULL");
  if (writes && !c->recvbuf)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name, "recvbuf is NULL");
  size_t bytes = coll_type_bytes((coll_type)c->type);
  if (reads && writes && c->sendbuf != mine &&
      (c->sendbuf == c->recvbuf ||
       overlap(c->sendbuf, c->count * bytes, c->recvbuf, recv_count * bytes)))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name,
                             "sendbuf and recvbuf overlap; use the same buffer or disjoint ones");
  return COLL_OK;
}

/* Checks everything that one rank can see of a call. */
static coll_status check(coll_comm *comm, const call *c) {
  coll_status status = COLL_OK;
  switch (c->coll) {
  case COLLI_BARRIER:
    return COLL_OK;
  case COLLI_ALLREDUCE:
    if (c->op < 0 || c->op >= COLL_OP_COUNT)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name,
                               "%d is no coll_op; see coll.h for the list", c->op);
    status = check_vector(comm, c, 1);
    return status ? status : check_buffers(comm, c, true, true, c->count, c->recvbuf);
  case COLLI_BROADCAST:
    if (c->root < 0 || c->root >= comm->nranks)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name,
                               "root %d is not in 0 .. %d", c->root, comm->nranks - 1);
    status = check_vector(comm, c, 1);
    return status ? status
                  : check_buffers(comm, c, c->root == comm->rank, true, c->count, c->recvbuf);
  case COLLI_ALLGATHER:
    status = check_vector(comm, c, (size_t)comm->nranks);
    if (status)
      return status;
    return check_buffers(comm, c, true, true, c->count * (size_t)comm->nranks,
                         c->recvbuf ? (char *)c->recvbuf + c->count * (size_t)comm->rank *
                                                               coll_type_bytes((coll_type)c->type)
                                    : NULL);
  default:
    if (c->root < 0 || c->root >= comm->nranks || c->root == comm->rank)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name,
                               "peer %d is not another rank in 0 .. %d", c->root, comm->nranks - 1);
    status = check_vector(comm, c, 1);
    return status ? status : check_buffers(comm, c, c->sending, !c->sending, c->count, NULL);
  }
}

/* Gives a request more scratch memory; it keeps it for later operations. */
static bool grow_scratch(coll_request *op, size_t bytes) {
  free(op->scratch);
  op->scratch_bytes = 0;
  op->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (op->scratch)
    op->scratch_bytes = bytes;
  return op->scratch != NULL;
}

/* Fills in a collective's request from its plan. */
static coll_status prepare(coll_comm *comm, const call *c, coll_request *op, bool *connected) {
  bool gather = c->coll == COLLI_ALLGATHER;
  size_t elem_bytes = c->coll == COLLI_BARRIER ? 1 : coll_type_bytes((coll_type)c->type);
  int root = c->coll == COLLI_BROADCAST ? c->root : 0;
  colli_plan *plan =
      colli_plans_get(&comm->plans, c->coll, c->count, elem_bytes, root, &comm->error);
  if (!plan)
    return comm->error.status;
  size_t scratch = plan->partition.piece * elem_bytes * (size_t)plan->sched->nscratch;
  if (__builtin_expect(scratch > op->scratch_bytes, 0) && !grow_scratch(op, scratch))
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, c->name,
                             "no memory for %zu bytes of scratch", scratch);
  *connected = plan->connected;
  plan->connected = true;
  op->sequence = ++comm->sequence;
  op->elem_bytes = elem_bytes;
  op->in = c->sendbuf ? c->sendbuf : c->recvbuf;
  op->in_first = gather ? c->count * (size_t)comm->rank : 0;
  op->out = c->recvbuf;
  op->sched = plan->sched;
  op->partition = plan->partition;
  op->nranks = comm->nranks;
  op->tag = colli_tag_make(c->coll, c->count, c->type, c->op, root, op->sequence,
                           plan->sched->algo->id, plan->partition.passes);
  comm->history[op->sequence % COLLI_HISTORY] = op->tag;
  if (c->coll == COLLI_ALLREDUCE) {
    op->reduce = comm->exec.kernels->reduce[c->type][c->op];
    op->average = c->op == COLL_AVG ? comm->exec.kernels->average[c->type] : NULL;
  } else {
    op->average = NULL;
  }
  return COLL_OK;
}

/* Fills in a send's or receive's request. */
static void prepare_p2p(const call *c, coll_request *op) {
  op->sequence = 0;
  op->elem_bytes = coll_type_bytes((coll_type)c->type);
  op->in = c->sendbuf;
  op->out = c->recvbuf;
  op->peer = c->root;
  op->sending = c->sending;
  op->sched = NULL;
  op->partition = (colli_partition){.count = c->count, .passes = 1};
  op->tag = colli_tag_make(COLLI_SENDRECV, c->count, c->type, 0, 0, 0, 0, 0);
}

/* Checks a call and starts it: *started is the request. */
static coll_status start(coll_comm *comm, const call *c, coll_request **started) {
  *started = NULL;
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  if (__builtin_expect(atomic_load_explicit(&comm->abort_flag, memory_order_relaxed), 0))
    colli_comm_listen(comm);
  if (__builtin_expect(comm->failed != COLL_OK, 0))
    return comm->failed;
  coll_status status = check(comm, c);
  if (__builtin_expect(status != COLL_OK, 0))
    return status;
  coll_request *op = colli_request_get(comm);
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, c->name,
                             "%d requests are in flight already; complete some first",
                             COLL_MAX_REQUESTS);
  bool connected = true;
  op->coll = c->coll;
  op->moved_at = comm->watch.waited_ns;
  if (c->coll == COLLI_SENDRECV)
    prepare_p2p(c, op);
  else if ((status = prepare(comm, c, op, &connected)) != COLL_OK) {
    colli_request_put(op);
    return status;
  }
  colli_exec_start(&comm->exec, op);
  if (__builtin_expect(!connected, 0))
    colli_exec_connect(&comm->exec, op);
  *started = op;
  return COLL_OK;
}

/* A blocking call: starts it and waits for its end. */
static coll_status run(coll_comm *comm, const call *c) {
  coll_request *op;
  coll_status status = start(comm, c, &op);
  if (status != COLL_OK)
    return status;
  if (!op->done)
    colli_exec_progress(&comm->exec);
  if (!op->done) {
    colli_comm_wait_begin(comm);
    while (!op->done)
      colli_comm_wait_a_bit(comm, 0);
  }
  status = op->status;
  colli_request_put(op);
  return status;
}

/* A nonblocking call: starts it and lets it move once. */
static coll_status launch(coll_comm *comm, const call *c, coll_request **request) {
  if (!request) {
    if (comm)
      colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, c->name, "request is NULL");
    return COLL_ERR_INVALID_ARGUMENT;
  }
  coll_status status = start(comm, c, request);
  if (status == COLL_OK)
    colli_exec_progress(&comm->exec);
  return status;
}

#define ALLREDUCE_CALL                                                                             \
  {                                                                                                \
    .coll = COLLI_ALLREDUCE, .name = "allreduce", .sendbuf = sendbuf, .recvbuf = recvbuf,          \
    .count = count, .type = (int)type, .op = (int)op                                               \
  }
#define BROADCAST_CALL                                                                             \
  {                                                                                                \
    .coll = COLLI_BROADCAST, .name = "broadcast", .sendbuf = sendbuf, .recvbuf = recvbuf,          \
    .count = count, .type = (int)type, .root = root                                                \
  }
#define ALLGATHER_CALL                                                                             \
  {                                                                                                \
    .coll = COLLI_ALLGATHER, .name = "allgather", .sendbuf = sendbuf, .recvbuf = recvbuf,          \
    .count = count, .type = (int)type                                                              \
  }
#define SEND_CALL                                                                                  \
  {                                                                                                \
    .coll = COLLI_SENDRECV, .name = "send", .sendbuf = sendbuf, .count = count, .type = (int)type, \
    .root = peer, .sending = true                                                                  \
  }
#define RECV_CALL                                                                                  \
  {                                                                                                \
    .coll = COLLI_SENDRECV, .name = "recv", .recvbuf = recvbuf, .count = count, .type = (int)type, \
    .root = peer                                                                                   \
  }

coll_status coll_allreduce(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                           coll_op op, coll_comm *comm) {
  return run(comm, &(call)ALLREDUCE_CALL);
}

coll_status coll_broadcast(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                           int root, coll_comm *comm) {
  return run(comm, &(call)BROADCAST_CALL);
}

coll_status coll_allgather(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                           coll_comm *comm) {
  return run(comm, &(call)ALLGATHER_CALL);
}

coll_status coll_barrier(coll_comm *comm) {
  return run(comm, &(call){.coll = COLLI_BARRIER, .name = "barrier"});
}

coll_status coll_send(const void *sendbuf, size_t count, coll_type type, int peer, int tag,
                      coll_comm *comm) {
  (void)tag;
  return run(comm, &(call)SEND_CALL);
}

coll_status coll_recv(void *recvbuf, size_t count, coll_type type, int peer, int tag,
                      coll_message *message, coll_comm *comm) {
  (void)tag, (void)message;
  return run(comm, &(call)RECV_CALL);
}

coll_status coll_iallreduce(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                            coll_op op, coll_comm *comm, coll_request **request) {
  return launch(comm, &(call)ALLREDUCE_CALL, request);
}

coll_status coll_ibroadcast(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                            int root, coll_comm *comm, coll_request **request) {
  return launch(comm, &(call)BROADCAST_CALL, request);
}

coll_status coll_iallgather(const void *sendbuf, void *recvbuf, size_t count, coll_type type,
                            coll_comm *comm, coll_request **request) {
  return launch(comm, &(call)ALLGATHER_CALL, request);
}

coll_status coll_ibarrier(coll_comm *comm, coll_request **request) {
  return launch(comm, &(call){.coll = COLLI_BARRIER, .name = "barrier"}, request);
}

coll_status coll_isend(const void *sendbuf, size_t count, coll_type type, int peer, int tag,
                       coll_comm *comm, coll_request **request) {
  (void)tag;
  return launch(comm, &(call)SEND_CALL, request);
}

coll_status coll_irecv(void *recvbuf, size_t count, coll_type type, int peer, int tag,
                       coll_message *message, coll_comm *comm, coll_request **request) {
  (void)tag, (void)message;
  return launch(comm, &(call)RECV_CALL, request);
}
