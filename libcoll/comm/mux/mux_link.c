/* mux_link.c: the one connection to a peer that all virtual channels to it share. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/mux/mux_internal.h"
#include "libcoll/sched/tag.h"

bool mux_fits(const coll_tag *tag) {
  return !colli_tag_get(tag, COLLI_TAG_COMM_NUMBER) && !colli_tag_get(tag, COLLI_TAG_SHARED);
}

coll_tag mux_wrap(const coll_tag *tag, mux_kind kind, int number, int channel) {
  coll_tag out = *tag;
  colli_tag_put(&out, COLLI_TAG_COMM_NUMBER, (uint64_t)number);
  colli_tag_put(&out, COLLI_TAG_SHARED_CHANNEL, (uint64_t)channel);
  colli_tag_put(&out, COLLI_TAG_SHARED_KIND, (uint64_t)kind);
  return out;
}

/* An executor's tag, and the decoded contents of its free bits. */
static coll_tag unwrap(const coll_tag *tag, mux_kind *kind, int *number, int *channel) {
  coll_tag out = *tag;
  *kind = (mux_kind)colli_tag_get(tag, COLLI_TAG_SHARED_KIND);
  *channel = (int)colli_tag_get(tag, COLLI_TAG_SHARED_CHANNEL);
  *number = (int)colli_tag_get(tag, COLLI_TAG_COMM_NUMBER);
  colli_tag_clear(&out, COLLI_TAG_COMM_NUMBER);
  colli_tag_clear(&out, COLLI_TAG_SHARED);
  return out;
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Reports a failure that the connection itself did not report. */
static void report_failure(mux_link *link, coll_status status, const char *detail) {
  /* A shortage on this rank is not the peer's fault. */
  coll_transport_failure failure = {.status = status,
                                    .peer = status == COLL_ERR_NO_MEMORY ? -1 : link->peer,
                                    .channel = COLLI_MUX_CHANNEL,
                                    .detail = detail};
  colli_family_report(link->mux->family, &failure);
}

/* Records the failure of one direction, with the record in family->reported. */
static int latch(mux_link *link, coll_status status, coll_status *kept, coll_error *error) {
  if (*kept == COLL_OK) {
    *kept = status;
    *error = link->mux->family->reported;
    link->mux->moved = true;
  }
  return status;
}

static int latch_send(mux_link *link, int status) {
  return latch(link, (coll_status)status, &link->send_status, &link->send_error);
}

static int latch_recv(mux_link *link, int status) {
  return latch(link, (coll_status)status, &link->recv_status, &link->recv_error);
}

int mux_send_failed(mux_link *link) {
  link->mux->family->reported = link->send_error;
  return (int)link->send_status;
}

int mux_recv_failed(mux_link *link) {
  link->mux->family->reported = link->recv_error;
  return (int)link->recv_status;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The link to a peer, connected on first use. */
mux_link *mux_link_get(colli_mux *mux, int peer, int *status) {
  COLLI_ASSERT_RANK(peer >= 0 && peer < mux->family->nranks && peer != mux->family->rank,
                    mux->family->rank);
  mux_link *link = mux->link_to[peer];
  if (link)
    return link;
  link = calloc(1, sizeof(*link));
  if (!link) {
    coll_transport_failure failure = {.status = COLL_ERR_NO_MEMORY,
                                      .peer = -1,
                                      .channel = COLLI_MUX_CHANNEL,
                                      .detail = "out of memory for a connection"};
    colli_family_report(mux->family, &failure);
    *status = COLL_ERR_NO_MEMORY;
    return NULL;
  }
  *status = colli_family_connect(mux->family, peer, COLLI_MUX_CHANNEL, &link->conn);
  if (*status != COLL_T_DONE) {
    free(link);
    return NULL;
  }
  link->mux = mux;
  link->peer = peer;
  link->next = mux->links;
  mux->links = link;
  mux->link_to[peer] = link;
  return link;
}

void mux_link_free(mux_link *link) {
  mux_link_flush(link);
  link->conn->ops->disconnect(link->conn);
  free(link->notes);
  free(link);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Acquires a slot of the connection. Always a whole one, because the next message, which may be
 * larger, may use it instead. */
int mux_link_acquire(mux_link *link, void **slot) {
  if (link->send_status != COLL_OK)
    return mux_send_failed(link);
  int status = link->conn->ops->slot_acquire(link->conn, link->mux->slot_bytes, slot);
  if (status > 0)
    return latch_send(link, status);
  if (status == COLL_T_DONE)
    link->filling = true;
  return status;
}

/* Sends the acquired slot. */
int mux_link_commit(mux_link *link, const coll_tag *tag, size_t bytes) {
  COLLI_ASSERT_RANK(link->filling && bytes <= link->mux->slot_bytes, link->mux->family->rank);
  link->filling = false;
  int status = link->conn->ops->slot_commit(link->conn, tag, bytes);
  if (status > 0)
    return latch_send(link, status);
  link->taken++;
  return status;
}

/* Sends pending notes, unless a virtual channel is filling the slot. */
void mux_link_flush(mux_link *link) {
  COLLI_ASSERT_RANK(link->nnotes <= link->notes_capacity, link->mux->family->rank);
  int sent = 0;
  while (sent < link->nnotes && !link->filling) {
    void *slot;
    if (mux_link_acquire(link, &slot) != COLL_T_DONE)
      break;
    if (mux_link_commit(link, &link->notes[sent++], 0) > 0)
      break;
  }
  if (sent == 0)
    return;
  link->nnotes -= sent;
  link->mux->moved = true;
  memmove(link->notes, link->notes + sent, (size_t)link->nnotes * sizeof(*link->notes));
}

/* Sends a message without payload, now or later. */
void mux_link_note(mux_link *link, mux_kind kind, int number, int channel, uint64_t word) {
  if (link->nnotes == link->notes_capacity) {
    int capacity = link->notes_capacity ? 2 * link->notes_capacity : 8;
    coll_tag *notes = realloc(link->notes, (size_t)capacity * sizeof(*notes));
    if (!notes) {
      report_failure(link, COLL_ERR_NO_MEMORY, "out of memory for messages on a shared connection");
      latch_send(link, COLL_ERR_NO_MEMORY);
      return;
    }
    link->notes = notes;
    link->notes_capacity = capacity;
  }
  link->notes[link->nnotes++] = mux_wrap(&(coll_tag){{word, 0, 0}}, kind, number, channel);
  mux_link_flush(link);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* The next message of the connection. */
static int peek_link(mux_link *link, coll_tag *tag, const void **data, size_t *bytes) {
  if (link->recv_status != COLL_OK)
    return mux_recv_failed(link);
  int status = link->conn->ops->slot_peek(link->conn, tag, data, bytes);
  return status > 0 ? latch_recv(link, status) : status;
}

void mux_link_release(mux_link *link) {
  int status = link->conn->ops->slot_release(link->conn);
  if (status > 0)
    latch_recv(link, status);
}

/* The peer broke the protocol. */
static void fail_protocol(mux_link *link, const char *detail) {
  report_failure(link, COLL_ERR_PROTOCOL, detail);
  latch_recv(link, COLL_ERR_PROTOCOL);
}

/* The peer has closed a communicator, to which it gave the number `number`. */
static void heard_gone(mux_link *link, int number) {
  for (colli_mux_child *child = link->mux->complete; child; child = child->next) {
    int rank = child->ranks_of[link->peer];
    if (rank >= 0 && child->numbers[rank] == number)
      child->gone[rank] = true;
  }
}

/* Handles data or credits for a virtual channel of a communicator that exists here. */
static void heard_message(mux_link *link, mux_vc *vc, mux_kind kind, const coll_tag *tag,
                          const void *data, size_t bytes) {
  if (kind == MUX_DATA) {
    if (vc->queued == link->mux->window)
      fail_protocol(link, "more messages came on a shared connection than there were credits for");
    else if (!mux_vc_put(vc, tag, data, bytes)) {
      report_failure(link, COLL_ERR_NO_MEMORY,
                     "out of memory for a message on a shared connection");
      latch_recv(link, COLL_ERR_NO_MEMORY);
    }
  } else if (tag->word[0] > link->mux->window - vc->credits) {
    fail_protocol(link, "more credits came on a shared connection than messages were sent");
  } else {
    vc->credits += (unsigned)tag->word[0];
    COLLI_ASSERT(vc->credits <= link->mux->window);
  }
}

/* Moves the peeked message to its queue, and releases it. */
static void sort_message(mux_link *link, const coll_tag *wrapped, const void *data, size_t bytes) {
  mux_kind kind;
  int number, channel;
  coll_tag tag = unwrap(wrapped, &kind, &number, &channel);
  colli_mux_child *child = link->mux->children[number];
  link->mux->moved = true;
  if (kind == MUX_GONE) {
    heard_gone(link, number);
  } else if (kind > MUX_GONE || channel >= COLLI_CHANNELS) {
    fail_protocol(link, "a message of an unknown kind came on a shared connection");
  } else if (!child) {
    /* The communicator was destroyed here, or could not be created. */
    mux_link_note(link, MUX_GONE, number, 0, 0);
  } else if (!child->mute) {
    mux_vc *vc = mux_vc_get(child, link, channel);
    if (vc) {
      heard_message(link, vc, kind, &tag, data, bytes);
    } else {
      report_failure(link, COLL_ERR_NO_MEMORY, "out of memory for a shared connection");
      latch_recv(link, COLL_ERR_NO_MEMORY);
    }
  }
  mux_link_release(link);
}

int mux_link_take(mux_link *link) {
  coll_tag tag;
  const void *data;
  size_t bytes;
  int status = peek_link(link, &tag, &data, &bytes);
  if (status == COLL_T_DONE)
    sort_message(link, &tag, data, bytes);
  return status;
}

int mux_link_peek_for(mux_link *link, const mux_vc *vc, coll_tag *tag, const void **data,
                      size_t *bytes) {
  for (;;) {
    coll_tag wrapped;
    mux_kind kind;
    int number, channel;
    int status = peek_link(link, &wrapped, data, bytes);
    if (status != COLL_T_DONE)
      return status;
    *tag = unwrap(&wrapped, &kind, &number, &channel);
    if (kind == MUX_DATA && number == vc->child->number && channel == vc->channel)
      return COLL_T_DONE;
    sort_message(link, &wrapped, *data, *bytes);
  }
}

void mux_link_drain(mux_link *link) {
  while (link->recv_status == COLL_OK && mux_link_take(link) == COLL_T_DONE)
    ;
}
