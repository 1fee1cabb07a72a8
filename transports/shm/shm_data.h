/*
 * shm_data.h: the data path of the rings, inlined into the calls of coll_transport_ops. The caller
 * must look at `attention` after each. COLL_ERR_PROTOCOL: the peer's memory makes no sense.
 * COLL_ERR_INTERNAL: bytes > slot_bytes.
 */
#ifndef COLLI_TRANSPORTS_SHM_DATA_H
#define COLLI_TRANSPORTS_SHM_DATA_H

#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/copy.h"
#include "transports/shm/shm_ring.h"

#define SHM_MOVE_LEAST  2048u /* from this size on the processor's string instruction is faster */
#define SHM_FETCH_AHEAD 2u    /* heads between the next one and that which is fetched */

/* The peer's state, looked at after a change of the ring. */
static inline uint32_t shm_state_of_peer(const shm_link *link) {
  atomic_signal_fence(memory_order_seq_cst); /* the processor may look before; see shm_ring.h */
  return atomic_load_explicit(&link->theirs->state, memory_order_acquire);
}

/* Checks whether the peer must be told of a change that was just made visible. */
static inline void shm_check_peer_state(shm_link *link, uint32_t wakes) {
  uint32_t state = shm_state_of_peer(link);
  if (SHM_UNLIKELY(state & (SHM_STATE_ASLEEP | SHM_STATE_LEFT))) {
    if (state & SHM_STATE_LEFT) {
      link->attention |= SHM_ATTENTION_LEFT;
    } else if ((state & wakes) && state != link->rung) {
      link->rung = state;
      link->attention |= SHM_ATTENTION_BELL;
    }
  }
}

/* How many messages may be on their way when one of `bytes` bytes follows. */
static inline uint32_t shm_capacity_for(const shm_link *link, size_t bytes) {
  return bytes <= SHM_INLINE_BYTES ? link->head_count : link->slot_count;
}

/*
 * Whether fewer than `capacity` messages are on their way. Reads the peer's cache line only if
 * there may be more.
 */
static inline bool shm_has_capacity(shm_link *link, uint32_t capacity) {
  uint32_t sent = (uint32_t)link->tx_total;
  if (SHM_UNLIKELY(sent - link->tx_credit >= capacity)) {
    link->tx_credit = atomic_load_explicit(&link->theirs->credit, memory_order_seq_cst);
    shm_order_after(link);
    return sent - link->tx_credit < capacity;
  }
  return true;
}

/* Full: remembers that this side waits. */
static inline int shm_note_full(shm_link *link, uint32_t capacity) {
  link->tx_waiting = true;
  link->tx_wanted = capacity;
  if (shm_link_peer_left(link))
    link->attention |= SHM_ATTENTION_LEFT;
  return COLL_T_AGAIN;
}

/*
 * Begins to fetch a head that will be written, from the peer that has read it last. Else the
 * message is stored into it slowly, and the call after that waits for the store, because it begins
 * with an atomic exchange (3 times as many short messages a second). Not the next head, which was
 * fetched before: a line from a distant core takes longer than a message (a quarter more messages).
 */
static inline void shm_fetch_to_write(const shm_link *link) {
  if (SHM_UNLIKELY((uint32_t)link->tx_total + SHM_FETCH_AHEAD - link->tx_credit >=
                   link->head_count))
    return; /* as far as this side knows, the peer may still read it */
  const shm_slot_head *head = link->tx_head + SHM_FETCH_AHEAD;
  if (head >= link->tx_heads + link->head_count)
    head -= link->head_count;
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*(const char *)head));
#else
  __builtin_prefetch(head, 1);
#endif
}

/* Publishes the filled head and steps to the next one. */
static inline void shm_publish(shm_link *link, shm_slot_head *head, const coll_tag *tag,
                               uint32_t bytes) {
  COLLI_ASSERT((size_t)(head - link->tx_heads) < link->head_count);
  COLLI_ASSERT(link->tx_slot < link->slot_count);
  atomic_store_explicit(&head->bytes, bytes, memory_order_relaxed);
  colli_copy_tag(&head->tag, tag);
  link->tx_waiting = false;
  link->tx_total++;
  link->tx_head = head + 1 == link->tx_heads + link->head_count ? link->tx_heads : head + 1;
  link->tx_slot = link->tx_slot + 1 == link->slot_count ? 0 : link->tx_slot + 1;
  shm_order_before(link);
  atomic_store_explicit(&head->seq, (uint32_t)link->tx_total, memory_order_release);
  shm_check_peer_state(link, SHM_STATE_ASLEEP);
  shm_fetch_to_write(link);
}

/*
 * Copies a payload into the next slot. The string instruction writes whole lines without reading
 * them first. memcpy() uses it as well, but then stores the first line once more, in the ordinary
 * way. That line must come from the peer's cache first, and the head, which is stored next, waits
 * for it (0.05 us of 0.26 for 4 KiB).
 */
static inline void shm_fill_slot(const shm_link *link, const void *buf, size_t bytes) {
  void *slot = link->tx_slots + link->tx_slot * link->slot_stride;
#if defined(__x86_64__)
  if (link->moves_fast && bytes >= SHM_MOVE_LEAST) {
    __asm__ volatile("rep movsb" : "+D"(slot), "+S"(buf), "+c"(bytes) : : "memory");
    return;
  }
#endif
  memcpy(slot, buf, bytes);
}

