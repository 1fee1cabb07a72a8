/* p2p_call.c: checks point-to-point and one-sided calls, and turns them into requests. */
#include "libcoll/run/p2p_call.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/p2p/window.h"
#include "libcoll/progress/wait.h"

#define LINGER_NS (10 * COLLI_NS_PER_S)
#define BYTES_MAX ((size_t)1 << 47) /* more than current processors can address */

/* Checks a rank. */
static coll_status check_peer(coll_comm *comm, const colli_call *call, const char *what, int peer,
                              bool any) {
  if ((peer >= 0 && peer < comm->nranks) || (any && peer == COLL_ANY_SOURCE))
    return COLL_OK;
  return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name, "%s %d is not in 0 .. %d%s",
                           what, peer, comm->nranks - 1, any ? ", nor COLL_ANY_SOURCE" : "");
}

/* Checks a tag. */
static coll_status check_tag(coll_comm *comm, const colli_call *call, int tag, bool any) {
  if (tag >= 0 || call->own_tags || (any && tag == COLL_ANY_TAG))
    return COLL_OK;
  return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "tag %d is negative%s; use 0 or more", tag,
                           any ? " and not COLL_ANY_TAG" : "");
}

/* Checks a buffer of `count` elements. */
static coll_status check_buffer(coll_comm *comm, const colli_call *call, const char *what,
                                const void *buf, size_t count) {
  size_t bytes;
  if (__builtin_mul_overflow(count, colli_type_bytes(call->type), &bytes) || bytes > BYTES_MAX)
    return colli_comm_refuse(
        comm, COLL_ERR_INVALID_ARGUMENT, call->name,
        "count %zu of %s is more than memory can hold; is it a negative number?", count,
        colli_type_name(call->type));
  if (count && !buf)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name, "%s is NULL", what);
  return COLL_OK;
}

static coll_status check_type(coll_comm *comm, const colli_call *call) {
  if (colli_type_bytes(call->type) != 0)
    return COLL_OK;
  return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "%d is no coll_type; see coll.h for the list", call->type);
}

/* Checks send, recv and sendrecv. */
static coll_status check_message(coll_comm *comm, const colli_call *call) {
  bool both = call->p2p == COLLI_P2P_SENDRECV;
  coll_status status = check_type(comm, call);
  if (call->p2p != COLLI_P2P_RECV) {
    if (status == COLL_OK)
      status = check_peer(comm, call, both ? "dest" : "peer", call->dest, false);
    if (status == COLL_OK)
      status = check_tag(comm, call, call->send_tag, false);
    if (status == COLL_OK)
      status = check_buffer(comm, call, "sendbuf", call->sendbuf, call->count);
  }
  if (call->p2p != COLLI_P2P_SEND) {
    if (status == COLL_OK)
      status = check_peer(comm, call, both ? "source" : "peer", call->source, true);
    if (status == COLL_OK)
      status = check_tag(comm, call, call->recv_tag, true);
    if (status == COLL_OK)
      status = check_buffer(comm, call, "recvbuf", call->recvbuf, call->recv_count);
  }
  return status;
}

/* Checks put, signal and wait_signal. */
static coll_status check_one_sided(coll_comm *comm, const colli_call *call) {
  int peer = call->p2p == COLLI_P2P_WAIT_SIGNAL ? call->source : call->dest;
  const coll_window *window = comm->p2p.windows;
  while (window && window != call->window)
    window = window->next;
  if (!window)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "the window is no window of this communicator");
  coll_status status = check_peer(comm, call, "peer", peer, false);
  if (status == COLL_OK && call->p2p == COLLI_P2P_PUT) {
    status = check_type(comm, call);
    if (status == COLL_OK)
      status = check_buffer(comm, call, "sendbuf", call->sendbuf, call->count);
    if (status != COLL_OK)
      return status;
    size_t bytes = call->count * colli_type_bytes(call->type);
    if (call->offset > window->sizes[peer] || bytes > window->sizes[peer] - call->offset)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, call->name,
                               "%zu bytes at offset %zu do not fit rank %d's %llu bytes of the "
                               "window",
                               bytes, call->offset, peer, (unsigned long long)window->sizes[peer]);
  }
  return status;
}

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_p2p_check(coll_comm *comm, const colli_call *call) {
  return call->p2p <= COLLI_P2P_SENDRECV ? check_message(comm, call) : check_one_sided(comm, call);
}

colli_call colli_p2p_part(const char *name, bool sends, int peer, const void *buf, size_t count,
                          int type) {
  colli_call call = {.name = name, .coll = COLLI_SENDRECV, .type = type, .own_tags = true};
  if (sends) {
    call.p2p = COLLI_P2P_SEND;
    call.sendbuf = buf;
    call.count = count;
    call.dest = peer;
    call.send_tag = COLLI_OWN_TAG(COLLI_PART_TAG);
  } else {
    call.p2p = COLLI_P2P_RECV;
    call.recvbuf = (void *)(uintptr_t)buf;
    call.recv_count = count;
    call.source = peer;
    call.recv_tag = COLLI_OWN_TAG(COLLI_PART_TAG);
  }
  return call;
}

