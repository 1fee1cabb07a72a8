/* tcp_rails_recv.c: the receiving direction of a connection over rails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_rails.h"

/* How many pieces later than the wanted one a piece is, by what its head says. */
static int32_t ahead_of(const tcp_rails *rails, uint32_t head) {
  const uint32_t behind = head % TCP_RAILS_QUARTERS;
  return (int32_t)(head - behind - tcp_rails_head(rails->want, 0)) / (int32_t)TCP_RAILS_QUARTERS;
}

/* The early piece that is so much later than the wanted one; NULL: it was not read. */
static tcp_early *find_early(const tcp_rails *rails, int32_t ahead) {
  tcp_early *early;
  LIST_FOREACH(early, &rails->early, link)
    if (ahead_of(rails, early->head) == ahead)
      return early;
  return NULL;
}

/* Reads a piece that comes later to memory: COLL_T_DONE, COLL_T_AGAIN or an error. */
static int read_early(tcp_rails *rails, tcp_conn *conn, uint32_t head) {
  const void *payload;
  coll_tag tag;
  size_t bytes;
  if (rails->nearly >= TCP_RAILS_QUARTERS * TCP_RAILS_KEPT * rails->ep->env->slot_count)
    return COLL_T_AGAIN; /* no peer sends so many before the wanted one */
  const int status = colli_stream_slot_peek(&conn->stream, &tag, &payload, &bytes);
  if (status != COLL_T_DONE)
    return status;
  tcp_early *early = aligned_alloc(64, (sizeof(*early) + bytes + 63) & ~(size_t)63);
  if (!early) {
    conn->stream.detail = "out of memory for received messages; lower COLL_SLOT_BYTES";
    conn->stream.sys_errno = ENOMEM;
    return (int)(conn->stream.recv_status = COLL_ERR_NO_MEMORY);
  }
  early->head = head;
  early->tag = tag;
  early->bytes = bytes;
  memcpy(early->payload, payload, bytes);
  LIST_INSERT_HEAD(&rails->early, early, link);
  rails->nearly++;
  return colli_stream_slot_release(&conn->stream);
}

/* Whether the wanted piece has been missing for so long, while later ones are here, that these
 * are read: it may be behind them. */
static bool is_behind(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  const uint64_t now_ns = env->now_ns(env->ctx);
  if (rails->behind_ns == 0)
    rails->behind_ns = now_ns;
  return now_ns - rails->behind_ns >= TCP_RAILS_BEHIND_NS;
}

/* Looks at the head of a socket's next piece, and drops those that came before over another rail:
 * COLL_T_DONE if it is the wanted one, COLL_T_AGAIN, or an error. Where nobody receives, later ones
 * stay in the kernel, so that the sender is held up. */
static int look_at_head(tcp_rails *rails, tcp_conn *conn, bool receives) {
  for (;;) {
    uint32_t magic;
    int status = colli_stream_head(&conn->stream, &magic);
    if (status != COLL_T_DONE)
      return status;
    const int32_t ahead = ahead_of(rails, magic - COLLI_FRAME_MAGIC);
    if (ahead == 0 && !rails->shown && !find_early(rails, 0))
      return COLL_T_DONE;
    if (ahead > TCP_RAILS_AHEAD || ahead < -TCP_RAILS_AHEAD) {
      conn->stream.detail =
          "received bytes that are not a message; do all ranks run the same version?";
      return (int)(conn->stream.recv_status = COLL_ERR_PROTOCOL);
    }
    if (ahead <= 0 || find_early(rails, ahead))
      status = colli_stream_skip(&conn->stream);
    else
      status = receives && is_behind(rails) ? read_early(rails, conn, magic - COLLI_FRAME_MAGIC)
                                            : COLL_T_AGAIN;
    if (status != COLL_T_DONE)
      return status;
  }
}

int tcp_rails_find(tcp_rails *rails, bool receives) {
  tcp_conn *conn, *next;
  for (conn = TAILQ_FIRST(&rails->sockets); conn; conn = next) {
    next = TAILQ_NEXT(conn, rail.link);
    if (conn->state != TCP_ESTABLISHED || conn == rails->current)
      continue;
    const int status = look_at_head(rails, conn, receives);
    if (status == COLL_T_DONE) {
      rails->current = conn; /* the rest of a copy that came in part is dropped later */
      return COLL_T_DONE;
    }
    if (status == COLL_ERR_PEER_LOST)
      tcp_rails_end(conn);
    else if (status > 0)
      tcp_rails_fail(rails, (coll_status)status, conn);
  }
  if (rails->current)
    return COLL_T_AGAIN;
  const int status = tcp_rails_check(rails);
  return status == COLL_T_DONE ? COLL_T_AGAIN : status;
}

