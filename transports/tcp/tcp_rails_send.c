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

/* Gives a message to a socket: false if none takes it now. */
static bool give(tcp_rails *rails, uint64_t number) {
  tcp_kept *kept = tcp_kept_at(rails, number);
  const coll_transport_env *env = rails->ep->env;
  const uint64_t now_ns = env->now_ns(env->ctx);
  COLLI_ASSERT(kept->buffer >= 0 && !kept->by);
  for (;;) {
    tcp_conn *conn = tcp_rails_choose(rails, kept->bytes, now_ns);
    if (!conn)
      return false;
    conn->stream.out_magic = COLLI_FRAME_MAGIC + (uint32_t)number;
    const int status =
        colli_stream_send(&conn->stream, &kept->tag, buffer_at(rails, kept->buffer), kept->bytes);
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

/* Whether the kernel has got a message. */
static bool is_written(const tcp_rails *rails, uint64_t number) {
  const tcp_kept *kept = tcp_kept_at(rails, number);
  return kept->buffer < 0 ||
         (kept->by && tcp_rail_is_open(kept->by) &&
          kept->end + colli_stream_unwritten(&kept->by->stream) <= kept->by->rail.given);
}

/* Counts the messages that the kernel has got. */
static void count_written(tcp_rails *rails) {
  while (rails->written < rails->next && is_written(rails, rails->written))
    rails->written++;
}

/* Makes memory for what is kept; false: out of memory. Its pages are used one after the other. */
static bool make_pool(tcp_rails *rails) {
  const coll_transport_env *env = rails->ep->env;
  const size_t pitch = (env->slot_bytes + BUFFER_ALIGN - 1) & ~(BUFFER_ALIGN - 1);
  const unsigned count = TCP_RAILS_KEPT * env->slot_count;
  rails->kept = calloc(count, sizeof(*rails->kept));
  rails->free = calloc(count, sizeof(*rails->free));
  if (!rails->kept || !rails->free || !(rails->pool = aligned_alloc(BUFFER_ALIGN, pitch * count)))
    return false;
  rails->nkept = rails->nfree = count;
  for (unsigned i = 0; i < count; i++)
    rails->free[i] = (int)(count - 1 - i);
  return true;
}

/* Notes whether a message has to wait until others are acknowledged. */
static void note_full(tcp_endpoint *ep, bool is_full) {
  if (!is_full)
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
  if (rails->next % TCP_RAILS_REAP == 0 || rails->next - rails->first == rails->nkept)
    tcp_rails_reap(rails);
  const bool is_full = rails->next - rails->first == rails->nkept;
  note_full(rails->ep, is_full);
  if (is_full || rails->nwaiting >= rails->ep->env->slot_count)
    return COLL_T_AGAIN;
  rails->acquired = rails->free[--rails->nfree];
  return COLL_T_DONE;
}

/* Sends what is in the acquired buffer. */
static int post(tcp_rails *rails, const coll_tag *tag, size_t bytes) {
  const uint64_t number = rails->next++;
  *tcp_kept_at(rails, number) =
      (tcp_kept){.tag = *tag, .bytes = (uint32_t)bytes, .buffer = rails->acquired};
  rails->acquired = -1;
  if (rails->nwaiting > 0 || !give(rails, number))
    rails->nwaiting++;
  if (rails->status != COLL_OK)
    return tcp_rails_check(rails);
  count_written(rails);
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
  *count = rails->written;
  if (!rails->was_up && rails->status == COLL_OK)
    return COLL_T_DONE;
  const int status = tcp_rails_check(rails);
  if (status != COLL_T_DONE)
    return status;
  tcp_rails_flush(rails);
  count_written(rails);
  *count = rails->written;
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
