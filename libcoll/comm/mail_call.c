/* mail_call.c: point-to-point and one-sided calls: checks, and how they become requests. */
#include "libcoll/comm/call.h"
#include "libcoll/comm/comm.h"

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_mail_check(coll_comm *comm, const colli_call *call) {
  bool sends = call->p2p == COLLI_P2P_SEND;
  int peer = sends ? call->dest : call->source;
  size_t count = sends ? call->count : call->recv_count;
  size_t bytes = coll_type_bytes((coll_type)call->type), total;
  if (!sends && call->p2p != COLLI_P2P_RECV)
    return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, call->name, "not in this version");
  if (bytes == 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "%d is no coll_type; see coll.h for the list", call->type);
  if (peer < 0 || peer >= comm->nranks || peer == comm->rank)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "peer %d is not another rank in 0 .. %d", peer, comm->nranks - 1);
  if (__builtin_mul_overflow(count, bytes, &total) || total > PTRDIFF_MAX)
    return colli_comm_refuse(
        comm, COLL_ERR_INVALID_ARGUMENT, call->name,
        "count %zu of %s is more than memory can hold; is it a negative number?", count,
        colli_type_name(call->type));
  if (count && !(sends ? call->sendbuf : call->recvbuf))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name, "%s is NULL",
                             sends ? "sendbuf" : "recvbuf");
  return COLL_OK;
}

/* Fills in its request. */
void colli_mail_prepare(coll_comm *comm, const colli_call *call, coll_request *op) {
  (void)comm;
  op->sending = call->p2p == COLLI_P2P_SEND;
  size_t count = op->sending ? call->count : call->recv_count;
  op->sequence = 0;
  op->elem_bytes = coll_type_bytes((coll_type)call->type);
  op->in = call->sendbuf;
  op->out = call->recvbuf;
  op->peer = op->sending ? call->dest : call->source;
  op->sched = NULL;
  op->stage_out = COLLI_STAGE_NONE;
  op->partition = (colli_partition){.count = count, .passes = 1};
  op->tag = colli_tag_make(COLLI_SENDRECV, false, count, call->type, 0, 0, 0, 0, 0);
}