/* Sees to it that `current` has the wanted piece, or `shown` is it: COLL_T_DONE, COLL_T_AGAIN or an
 * error. */
static int find_first(tcp_rails *rails) {
  if (rails->current || rails->shown)
    return COLL_T_DONE;
  rails->shown = find_early(rails, 0);
  if (rails->shown) {
    LIST_REMOVE(rails->shown, link);
    rails->nearly--;
    return COLL_T_DONE;
  }
  if (!rails->was_up || (rails->status != COLL_OK && rails->status != COLL_ERR_PEER_LOST)) {
    const int status = tcp_rails_check(rails);
    return status == COLL_T_DONE ? COLL_T_AGAIN : status;
  }
  const int status = tcp_rails_find(rails, true);
  if (status == COLL_T_AGAIN)
    tcp_rails_flush(rails); /* output that waits may be what the peer needs before it sends */
  return status;
}

/* What to do after a receive from `current` that is not complete: COLL_T_DONE to try again, else
 * what to return. Another rail may have the piece, too: a call looks once at each. */
static int after_receive(tcp_rails *rails, int status, int *turns) {
  if (status == COLL_T_AGAIN) {
    tcp_rails_flush(rails);
    return ++*turns < rails->nsockets ? tcp_rails_find(rails, true) : COLL_T_AGAIN;
  }
  if (status == COLL_ERR_PEER_LOST) {
    tcp_rails_end(rails->current);
    return COLL_T_DONE;
  }
  tcp_rails_fail(rails, (coll_status)status, rails->current);
  return tcp_rails_check(rails);
}

/* ---- pieces of a message --------------------------------------------------------------------- */

/* The wanted piece, of which the head is here. */
typedef struct piece {
  const coll_tag *tag;
  size_t bytes;
  unsigned behind; /* so many quarters of its message come behind it */
} piece;

static piece wanted_piece(const tcp_rails *rails) {
  if (rails->shown)
    return (piece){&rails->shown->tag, rails->shown->bytes,
                   rails->shown->head % TCP_RAILS_QUARTERS};
  const colli_frame *frame = &rails->current->stream.frame;
  return (piece){&frame->tag, frame->bytes,
                 (frame->magic - COLLI_FRAME_MAGIC) % TCP_RAILS_QUARTERS};
}

/* The wanted piece is here: true if the message is complete. */
static bool go_on(tcp_rails *rails, const piece *p) {
  const bool is_last = p->behind == 0;
  rails->done = is_last ? 0 : rails->done + p->bytes;
  free(rails->shown);
  rails->want++;
  rails->current = NULL;
  rails->peeked = false;
  rails->shown = NULL;
  rails->behind_ns = 0;
  return is_last;
}

/* Receives the wanted piece to `buf`, the memory of its message: COLL_T_DONE, COLL_T_AGAIN or an
 * error. */
static int receive_piece(tcp_rails *rails, const piece *p, char *buf) {
  char *to = p->bytes > 0 ? buf + rails->done : buf; /* NULL where there are no bytes */
  if (!rails->shown) {
    coll_tag tag = *p->tag;
    size_t bytes;
    return colli_stream_recv(&rails->current->stream, &tag, to, p->bytes, &tag, &bytes);
  }
  if (p->bytes > 0)
    memcpy(to, rails->shown->payload, p->bytes);
  return COLL_T_DONE;
}

/* Notes what message the wanted piece is of: COLL_T_DONE, or an error if it cannot be. */
static int note_message(tcp_rails *rails, const piece *p) {
  const size_t bytes = rails->done + p->bytes + p->behind * tcp_rails_quarter(rails);
  const bool is_empty = p->bytes == 0 && (p->behind > 0 || rails->done > 0);
  if (bytes <= rails->ep->env->slot_bytes && !is_empty &&
      (rails->done == 0 ||
       (bytes == rails->bytes && !memcmp(p->tag, &rails->tag, sizeof(*p->tag))))) {
    rails->tag = *p->tag;
    rails->bytes = bytes;
    return COLL_T_DONE;
  }
  tcp_rails_fail_here(rails, COLL_ERR_PROTOCOL, NULL, 0,
                      "received pieces that are not of one message; do all ranks run the same "
                      "version, and is COLL_SLOT_BYTES the same on all?");
  return tcp_rails_check(rails);
}

