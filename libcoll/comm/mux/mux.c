/* mux.c: lines: what the executor of a communicator that was split has for connections. */
#include "libcoll/comm/mux/mux.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/mux/mux_internal.h"

/* ---- the whole ------------------------------------------------------------------------------- */

colli_mux *colli_mux_create(colli_family *family, size_t slot_bytes, unsigned slot_count) {
  colli_mux *mux = calloc(1, sizeof(*mux));
  if (!mux)
    return NULL;
  mux->family = family;
  mux->slot_bytes = slot_bytes;
  mux->batch = slot_count / 2 + 1;
  mux->window = slot_count + mux->batch - 1; /* slot_count, whatever is not told yet */
  mux->nbuckets = 64;
  mux->link_to = calloc((size_t)family->nranks, sizeof(*mux->link_to));
  mux->buckets = calloc(mux->nbuckets, sizeof(*mux->buckets));
  if (mux->link_to && mux->buckets)
    return mux;
  colli_mux_destroy(mux);
  return NULL;
}

void colli_mux_destroy(colli_mux *mux) {
  if (!mux)
    return;
  while (mux->links) {
    mux_link *link = mux->links;
    mux->links = link->next;
    mux_link_free(link);
  }
  while (mux->spare) {
    mux_msg *msg = mux->spare;
    mux->spare = msg->next;
    free(msg);
  }
  free(mux->link_to);
  free(mux->buckets);
  free(mux);
}

/* Takes in what has come, and sends what was left. */
int colli_mux_progress(colli_mux *mux) {
  for (mux_link *link = mux->links; link; link = link->next) {
    link->filling = false; /* of nobody who is still at it */
    mux_link_drain(link);
    mux_link_flush(link);
  }
  bool moved = mux->moved;
  mux->moved = false;
  return moved;
}

/* ---- communicators --------------------------------------------------------------------------- */

/* Begins a communicator. Numbers go round, so that one is not used again soon. */
colli_mux_child *colli_mux_begin(colli_mux *mux) {
  colli_mux_child *child = calloc(1, sizeof(*child));
  for (int tries = 1; child && tries < MUX_NUMBERS; tries++) {
    int number = (mux->last_number + tries) % MUX_NUMBERS;
    if (number == 0 || mux->children[number])
      continue;
    child->mux = mux;
    child->number = mux->last_number = number;
    mux->children[number] = child;
    return child;
  }
  free(child);
  return NULL;
}

int colli_mux_number(const colli_mux_child *child) {
  return child->number;
}

coll_status colli_mux_complete(colli_mux_child *child, int nranks, const int32_t *base_ranks,
                               const int32_t *ranks_of, const uint16_t *numbers) {
  child->gone = calloc((size_t)nranks, sizeof(*child->gone));
  if (!child->gone)
    return COLL_ERR_NO_MEMORY;
  child->nranks = nranks;
  child->base_ranks = base_ranks;
  child->ranks_of = ranks_of;
  child->numbers = numbers;
  child->next = child->mux->complete;
  child->mux->complete = child;
  return COLL_OK;
}

/* Forgets a message. */
static void free_msg(colli_mux *mux, mux_msg *msg) {
  if (msg->room < mux->slot_bytes) {
    free(msg);
    return;
  }
  msg->next = mux->spare;
  mux->spare = msg;
}

/* Empties a line's queue. */
static void empty(mux_vc *vc) {
  while (vc->first) {
    mux_msg *msg = vc->first;
    vc->first = msg->next;
    free_msg(vc->child->mux, msg);
  }
  vc->queued = 0;
}

static mux_vc **bucket_of(const colli_mux *mux, int number, int peer, int channel) {
  uint64_t hash =
      ((uint64_t)number << 36 | (uint64_t)peer << 4 | (uint64_t)channel) * 0x9e3779b97f4a7c15ull;
  return &mux->buckets[(hash >> 32) & (mux->nbuckets - 1)];
}

/* Frees a line, which its communicator no longer lists. */
static void free_line(mux_vc *vc) {
  colli_mux *mux = vc->child->mux;
  mux_vc **at = bucket_of(mux, vc->child->number, vc->link->peer, vc->channel);
  while (*at != vc)
    at = &(*at)->next_in_bucket;
  *at = vc->next_in_bucket;
  mux->nvcs--;
  if (vc->link->shown == vc)
    vc->link->shown = NULL;
  empty(vc);
  free(vc);
}

/* Tells the peers that this rank has a connection with that nothing is to be had here any more. */
static void tell_peers(const colli_mux_child *child) {
  for (int rank = 0; rank < child->nranks; rank++) {
    mux_link *link = child->mux->link_to[child->base_ranks[rank]];
    if (link && !child->gone[rank])
      mux_link_note(link, MUX_GONE, child->number, 0, 0);
  }
}

