/* mux_vc.c: the table of a family's virtual channels, and the queue of each. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/comm/mux/mux_internal.h"

#define SMALL_PART 16 /* messages up to this fraction of a slot get memory of that size */

static mux_vc **bucket_of(const colli_mux *mux, int number, int peer, int channel) {
  uint64_t hash =
      ((uint64_t)number << 36 | (uint64_t)peer << 4 | (uint64_t)channel) * 0x9e3779b97f4a7c15ull;
  return &mux->buckets[(hash >> 32) & (mux->nbuckets - 1)];
}

/* Doubles the hash table; if out of memory, leaves it unchanged. */
static void grow_table(colli_mux *mux) {
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

/* The virtual channel of a communicator to a peer on a channel, created if necessary. */
mux_vc *mux_vc_get(colli_mux_child *child, mux_link *link, int channel) {
  colli_mux *mux = child->mux;
  for (mux_vc *vc = *bucket_of(mux, child->number, link->peer, channel); vc;
       vc = vc->next_in_bucket)
    if (vc->child == child && vc->link == link && vc->channel == channel)
      return vc;
  mux_vc *vc = calloc(1, sizeof(*vc) + mux->window * sizeof(*vc->pending));
  if (!vc)
    return NULL;
  vc->conn = (coll_conn){NULL, -1, channel}; /* the executor's once mux_connect() fills it in */
  vc->child = child;
  vc->link = link;
  vc->channel = channel;
  vc->credits = mux->window;
  vc->next_of_child = child->vcs;
  child->vcs = vc;
  if (mux->nvcs++ >= mux->nbuckets)
    grow_table(mux);
  mux_vc **bucket = bucket_of(mux, child->number, link->peer, channel);
  vc->next_in_bucket = *bucket;
  *bucket = vc;
  return vc;
}

/* Memory for a message of `bytes` bytes. */
static mux_msg *take_msg(colli_mux *mux, size_t bytes) {
  COLLI_ASSERT(bytes <= mux->slot_bytes);
  bool is_small = bytes <= mux->slot_bytes / SMALL_PART;
  mux_msg *msg = mux->spare[is_small];
  if (msg) {
    mux->spare[is_small] = msg->next;
    return msg;
  }
  size_t capacity = is_small ? mux->slot_bytes / SMALL_PART : mux->slot_bytes;
  msg = aligned_alloc(64, (sizeof(*msg) + capacity + 63) / 64 * 64);
  if (msg)
    msg->is_small = is_small;
  return msg;
}

/* Appends a copy of a message to a virtual channel's queue. */
bool mux_vc_put(mux_vc *vc, const coll_tag *tag, const void *data, size_t bytes) {
  mux_msg *msg = take_msg(vc->child->mux, bytes);
  if (!msg)
    return false;
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
  COLLI_ASSERT(vc->queued <= vc->child->mux->window);
  return true;
}

/* Keeps the memory of a message for later ones. */
static void recycle_msg(colli_mux *mux, mux_msg *msg) {
  msg->next = mux->spare[msg->is_small];
  mux->spare[msg->is_small] = msg;
}

void mux_vc_pop(mux_vc *vc) {
  COLLI_ASSERT(vc->first && vc->queued > 0);
  COLLI_ASSERT((vc->first == vc->last) == (vc->queued == 1));
  mux_msg *msg = vc->first;
  vc->first = msg->next;
  vc->queued--;
  recycle_msg(vc->child->mux, msg);
}

void mux_vc_empty(mux_vc *vc) {
  while (vc->first)
    mux_vc_pop(vc);
}

void mux_vc_free(mux_vc *vc) {
  colli_mux *mux = vc->child->mux;
  mux_vc **at = bucket_of(mux, vc->child->number, vc->link->peer, vc->channel);
  while (*at != vc)
    at = &(*at)->next_in_bucket;
  *at = vc->next_in_bucket;
  COLLI_ASSERT(mux->nvcs > 0);
  mux->nvcs--;
  mux_vc_empty(vc);
  free(vc);
}