static inline int shm_link_send(shm_link *link, const coll_tag *tag, const void *buf,
                                size_t bytes) {
  uint32_t capacity = shm_capacity_for(link, bytes);
  if (SHM_UNLIKELY(!shm_has_capacity(link, capacity)))
    return shm_note_full(link, capacity);
  shm_slot_head *head = link->tx_head;
  if (bytes <= SHM_INLINE_BYTES)
    colli_copy_small(head->payload, buf, bytes);
  else if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  else
    shm_fill_slot(link, buf, bytes);
  shm_publish(link, head, tag, (uint32_t)bytes);
  return COLL_T_DONE;
}

static inline int shm_link_acquire(shm_link *link, size_t bytes, void **buf) {
  uint32_t capacity = shm_capacity_for(link, bytes);
  if (SHM_UNLIKELY(!shm_has_capacity(link, capacity)))
    return shm_note_full(link, capacity);
  if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  link->tx_acquired =
      bytes <= SHM_INLINE_BYTES ? link->small : link->tx_slots + link->tx_slot * link->slot_stride;
  *buf = link->tx_acquired;
  return COLL_T_DONE;
}

static inline void shm_link_commit(shm_link *link, const coll_tag *tag, size_t bytes) {
  COLLI_ASSERT(link->tx_acquired && bytes <= link->slot_bytes);
  shm_slot_head *head = link->tx_head;
  if (bytes <= SHM_INLINE_BYTES)
    colli_copy_small(head->payload, link->tx_acquired, bytes);
  shm_publish(link, head, tag, (uint32_t)bytes);
}

static inline void shm_link_release(shm_link *link) {
  COLLI_ASSERT(link->rx_slot < link->slot_count);
  COLLI_ASSERT((size_t)(link->rx_head - link->rx_heads) < link->head_count);
  shm_slot_head *next = link->rx_head + 1;
  link->rx_head = next == link->rx_heads + link->head_count ? link->rx_heads : next;
  link->rx_slot = link->rx_slot + 1 == link->slot_count ? 0 : link->rx_slot + 1;
  shm_order_before(link);
  atomic_store_explicit(&link->mine->credit, link->rx_seq, memory_order_release);
  link->rx_seq++;
  /* A peer that has left needs no credit. That is no error here: what it sent may still be read. */
  uint32_t state = shm_state_of_peer(link);
  if (SHM_UNLIKELY((state & SHM_STATE_WANTS_CREDIT) && state != link->rung)) {
    link->rung = state;
    link->attention |= SHM_ATTENTION_BELL;
  }
}

/* The head of the next message, or NULL. */
static inline shm_slot_head *shm_next_arrived(shm_link *link) {
  shm_slot_head *head = link->rx_head;
  if (atomic_load_explicit(&head->seq, memory_order_acquire) == link->rx_seq) {
    shm_order_after(link);
    link->rx_waiting = false;
    return head;
  }
  link->rx_waiting = true;
  /* The peer publishes before it leaves, so a side that sees that it left must look once more. */
  if (SHM_UNLIKELY(shm_link_peer_left(link))) {
    if (atomic_load_explicit(&head->seq, memory_order_acquire) == link->rx_seq) {
      shm_order_after(link);
      link->rx_waiting = false;
      return head;
    }
    link->attention |= SHM_ATTENTION_LEFT;
  }
  return NULL;
}

/* Where the payload of an arrived message lies. */
static inline const void *shm_payload_of(const shm_link *link, const shm_slot_head *head,
                                         size_t bytes) {
  return bytes <= SHM_INLINE_BYTES ? (const void *)head->payload
                                   : link->rx_slots + link->rx_slot * link->slot_stride;
}

static inline int shm_link_recv(shm_link *link, const coll_tag *expect, void *buf, size_t bytes,
                                coll_tag *got, size_t *got_bytes) {
  shm_slot_head *head = shm_next_arrived(link);
  if (!head)
    return COLL_T_AGAIN;
  size_t size = atomic_load_explicit(&head->bytes, memory_order_relaxed);
  coll_tag tag = head->tag;
  if (SHM_UNLIKELY(size & SHM_NOTES))
    return SHM_T_NOTED;
  if (SHM_UNLIKELY(size != bytes || tag.word[0] != expect->word[0] ||
                   tag.word[1] != expect->word[1] || tag.word[2] != expect->word[2])) {
    *got = tag;
    *got_bytes = size;
    return size > link->slot_bytes ? COLL_ERR_PROTOCOL : COLL_ERR_MISMATCH;
  }
  if (bytes <= SHM_INLINE_BYTES)
    colli_copy_small(buf, head->payload, bytes);
  else if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  else
    memcpy(buf, shm_payload_of(link, head, bytes), bytes);
  shm_link_release(link);
  return COLL_T_DONE;
}

static inline int shm_link_peek(shm_link *link, coll_tag *got, const void **buf, size_t *bytes) {
  shm_slot_head *head = shm_next_arrived(link);
  if (!head)
    return COLL_T_AGAIN;
  size_t size = atomic_load_explicit(&head->bytes, memory_order_relaxed);
  if (SHM_UNLIKELY(size > link->slot_bytes))
    return size & SHM_NOTES ? SHM_T_NOTED : COLL_ERR_PROTOCOL;
  *got = head->tag;
  *bytes = size;
  *buf = shm_payload_of(link, head, size);
  return COLL_T_DONE;
}

#endif