/* Ends a communicator, complete or not. */
void colli_mux_close(colli_mux_child *child) {
  if (!child)
    return;
  if (!child->mute)
    tell_peers(child);
  while (child->vcs) {
    mux_vc *vc = child->vcs;
    child->vcs = vc->next_of_child;
    free_line(vc);
  }
  colli_mux_child **at = &child->mux->complete;
  while (*at && *at != child)
    at = &(*at)->next;
  if (*at)
    *at = child->next;
  child->mux->children[child->number] = NULL;
  free(child->gone);
  free(child);
}

/* It failed: what comes for it from now on is thrown away, and the peers need not wait. */
void colli_mux_mute(colli_mux_child *child) {
  if (!child)
    return;
  child->mute = true;
  tell_peers(child);
  for (mux_vc *vc = child->vcs; vc; vc = vc->next_of_child)
    empty(vc);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Doubles the table of lines; without memory it stays as it is. */
static void grow(colli_mux *mux) {
  mux_vc **old = mux->buckets;
  unsigned count = mux->nbuckets;
  mux_vc **buckets = calloc(2 * count, sizeof(*buckets));
  if (!buckets)
    return;
  mux->buckets = buckets;
  mux->nbuckets = 2 * count;
  for (unsigned i = 0; i < count; i++)
    while (old[i]) {
      mux_vc *vc = old[i];
      old[i] = vc->next_in_bucket;
      mux_vc **to = bucket_of(mux, vc->child->number, vc->link->peer, vc->channel);
      vc->next_in_bucket = *to;
      *to = vc;
    }
  free(old);
}

/* The line of a communicator to a peer on a channel, made if need be. */
mux_vc *mux_vc_get(colli_mux_child *child, mux_link *link, int channel) {
  colli_mux *mux = child->mux;
  for (mux_vc *vc = *bucket_of(mux, child->number, link->peer, channel); vc;
       vc = vc->next_in_bucket)
    if (vc->child == child && vc->link == link && vc->channel == channel)
      return vc;
  mux_vc *vc = calloc(1, sizeof(*vc) + mux->window * sizeof(*vc->pending));
  if (!vc)
    return NULL;
  vc->conn = (coll_conn){&colli_mux_ops, -1, channel};
  vc->child = child;
  vc->link = link;
  vc->channel = channel;
  vc->credits = mux->window;
  vc->next_of_child = child->vcs;
  child->vcs = vc;
  if (mux->nvcs++ >= mux->nbuckets)
    grow(mux);
  mux_vc **bucket = bucket_of(mux, child->number, link->peer, channel);
  vc->next_in_bucket = *bucket;
  *bucket = vc;
  return vc;
}

/* Puts a copy of a message at the end of a line's queue. */
bool mux_vc_put(mux_vc *vc, const coll_tag *tag, const void *data, size_t bytes) {
  colli_mux *mux = vc->child->mux;
  bool small = bytes <= mux->slot_bytes / 16;
  mux_msg *msg = small ? NULL : mux->spare;
  if (msg) {
    mux->spare = msg->next;
  } else {
    size_t room = small ? bytes : mux->slot_bytes;
    msg = aligned_alloc(64, (sizeof(*msg) + room + 63) / 64 * 64);
    if (!msg)
      return false;
    msg->room = room;
  }
  msg->next = NULL;
  msg->tag = *tag;
  msg->bytes = bytes;
  if (bytes)
    memcpy(msg->data, data, bytes);
  if (vc->first)
    vc->last->next = msg;
  else
    vc->first = msg;
  vc->last = msg;
  vc->queued++;
  return true;
}

static int mux_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES],
                       int channel, coll_conn **conn) {
  (void)blob;
  colli_mux_child *child = (colli_mux_child *)ep;
  int status = COLL_T_DONE;
  *conn = NULL;
  mux_link *link = mux_link_get(child->mux, child->base_ranks[peer], &status);
  if (!link)
    return status;
  mux_vc *vc = mux_vc_get(child, link, channel);
  if (!vc) {
    coll_transport_failure failure = {.status = COLL_ERR_NO_MEMORY,
                                      .peer = link->peer,
                                      .channel = channel,
                                      .detail = "no memory for a connection"};
    colli_family_report(child->mux->family, &failure);
    return COLL_ERR_NO_MEMORY;
  }
  vc->conn.peer = peer;
  *conn = &vc->conn;
  return COLL_T_DONE;
}

/* The line stays, for what may still come, until its communicator is closed. */
static void mux_disconnect(coll_conn *conn) {
  empty((mux_vc *)conn);
}

