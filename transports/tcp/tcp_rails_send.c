/* tcp_rails_send.c: the sending direction of a connection over rails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/tcp/tcp_rails.h"

#define BUFFER_ALIGN 64ul

/* A buffer of the pool. */
static char *buffer_at(const tcp_rails *rails, int buffer) {
  const size_t pitch = (rails->ep->env->slot_bytes + BUFFER_ALIGN - 1) & ~(BUFFER_ALIGN - 1);
  return rails->pool + pitch * (size_t)buffer;
}

/* Gives a piece to a socket: false if none takes it now. */
static bool give(tcp_rails *rails, uint64_t number) {
  tcp_kept *kept = tcp_kept_at(rails, number);
  const coll_transport_env *env = rails->ep->env;
  const uint64_t now_ns = env->now_ns(env->ctx);
  COLLI_ASSERT(kept->buffer >= 0 && !kept->by);
  for (;;) {
    tcp_conn *conn = tcp_rails_choose(rails, kept->bytes, now_ns);
    if (!conn)
      return false;
    conn->stream.out_magic = COLLI_FRAME_MAGIC + tcp_rails_head(number, kept->behind);
    const int status = colli_stream_send(
        &conn->stream, &kept->tag, buffer_at(rails, kept->buffer) + kept->offset, kept->bytes);
    if (status == COLL_T_AGAIN)
      return false;
    if (status > 0) {
      if (status != COLL_ERR_PEER_LOST)
        tcp_rails_fail(rails, (coll_status)status, conn);
      tcp_rails_retire(conn);
      continue;
    }
    tcp_conn_note_output(conn);
    tcp_rails_count_given(conn, sizeof(colli_frame) + kept->bytes, now_ns);
    kept->by = conn;
    kept->end = conn->rail.given;
    return true;
  }
}

int tcp_rails_give(tcp_rails *rails) {
  int moved = 0;
  for (uint64_t i = rails->first; rails->nwaiting > 0 && i < rails->next; i++) {
    const tcp_kept *kept = tcp_kept_at(rails, i);
    if (kept->buffer < 0 || kept->by)
      continue;
    if (!give(rails, i))
      break;
    rails->nwaiting--;
    moved = 1;
  }
  return moved;
}

/* Makes memory for what is kept; false: out of memory. Its pages are used one after the other. */
static bool make_pool(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  const size_t pitch = (env->slot_bytes + BUFFER_ALIGN - 1) & ~(BUFFER_ALIGN - 1);
  const unsigned count = TCP_RAILS_KEPT * env->slot_count;
  rails->kept = calloc(count * TCP_RAILS_QUARTERS, sizeof(*rails->kept));
  rails->free = calloc(count, sizeof(*rails->free));
  rails->uses = calloc(count, sizeof(*rails->uses));
  if (!rails->kept || !rails->free || !rails->uses ||
      !(rails->pool = aligned_alloc(BUFFER_ALIGN, pitch * count)))
    return false;
  rails->nkept = count * TCP_RAILS_QUARTERS;
  rails->nfree = count;
  for (unsigned i = 0; i < count; i++)
    rails->free[i] = (int)(count - 1 - i);
  return true;
}

/* Whether a message has to wait until others are acknowledged. */
static bool is_full(const tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  return rails->nfree == 0 || rails->next - rails->first > rails->nkept - TCP_RAILS_QUARTERS ||
         rails->kept_bytes + env->slot_bytes > TCP_RAILS_KEPT * env->slot_count * env->slot_bytes;
}

/* Notes whether it has to. */
static void note_full(tcp_endpoint *ep, bool is_full_now) {
  if (!is_full_now)
    ep->full_ns = 0;
  else if (ep->full_ns == 0)
    ep->full_ns = ep->env->now_ns(ep->env->ctx);
}

