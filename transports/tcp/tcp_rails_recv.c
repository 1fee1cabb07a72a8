/* tcp_rails_recv.c: the receiving direction of a connection over rails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_rails.h"

/* The early message with a number; NULL: it was not read. */
static tcp_early *find_early(const tcp_rails *rails, uint32_t number) {
  tcp_early *early;
  LIST_FOREACH(early, &rails->early, link)
    if (early->number == number)
      return early;
  return NULL;
}

/* Reads a message that comes later to memory: COLL_T_DONE, COLL_T_AGAIN or an error. */
static int read_early(tcp_rails *rails, tcp_conn *conn, uint32_t number) {
  const void *payload;
  coll_tag tag;
  size_t bytes;
  if (rails->nearly >= TCP_RAILS_KEPT * rails->ep->env->slot_count)
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
  early->number = number;
  early->tag = tag;
  early->bytes = bytes;
  memcpy(early->payload, payload, bytes);
  LIST_INSERT_HEAD(&rails->early, early, link);
  rails->nearly++;
  return colli_stream_slot_release(&conn->stream);
}

/* Whether the wanted message has been missing for so long, while later ones are here, that these
 * are read: it may be behind them. */
static bool is_behind(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  const uint64_t now_ns = env->now_ns(env->ctx);
  if (rails->behind_ns == 0)
    rails->behind_ns = now_ns;
  return now_ns - rails->behind_ns >= TCP_RAILS_BEHIND_NS;
}

/* Looks at the head of a socket's next message, and drops those that came before over another rail:
 * COLL_T_DONE if it is the wanted one, COLL_T_AGAIN, or an error. Where nobody receives, later ones
 * stay in the kernel, so that the sender is held up. */
static int look_at_head(tcp_rails *rails, tcp_conn *conn, bool receives) {
  for (;;) {
    uint32_t magic;
    int status = colli_stream_head(&conn->stream, &magic);
    if (status != COLL_T_DONE)
      return status;
    const uint32_t number = magic - COLLI_FRAME_MAGIC;
    const int32_t ahead = (int32_t)(number - (uint32_t)rails->want);
    if (ahead == 0)
      return COLL_T_DONE;
    if (ahead > TCP_RAILS_AHEAD || ahead < -TCP_RAILS_AHEAD) {
      conn->stream.detail =
          "received bytes that are not a message; do all ranks run the same version?";
      return (int)(conn->stream.recv_status = COLL_ERR_PROTOCOL);
    }
    if (ahead < 0 || find_early(rails, number))
      status = colli_stream_skip(&conn->stream);
    else
      status = receives && is_behind(rails) ? read_early(rails, conn, number) : COLL_T_AGAIN;
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

/* Sees to it that `current` has the wanted message, or `shown` is it: COLL_T_DONE, COLL_T_AGAIN or
 * an error. */
static int find_first(tcp_rails *rails) {
  if (rails->current || rails->shown)
    return COLL_T_DONE;
  rails->shown = find_early(rails, (uint32_t)rails->want);
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
 * what to return. */
static int after_receive(tcp_rails *rails, int status) {
  if (status == COLL_T_AGAIN) {
    tcp_rails_flush(rails);
    return tcp_rails_find(rails, true);
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
  free(rails->shown);
  rails->want++;
  rails->current = NULL;
  rails->shown = NULL;
  rails->behind_ns = 0;
}

/* colli_stream_recv() of a message that was read early. */
static int recv_early(const tcp_early *early, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  if (early->bytes != bytes || memcmp(&early->tag, expect, sizeof(*expect)) != 0) {
    *got = early->tag;
    *got_bytes = early->bytes;
    return COLL_ERR_MISMATCH;
  }
  if (bytes > 0)
    memcpy(buf, early->payload, bytes);
  return COLL_T_DONE;
}

int tcp_rails_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                   size_t *got_bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  int status;
  while ((status = find_first(rails)) == COLL_T_DONE) {
    status = rails->shown
                 ? recv_early(rails->shown, expect, buf, bytes, got, got_bytes)
                 : colli_stream_recv(&rails->current->stream, expect, buf, bytes, got, got_bytes);
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
    if (rails->shown) {
      *got = rails->shown->tag;
      *buf = rails->shown->payload;
      *bytes = rails->shown->bytes;
      return COLL_T_DONE;
    }
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
  COLLI_ASSERT(rails->current || rails->shown);
  const int status =
      rails->shown ? COLL_T_DONE : colli_stream_slot_release(&rails->current->stream);
  go_on(rails);
  return status;
}