/* The peer has ended the communicator. */
static int peer_gone(mux_vc *vc) {
  coll_transport_failure failure = {
      .status = COLL_ERR_PEER_LOST,
      .peer = vc->link->peer,
      .channel = vc->channel,
      .detail = "the peer has ended its communicator; see its own error, or let it take part as "
                "long as the others"};
  colli_family_report(vc->child->mux->family, &failure);
  return COLL_ERR_PEER_LOST;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A caller put something where the line's name goes. */
static int bad_tag(const mux_vc *vc) {
  coll_transport_failure failure = {.status = COLL_ERR_INTERNAL,
                                    .peer = vc->link->peer,
                                    .channel = vc->channel,
                                    .detail = "a tag uses bits that shared connections need"};
  colli_family_report(vc->child->mux->family, &failure);
  return COLL_ERR_INTERNAL;
}

static int mux_slot_acquire(coll_conn *conn, size_t bytes, void **buf) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  (void)bytes;
  if (vc->child->gone[conn->peer])
    return peer_gone(vc);
  if (vc->credits == 0) {
    /* What slot_peek() showed is moved away: the caller must look again in any case. */
    mux_link_drain(link);
    mux_link_flush(link);
    return link->recv_status != COLL_OK ? mux_recv_failed(link) : COLL_T_AGAIN;
  }
  return mux_link_acquire(link, buf);
}

/* Forgets messages that are through. */
static int reap(mux_vc *vc) {
  mux_link *link = vc->link;
  uint64_t count = 0;
  if (vc->npending == 0)
    return link->send_status != COLL_OK ? mux_send_failed(link) : COLL_T_DONE;
  int status = link->conn->ops->sent(link->conn, &count);
  unsigned room = vc->child->mux->window;
  while (vc->npending > 0 && vc->pending[vc->pending_first] <= count) {
    vc->pending_first = (vc->pending_first + 1) % room;
    vc->npending--;
  }
  return status;
}

static int mux_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  unsigned room = vc->child->mux->window;
  if (!mux_fits(tag))
    return bad_tag(vc);
  coll_tag wrapped = mux_wrap(tag, MUX_DATA, vc->child->numbers[conn->peer], vc->channel);
  int status = mux_link_commit(link, &wrapped, bytes);
  if (status > 0)
    return status;
  vc->credits--;
  vc->taken++;
  if (status == COLL_T_DONE) {
    vc->npending = 0; /* messages are through in order */
  } else {
    /* Messages that the peer gave credits for are through: so there is room. */
    if (vc->npending == room)
      reap(vc);
    vc->pending[(vc->pending_first + vc->npending++) % room] = link->taken;
  }
  if (link->nnotes)
    mux_link_flush(link);
  return status;
}

static int mux_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  void *slot;
  int status = mux_slot_acquire(conn, bytes, &slot);
  if (status != COLL_T_DONE)
    return status;
  if (bytes)
    memcpy(slot, buf, bytes);
  return mux_slot_commit(conn, tag, bytes);
}

static int mux_sent(coll_conn *conn, uint64_t *count) {
  mux_vc *vc = (mux_vc *)conn;
  int status = reap(vc);
  *count = vc->taken - vc->npending;
  return status;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int mux_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  while (!vc->first) {
    coll_tag tag;
    int status = mux_link_peek(link, &tag, buf, bytes);
    if (status == COLL_T_AGAIN && vc->child->gone[conn->peer])
      return peer_gone(vc);
    if (status != COLL_T_DONE)
      return status;
    mux_kind kind;
    int number, channel;
    *got = mux_unwrap(&tag, &kind, &number, &channel);
    if (kind == MUX_DATA && number == vc->child->number && channel == vc->channel) {
      link->shown = vc;
      return COLL_T_DONE;
    }
    mux_link_sort(link, &tag, *buf, *bytes);
  }
  *got = vc->first->tag;
  *buf = vc->first->data;
  *bytes = vc->first->bytes;
  return COLL_T_DONE;
}

static int mux_slot_release(coll_conn *conn) {
  mux_vc *vc = (mux_vc *)conn;
  mux_link *link = vc->link;
  colli_mux *mux = vc->child->mux;
  if (link->shown == vc) {
    mux_link_release(link);
  } else if (vc->first) {
    mux_msg *msg = vc->first;
    vc->first = msg->next;
    vc->queued--;
    free_msg(mux, msg);
  }
  if (++vc->consumed == mux->batch) {
    mux_link_note(link, MUX_CREDIT, vc->child->numbers[conn->peer], vc->channel, vc->consumed);
    vc->consumed = 0;
  }
  return COLL_T_DONE;
}

static int mux_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                    size_t *got_bytes) {
  const void *data;
  int status = mux_slot_peek(conn, got, &data, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof(*got)) != 0)
    return COLL_ERR_MISMATCH;
  if (bytes)
    memcpy(buf, data, bytes);
  return mux_slot_release(conn);
}

/* What concerns endpoints as a whole is the affair of the transports behind. */
const coll_transport_ops colli_mux_ops = {.size = sizeof(coll_transport_ops),
                                          .abi = COLL_TRANSPORT_ABI,
                                          .caps = COLL_CAP_SPIN,
                                          .name = "mux",
                                          .connect = mux_connect,
                                          .disconnect = mux_disconnect,
                                          .send = mux_send,
                                          .sent = mux_sent,
                                          .slot_acquire = mux_slot_acquire,
                                          .slot_commit = mux_slot_commit,
                                          .recv = mux_recv,
                                          .slot_peek = mux_slot_peek,
                                          .slot_release = mux_slot_release};
