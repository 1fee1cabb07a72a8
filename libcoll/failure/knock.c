/* knock.c: asks a peer for a connection. */
#include "libcoll/failure/knock.h"

#define FIRST_NS COLLI_NS_PER_MS         /* most peers come by themselves before that */
#define MOST_NS  (250 * COLLI_NS_PER_MS) /* between two times */

/* Sends a message to a rank of the family by way of those between. */
static void send_on(colli_family *family, int to, const colli_ctrl_msg *msg) {
  if (family->ctrl)
    colli_ctrl_send(family->ctrl, colli_ctrl_toward(family->ctrl, to), msg);
}

/* Asks a peer if it is time. */
static void knock_at(coll_comm *comm, colli_p2p_peer *peer) {
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  if (peer->knock_again_ns == 0) {
    peer->knock_again_ns = FIRST_NS;
    peer->knock_ns = now_ns + FIRST_NS;
  }
  if (now_ns < peer->knock_ns)
    return;
  peer->knock_ns = now_ns + peer->knock_again_ns;
  if (peer->knock_again_ns < MOST_NS)
    peer->knock_again_ns *= 2;
  const int to = colli_comm_base_rank(comm, peer->rank);
  const colli_ctrl_msg msg = {
      .kind = COLLI_CTRL_KNOCK, .origin = comm->family->rank, .uid = comm->uid, .peer = to};
  send_on(comm->family, to, &msg);
}

void colli_knock(coll_comm *comm) {
  if (comm->p2p.busy == 0 || comm->failure.status != COLL_OK || comm->failure.suspended)
    return;
  for (colli_p2p_peer *peer = comm->p2p.first_peer; peer; peer = peer->next)
    if (peer->conn && peer->out.head && !colli_p2p_has_sent(&comm->p2p, peer->rank))
      knock_at(comm, peer);
}

void colli_knock_heard(colli_family *family, const colli_ctrl_msg *msg) {
  if (msg->peer < 0 || msg->peer >= family->nranks || msg->origin == family->rank)
    return;
  if (msg->peer != family->rank) {
    send_on(family, msg->peer, msg);
    return;
  }
  coll_comm *comm = family->members;
  while (comm && comm->uid != msg->uid)
    comm = comm->sibling;
  int rank = comm ? colli_comm_rank_of(comm, msg->origin) : -1;
  if (rank >= 0 && comm->failure.status == COLL_OK && !comm->failure.suspended)
    colli_p2p_connect(&comm->p2p, rank);
}