/* Takes a buffer for the next message: COLL_T_DONE, COLL_T_AGAIN or an error. */
static int take_buffer(tcp_rails *rails, size_t bytes) {
  const int status = tcp_rails_check(rails);
  if (status != COLL_T_DONE)
    return status;
  if (bytes > rails->ep->env->slot_bytes)
    tcp_rails_fail_here(rails, COLL_ERR_INTERNAL, NULL, 0,
                        "cannot send a message larger than a slot");
  else if (!rails->pool && !make_pool(rails))
    tcp_rails_fail_here(rails, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                        "out of memory for outgoing messages; lower COLL_SLOT_BYTES");
  if (rails->status != COLL_OK)
    return tcp_rails_check(rails);
  if (rails->acquired >= 0)
    return COLL_T_DONE;
  if (rails->posted % TCP_RAILS_REAP == 0 || is_full(rails))
    tcp_rails_reap(rails);
  note_full(rails->ep, is_full(rails));
  if (is_full(rails) || rails->nwaiting >= TCP_RAILS_QUARTERS * rails->ep->env->slot_count)
    return COLL_T_AGAIN;
  rails->acquired = rails->free[--rails->nfree];
  return COLL_T_DONE;
}

/* Sends what is in the acquired buffer. */
static int post(tcp_rails *rails, const coll_tag *tag, size_t bytes) {
  const size_t quarter = tcp_rails_quarter(rails);
  unsigned left = bytes > quarter ? (unsigned)((bytes + quarter - 1) / quarter) : 1;
  const unsigned each = left > 1 ? tcp_rails_piece(rails) : 1;
  unsigned now = each + (bytes % quarter > 0 && bytes % quarter < TCP_RAILS_LONG);
  size_t offset = 0;
  COLLI_ASSERT(left <= TCP_RAILS_QUARTERS);
  rails->posted++;
  rails->kept_bytes += bytes;
  rails->uses[rails->acquired] = (uint8_t)(left <= now ? 1 : 1 + (left - now + each - 1) / each);
  for (; left > 0; now = each) {
    left -= left < now ? left : now;
    const size_t end = bytes - left * quarter;
    const uint64_t number = rails->next++;
    *tcp_kept_at(rails, number) = (tcp_kept){.tag = *tag,
                                             .offset = (uint32_t)offset,
                                             .bytes = (uint32_t)(end - offset),
                                             .behind = left,
                                             .buffer = rails->acquired};
    offset = end;
    if (rails->nwaiting > 0 || !give(rails, number))
      rails->nwaiting++;
  }
  rails->acquired = -1;
  if (rails->status != COLL_OK)
    return tcp_rails_check(rails);
  tcp_rails_count_written(rails);
  return rails->written == rails->next ? COLL_T_DONE : COLL_T_PENDING;
}

int tcp_rails_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  const int status = take_buffer(rails, bytes);
  if (status != COLL_T_DONE)
    return status;
  if (bytes > 0)
    memcpy(buffer_at(rails, rails->acquired), buf, bytes);
  return post(rails, tag, bytes);
}

int tcp_rails_sent(coll_conn *base, uint64_t *count) {
  tcp_rails *rails = (tcp_rails *)base;
  *count = rails->sent;
  if (!rails->was_up && rails->status == COLL_OK)
    return COLL_T_DONE;
  const int status = tcp_rails_check(rails);
  if (status != COLL_T_DONE)
    return status;
  tcp_rails_flush(rails);
  tcp_rails_count_written(rails);
  *count = rails->sent;
  return COLL_T_DONE;
}

void tcp_rails_flush(tcp_rails *rails) {
  tcp_conn *conn;
  TAILQ_FOREACH(conn, &rails->sockets, rail.link)
    if (conn->blocked && tcp_rail_is_open(conn))
      (void)colli_stream_flush(&conn->stream); /* its failure shows in the stream */
  if (rails->nwaiting > 0)
    tcp_rails_give(rails);
}

int tcp_rails_slot_acquire(coll_conn *base, size_t bytes, void **buf) {
  tcp_rails *rails = (tcp_rails *)base;
  const int status = take_buffer(rails, bytes);
  if (status == COLL_T_DONE)
    *buf = buffer_at(rails, rails->acquired);
  return status;
}

int tcp_rails_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes) {
  tcp_rails *rails = (tcp_rails *)base;
  COLLI_ASSERT(rails->acquired >= 0 && bytes <= rails->ep->env->slot_bytes);
  return post(rails, tag, bytes);
}