/* The sending half of a call. A put is never sent by reference, because its completion must not
 * depend on the target's next call. */
static void fill_send(const coll_comm *comm, const colli_call *call, colli_p2p_op *op,
                      colli_post *post) {
  colli_p2p_fill(post, op, COLLI_POST_SEND, call->dest, call->send_tag);
  post->type = call->type;
  post->count = call->count;
  post->message = NULL;
  post->buf = (char *)call->sendbuf;
  post->region = comm->memory.first ? colli_memory_region(&comm->memory, call->sendbuf) : 0;
  post->bytes = call->count * op->request.elem_bytes;
}

/* A one-sided call. */
static colli_post one_sided(const colli_call *call, colli_p2p_op *op) {
  colli_post post = {.op = op,
                     .kind = COLLI_POST_SIGNAL,
                     .peer = call->dest,
                     .window = call->window,
                     .type = call->type};
  if (call->p2p == COLLI_P2P_PUT) {
    post.kind = COLLI_POST_PUT;
    post.buf = (char *)call->sendbuf;
    post.count = call->count;
    post.bytes = call->count * op->request.elem_bytes;
    post.offset = call->offset;
  } else if (call->p2p == COLLI_P2P_WAIT_SIGNAL) {
    post.kind = COLLI_POST_WAIT;
    post.peer = call->source;
    post.signals = call->signals;
  }
  return post;
}

/* Has a message use memory that is lent. */
static void use_lent(colli_lent *lent, colli_p2p_op *op) {
  for (int i = 0; i < op->nposts; i++) {
    const colli_lent *its =
        &lent[op->post[i].kind == COLLI_POST_RECV ? COLLI_LENT_RECEIVED : COLLI_LENT_SENT];
    op->post[i].lent = its->with ? its : NULL;
  }
  op->request.lent = lent;
  op->request.registered = COLLI_HAS_LENT;
}

/* Fills in its request. The receiving half comes first, because a failure should name the rank from
 * which it receives. */
void colli_p2p_prepare(coll_comm *comm, const colli_call *call, coll_request *op) {
  op->name = call->name;
  op->elem_bytes = colli_type_bytes(call->type);
  colli_p2p_op *p2p = colli_p2p_op_of(op);
  p2p->nposts = 0;
  p2p->delivers = p2p->is_patient = false;
  if (call->p2p == COLLI_P2P_RECV || call->p2p == COLLI_P2P_SENDRECV) {
    const colli_p2p_wanted wanted = colli_p2p_wanted_by(
        call->recvbuf, call->recv_count, call->type, call->source, call->recv_tag, call->message);
    colli_p2p_fill_recv(&wanted, p2p, &p2p->post[p2p->nposts++]);
  }
  if (call->p2p == COLLI_P2P_SEND || call->p2p == COLLI_P2P_SENDRECV)
    fill_send(comm, call, p2p, &p2p->post[p2p->nposts++]);
  if (p2p->nposts == 0)
    p2p->post[p2p->nposts++] = one_sided(call, p2p);
  if (__builtin_expect(call->lent != NULL, 0))
    use_lent(call->lent, p2p);
  op->partner = p2p->post[0].peer;
  size_t count = call->p2p == COLLI_P2P_RECV ? call->recv_count : call->count;
  op->tag = p2p_tag_shown(count, call->type);
}

/* Whether messages are on their way to ranks that have not left. */
static bool unsent(const coll_comm *comm) {
  if (comm->p2p.outgoing == 0 || comm->failure.status != COLL_OK || comm->failure.suspended)
    return false;
  for (const colli_p2p_peer *peer = comm->p2p.first_peer; peer; peer = peer->next)
    if ((peer->nbuffered > 0 || peer->unsent) && !comm->failure.left[peer->rank] &&
        !comm->failure.lost[peer->rank] && !comm->failure.silent[peer->rank])
      return true;
  return false;
}

bool colli_p2p_linger(coll_comm *comm) {
  const colli_world *world = &comm->world;
  if (!unsent(comm) || (world->pause && !world->pause(world->ctx, true)))
    return true;
  /* Others may wait for this rank elsewhere, so it must get there well before their deadline. */
  uint64_t linger_ns = comm->watch.timeout_ns / 2;
  uint64_t until_ns = world->now_ns(world->ctx) + (linger_ns < LINGER_NS ? linger_ns : LINGER_NS);
  colli_comm_wait_begin(comm);
  while (unsent(comm) && world->now_ns(world->ctx) < until_ns)
    colli_comm_wait_a_bit(comm, until_ns);
  return !unsent(comm);
}

void colli_p2p_flush(coll_comm *comm, int rank) {
  const colli_p2p_peer *peer = comm->p2p.peers[rank];
  if (!peer->unsent || peer->conn->ops->caps & COLL_CAP_DEVICE)
    return;
  const uint64_t until_ns = comm->world.now_ns(comm->world.ctx) + COLLI_PATIENCE_NS;
  colli_comm_wait_begin(comm);
  while (peer->unsent && comm->failure.status == COLL_OK && !comm->failure.suspended &&
         comm->world.now_ns(comm->world.ctx) < until_ns)
    colli_comm_wait_a_bit(comm, until_ns);
}
