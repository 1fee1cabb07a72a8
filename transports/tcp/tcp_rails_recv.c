/* tcp_rails_recv.c: the receiving direction of a connection over rails. */
#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_rails.h"

/* Looks at the head of a socket's next message, and drops those that came before over another rail:
 * COLL_T_DONE if it is the wanted one, COLL_T_AGAIN, or an error. */
static int look_at_head(tcp_rails *rails, tcp_conn *conn) {
  for (;;) {
    uint32_t magic;
    int status = colli_stream_head(&conn->stream, &magic);
    if (status != COLL_T_DONE)
      return status;
    const int32_t ahead = (int32_t)(magic - COLLI_FRAME_MAGIC - (uint32_t)rails->want);
    if (ahead == 0)
      return COLL_T_DONE;
    if (ahead > TCP_RAILS_AHEAD || ahead < -TCP_RAILS_AHEAD) {
      conn->stream.recv_status = COLL_ERR_PROTOCOL;
      conn->stream.detail =
          "received bytes that are not a message; do all ranks run the same version?";
      return COLL_ERR_PROTOCOL;
    }
    if (ahead > 0)
      return COLL_T_AGAIN;
    status = colli_stream_skip(&conn->stream);
    if (status != COLL_T_DONE)
      return status;
  }
}

int tcp_rails_find(tcp_rails *rails) {
  tcp_conn *conn, *next;
  for (conn = TAILQ_FIRST(&rails->sockets); conn; conn = next) {
    next = TAILQ_NEXT(conn, rail.link);
    if (conn->state != TCP_ESTABLISHED || conn == rails->current)
      continue;
    const int status = look_at_head(rails, conn);
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

/* Sees to it that `current` has the wanted message: COLL_T_DONE, COLL_T_AGAIN or an error. */
static int find_first(tcp_rails *rails) {
  if (rails->current)
    return COLL_T_DONE;
  if (!rails->was_up || (rails->status != COLL_OK && rails->status != COLL_ERR_PEER_LOST)) {
    const int status = tcp_rails_check(rails);
    return status == COLL_T_DONE ? COLL_T_AGAIN : status;
  }
  const int status = tcp_rails_find(rails);
  if (status == COLL_T_AGAIN)
    tcp_rails_flush(rails); /* output that waits may be what the peer needs before it sends */
  return status;
}

/* What to do after a receive from `current` that is not complete: COLL_T_DONE to try again, else
 * what to return. */
static int after_receive(tcp_rails *rails, int status) {
  if (status == COLL_T_AGAIN) {
    tcp_rails_flush(rails);
    return tcp_rails_find(rails);
  }
  if (status == COLL_ERR_MISMATCH)
    return status;
  if (status == COLL_ERR_PEER_LOST) {
    tcp_rails_end(rails->current);
    return COLL_T_DONE;
  }
  tcp_rails_fail(rails, (coll_status)status, rails->current);
  return tcp_rails_check(rails);
}

/* The wanted message is delivered. */
static void go_on(tcp_rails *rails) {
  rails->want++;
  rails->current = NULL;
}

int tcp_rails_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                   size_t *got_bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  int status;
  while ((status = find_first(rails)) == COLL_T_DONE) {
    status = colli_stream_recv(&rails->current->stream, expect, buf, bytes, got, got_bytes);
    if (status == COLL_T_DONE) {
      go_on(rails);
      return COLL_T_DONE;
    }
    status = after_receive(rails, status);
    if (status != COLL_T_DONE)
      break;
  }
  return status;
}

int tcp_rails_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  int status;
  while ((status = find_first(rails)) == COLL_T_DONE) {
    status = colli_stream_slot_peek(&rails->current->stream, got, buf, bytes);
    if (status == COLL_T_DONE)
      return COLL_T_DONE;
    status = after_receive(rails, status);
    if (status != COLL_T_DONE)
      break;
  }
  return status;
}

int tcp_rails_slot_release(coll_conn *base) {
  tcp_rails *rails = (tcp_rails *)base;
  COLLI_ASSERT(rails->current);
  const int status = colli_stream_slot_release(&rails->current->stream);
  go_on(rails);
  return status;
}
