/* p2p_at_once.c: a receive whose message has arrived. */
#include "libcoll/p2p/p2p_at_once.h"

#include "libcoll/base/copy.h"
#include "libcoll/base/names.h"
#include "libcoll/p2p/p2p_internal.h"

/* Whether an arrived message, which does not fill a receive, is what it takes. */
__attribute__((noinline)) static bool fits(const colli_p2p_wanted *wanted, const coll_tag *tag,
                                           size_t bytes) {
  colli_p2p_header head;
  if (!p2p_tag_read(tag, &head) || head.kind != P2P_EAGER ||
      (wanted->tag != head.tag && (wanted->tag != COLL_ANY_TAG || head.tag < 0)) ||
      head.type != wanted->type || head.word > wanted->count ||
      (head.word < wanted->count && !wanted->message) ||
      bytes != head.word * colli_type_bytes(wanted->type))
    return false;
  if (wanted->message)
    *wanted->message =
        (coll_message){wanted->source, head.tag, (size_t)head.word, (coll_type)head.type};
  return true;
}

/* The same of any message. Sets *wanted->message if so. */
static inline bool takes(const colli_p2p_wanted *wanted, const coll_tag *tag, size_t bytes) {
  if (__builtin_expect(!p2p_tag_equal(tag, &wanted->expected), 0))
    return fits(wanted, tag, bytes);
  if (__builtin_expect(bytes != wanted->count * colli_type_sizes[wanted->type] ||
                           wanted->tag == COLL_ANY_TAG,
                       0))
    return false;
  if (wanted->message)
    *wanted->message =
        (coll_message){wanted->source, wanted->tag, wanted->count, (coll_type)wanted->type};
  return true;
}

/* Whether nothing goes before the next message of a peer: no receive, and no unexpected message. */
static inline bool is_next(const colli_p2p *p2p, const colli_p2p_peer *peer) {
  return !p2p->any.head && !peer->first && !peer->recvs.head && peer->recv_status == COLL_OK;
}

bool colli_p2p_recv_at_once(colli_p2p *p2p, const colli_p2p_wanted *wanted) {
  colli_p2p_peer *peer = p2p->peers[wanted->source];
  if (!peer || !peer->conn)
    return false;
  coll_tag tag;
  const void *data;
  size_t bytes;
  int status = peer->conn->ops->slot_peek(peer->conn, &tag, &data, &bytes);
  if (status != COLL_T_DONE)
    return false;
  if (__builtin_expect(!is_next(p2p, peer), 0)) {
    if (!peer->recvs.head || p2p_read(p2p, peer) <= 0 || !is_next(p2p, peer))
      return false;
    status = peer->conn->ops->slot_peek(peer->conn, &tag, &data, &bytes);
  }
  if (status != COLL_T_DONE || !takes(wanted, &tag, bytes))
    return false;
  colli_copy(wanted->buf, data, bytes);
  p2p_release(p2p, peer);
  return true;
}