/* Whether a message is another one than a receive expects; `got` says what it is. */
static bool is_other(const tcp_rails *rails, const coll_tag *expect, size_t bytes, coll_tag *got,
                     size_t *got_bytes) {
  if (rails->bytes == bytes && memcmp(&rails->tag, expect, sizeof(*expect)) == 0)
    return false;
  *got = rails->tag;
  *got_bytes = rails->bytes;
  return true;
}

/* Moves to a receive's buffer what slot_peek() has put together, also in part of pieces that may
 * come again over other rails: true if that is all of the message. */
static bool leave_slot(tcp_rails *rails, char *buf) {
  const bool is_whole = rails->whole;
  memcpy(buf, rails->slot, rails->bytes);
  rails->in_slot = rails->whole = false;
  return is_whole;
}

int tcp_rails_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                   size_t *got_bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  int status, turns = 0;
  if (rails->in_slot) {
    if (is_other(rails, expect, bytes, got, got_bytes))
      return COLL_ERR_MISMATCH;
    if (leave_slot(rails, buf))
      return COLL_T_DONE;
  }
  while ((status = find_first(rails)) == COLL_T_DONE) {
    const piece p = wanted_piece(rails);
    status = note_message(rails, &p);
    if (status != COLL_T_DONE)
      return status;
    if (is_other(rails, expect, bytes, got, got_bytes))
      return COLL_ERR_MISMATCH;
    status = receive_piece(rails, &p, buf);
    if (status != COLL_T_DONE)
      status = after_receive(rails, status, &turns);
    else if (go_on(rails, &p))
      return COLL_T_DONE;
    if (status != COLL_T_DONE)
      break;
  }
  return status;
}

/* Shows a message that is in one piece: COLL_T_DONE, COLL_T_AGAIN or an error. */
static int peek_whole(tcp_rails *rails, coll_tag *got, const void **buf, size_t *bytes) {
  if (!rails->shown)
    return colli_stream_slot_peek(&rails->current->stream, got, buf, bytes);
  *got = rails->shown->tag;
  *buf = rails->shown->payload;
  *bytes = rails->shown->bytes;
  return COLL_T_DONE;
}

/* Sees to it that the wanted piece can go to the slot: COLL_T_DONE, or an error. */
static int prepare_slot(tcp_rails *rails, const piece *p) {
  const int status = note_message(rails, p);
  if (status != COLL_T_DONE)
    return status;
  if (!rails->slot)
    rails->slot = aligned_alloc(64, (rails->ep->env->slot_bytes + 63) & ~(size_t)63);
  if (!rails->slot) {
    tcp_rails_fail_here(rails, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                        "out of memory for received messages; lower COLL_SLOT_BYTES");
    return tcp_rails_check(rails);
  }
  rails->in_slot = true;
  return COLL_T_DONE;
}

int tcp_rails_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  int status = COLL_T_DONE, turns = 0;
  while (!rails->whole && (status = find_first(rails)) == COLL_T_DONE) {
    const piece p = wanted_piece(rails);
    if (p.behind == 0 && rails->done == 0) {
      status = peek_whole(rails, got, buf, bytes);
      rails->peeked = status == COLL_T_DONE;
      if (rails->peeked)
        return COLL_T_DONE;
    } else {
      status = prepare_slot(rails, &p);
      if (status != COLL_T_DONE)
        return status;
      status = receive_piece(rails, &p, rails->slot);
      if (status == COLL_T_DONE)
        rails->whole = go_on(rails, &p);
    }
    if (status != COLL_T_DONE)
      status = after_receive(rails, status, &turns);
    if (status != COLL_T_DONE)
      break;
  }
  if (!rails->whole)
    return status;
  *got = rails->tag;
  *buf = rails->slot;
  *bytes = rails->bytes;
  return COLL_T_DONE;
}

int tcp_rails_slot_release(coll_conn *base) {
  tcp_rails *rails = (tcp_rails *)base;
  if (rails->whole) {
    rails->in_slot = rails->whole = false;
    return COLL_T_DONE;
  }
  COLLI_ASSERT(rails->current || rails->shown);
  const piece p = wanted_piece(rails);
  const int status =
      rails->shown ? COLL_T_DONE : colli_stream_slot_release(&rails->current->stream);
  go_on(rails, &p);
  return status;
}
