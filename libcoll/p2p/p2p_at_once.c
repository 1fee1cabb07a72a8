/*
 * p2p_at_once.c: messages that end in the call that starts them, without a post: an eager send for
 * which the connection has room, and a receive whose message has arrived. Only where nothing goes
 * before them, so that the order stays the same as with posts. Whatever else there is to do, errors
 * included, is left to an operation with posts.
 */
#include <string.h>

#include "libcoll/p2p/p2p_internal.h"

/* Only through shared memory, where the message is with its receiver then. Elsewhere it may wait in
 * the transport, and a blocking send waits for that. */
bool colli_p2p_send_at_once(colli_p2p *p2p, int rank, const coll_tag *tag, const void *buf,
                            size_t bytes) {
  colli_p2p_peer *peer = p2p->peers[rank];
  if (!peer || !peer->conn || peer->out.head || bytes > p2p->exec->slot_bytes)
    return false;
  if (!(peer->conn->ops->caps & COLL_CAP_SHARED_MEMORY))
    return false;
  return p2p_send_copy(p2p, peer, tag, buf, bytes) == COLLI_STEP_DONE;
}

/* Whether an arrived message is what a receive takes. */
static bool fits(const colli_p2p_wanted *wanted, const colli_p2p_header *head, size_t bytes) {
  return head->kind == P2P_EAGER &&
         (wanted->tag == head->tag || (wanted->tag == COLL_ANY_TAG && head->tag >= 0)) &&
         head->type == wanted->type && head->word <= wanted->count &&
         (head->word == wanted->count || wanted->message) &&
         bytes == head->word * wanted->elem_bytes;
}

bool colli_p2p_recv_at_once(colli_p2p *p2p, int rank, const colli_p2p_wanted *wanted) {
  colli_p2p_peer *peer = p2p->peers[rank];
  if (!peer || !peer->conn || p2p->any.head)
    return false;
  if (peer->recvs.head && p2p_read(p2p, peer) <= 0)
    return false;
  if (peer->first || peer->recvs.head || peer->recv_status != COLL_OK)
    return false;
  coll_tag tag;
  const void *data;
  size_t bytes;
  colli_p2p_header head;
  if (peer->conn->ops->slot_peek(peer->conn, &tag, &data, &bytes) != COLL_T_DONE ||
      !p2p_tag_read(&tag, &head) || !fits(wanted, &head, bytes))
    return false;
  if (bytes)
    memcpy(wanted->buf, data, bytes);
  if (wanted->message)
    *wanted->message = (coll_message){rank, head.tag, (size_t)head.word, (coll_type)head.type};
  p2p_release(p2p, peer);
  return true;
}
