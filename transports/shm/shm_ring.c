/* shm_ring.c: the data path of the shared-memory transport. */
#include "transports/shm/shm_ring.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"

#define SHM_SETTLE_NS  3000u
#define SHM_MOVE_LEAST 2048u /* from this size on the processor's string instruction is faster */
#define SHM_HOT        __attribute__((hot))

/* Rounds up to a power of two; false if that overflows. */
static bool round_up(size_t value, size_t to, size_t *result) {
  if (__builtin_add_overflow(value, to - 1, result))
    return false;
  *result &= ~(to - 1);
  return true;
}

/* Bytes of both sides and of all work, which lie before the heads. */
static size_t front_bytes(unsigned slot_count) {
  return 2 * (sizeof(shm_side) + sizeof(shm_work) * slot_count);
}

/* The sizes of the parts: sides, work and heads (at least one a slot), then one slot. */
static bool lay_out(size_t slot_bytes, unsigned slot_count, size_t *control, size_t *stride) {
  size_t bytes = front_bytes(slot_count) + (size_t)slot_count * 2 * SHM_LINE;
  return slot_count > 0 && slot_bytes < SHM_OFFER && round_up(bytes, SHM_PAGE, control) &&
         round_up(slot_bytes, SHM_PAGE, stride);
}

size_t shm_ring_bytes(size_t slot_bytes, unsigned slot_count) {
  size_t control, stride, total;
  if (!lay_out(slot_bytes, slot_count, &control, &stride) ||
      __builtin_mul_overflow(stride, (size_t)slot_count * 2, &total) ||
      __builtin_add_overflow(total, control, &total) || total > (size_t)INT64_MAX)
    return 0;
  return total;
}

/* Whether the processor reports fast string instructions for short strings too. */
static bool moves_fast(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 4 & 1;
#else
  return false;
#endif
}

void shm_link_init(shm_link *link, void *memory, size_t slot_bytes, unsigned slot_count, int side) {
  size_t control = 0, stride = 0;
  (void)lay_out(slot_bytes, slot_count, &control, &stride);
  shm_side *sides = memory;
  shm_work *works = (shm_work *)(sides + 2);
  shm_slot_head *heads = (shm_slot_head *)(works + 2 * (size_t)slot_count);
  uint8_t *slots = (uint8_t *)memory + control;
  size_t ring = stride * slot_count;
  uint32_t head_count = (uint32_t)((control - front_bytes(slot_count)) / (2 * SHM_LINE));
  COLLI_ASSERT((side == 0 || side == 1) && head_count >= slot_count);
  memset(link, 0, sizeof *link);
  link->mine = sides + side;
  link->theirs = sides + !side;
  link->slot_bytes = slot_bytes;
  link->slot_stride = stride;
  link->slot_count = slot_count;
  link->head_count = head_count;
  link->rx_work = works + (side ? slot_count : 0);
  link->tx_work = works + (side ? 0 : slot_count);
  link->tx_heads = link->tx_head = heads + (side ? head_count : 0);
  link->rx_heads = link->rx_head = heads + (side ? 0 : head_count);
  link->tx_slots = slots + (side ? ring : 0);
  link->rx_slots = slots + (side ? 0 : ring);
  link->rx_seq = 1;
  link->moves_fast = moves_fast();
}

/* Copies at most SHM_INLINE_BYTES without a call. */
static inline void copy_small(void *to, const void *from, size_t bytes) {
  uint8_t *t = to;
  const uint8_t *f = from;
  if (bytes >= 16) {
    memcpy(t, f, 16);
    memcpy(t + bytes - 16, f + bytes - 16, 16);
  } else if (bytes >= 8) {
    memcpy(t, f, 8);
    memcpy(t + bytes - 8, f + bytes - 8, 8);
  } else if (bytes >= 4) {
    memcpy(t, f, 4);
    memcpy(t + bytes - 4, f + bytes - 4, 4);
  } else {
    for (size_t i = 0; i < bytes; i++)
      t[i] = f[i];
  }
}

/* The peer's state, looked at after a change of the ring. */
static inline uint32_t state_of_peer(const shm_link *link) {
  atomic_signal_fence(memory_order_seq_cst); /* the processor may look before; see shm_ring.h */
  return atomic_load_explicit(&link->theirs->state, memory_order_acquire);
}

/* Checks whether the peer must be told of a change that was just made visible. */
static inline void check_peer_state(shm_link *link, uint32_t wakes) {
  uint32_t state = state_of_peer(link);
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
static inline uint32_t capacity_for(const shm_link *link, size_t bytes) {
  return bytes <= SHM_INLINE_BYTES ? link->head_count : link->slot_count;
}

/*
 * Whether fewer than `capacity` messages are on their way. Reads the peer's cache line only if
 * there may be more.
 */
static inline bool has_capacity(shm_link *link, uint32_t capacity) {
  uint32_t sent = (uint32_t)link->tx_total;
  if (SHM_UNLIKELY(sent - link->tx_credit >= capacity)) {
    link->tx_credit = atomic_load_explicit(&link->theirs->credit, memory_order_seq_cst);
    shm_order_after(link);
    return sent - link->tx_credit < capacity;
  }
  return true;
}

/* Full: remembers that this side waits. */
static int note_full(shm_link *link, uint32_t capacity) {
  link->tx_waiting = true;
  link->tx_wanted = capacity;
  if (shm_link_peer_left(link))
    link->attention |= SHM_ATTENTION_LEFT;
  return COLL_T_AGAIN;
}

/*
 * Begins to fetch a line that will be written, from the peer that has read it last. Else the next
 * message is stored into it slowly, and the call after that waits for the store, because it begins
 * with an atomic exchange (3 times as many short messages a second).
 */
static inline void fetch_to_write(const void *line) {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
  __builtin_prefetch(line, 1);
#endif
}

/* Publishes the filled head and steps to the next one. */
static inline void publish(shm_link *link, shm_slot_head *head, const coll_tag *tag,
                           uint32_t bytes) {
  COLLI_ASSERT((size_t)(head - link->tx_heads) < link->head_count);
  COLLI_ASSERT(link->tx_slot < link->slot_count);
  atomic_store_explicit(&head->bytes, bytes, memory_order_relaxed);
  head->tag = *tag;
  link->tx_waiting = false;
  link->tx_total++;
  link->tx_head = head + 1 == link->tx_heads + link->head_count ? link->tx_heads : head + 1;
  link->tx_slot = link->tx_slot + 1 == link->slot_count ? 0 : link->tx_slot + 1;
  shm_order_before(link);
  atomic_store_explicit(&head->seq, (uint32_t)link->tx_total, memory_order_release);
  check_peer_state(link, SHM_STATE_ASLEEP);
  if (SHM_LIKELY((uint32_t)link->tx_total - link->tx_credit < link->head_count))
    fetch_to_write(link->tx_head);
}

void shm_link_tell(shm_link *link) {
  check_peer_state(link, SHM_STATE_ASLEEP);
}

/*
 * Copies a payload into the next slot. The string instruction writes whole lines without reading
 * them first. memcpy() uses it as well, but then stores the first line once more, in the ordinary
 * way. That line must come from the peer's cache first, and the head, which is stored next, waits
 * for it (0.05 us of 0.26 for 4 KiB).
 */
static inline void fill_slot(const shm_link *link, const void *buf, size_t bytes) {
  void *slot = link->tx_slots + link->tx_slot * link->slot_stride;
#if defined(__x86_64__)
  if (link->moves_fast && bytes >= SHM_MOVE_LEAST) {
    __asm__ volatile("rep movsb" : "+D"(slot), "+S"(buf), "+c"(bytes) : : "memory");
    return;
  }
#endif
  memcpy(slot, buf, bytes);
}

SHM_HOT int shm_link_send(shm_link *link, const coll_tag *tag, const void *buf, size_t bytes) {
  uint32_t capacity = capacity_for(link, bytes);
  if (SHM_UNLIKELY(!has_capacity(link, capacity)))
    return note_full(link, capacity);
  shm_slot_head *head = link->tx_head;
  if (bytes <= SHM_INLINE_BYTES)
    copy_small(head->payload, buf, bytes);
  else if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  else
    fill_slot(link, buf, bytes);
  publish(link, head, tag, (uint32_t)bytes);
  return COLL_T_DONE;
}

SHM_HOT int shm_link_acquire(shm_link *link, size_t bytes, void **buf) {
  uint32_t capacity = capacity_for(link, bytes);
  if (SHM_UNLIKELY(!has_capacity(link, capacity)))
    return note_full(link, capacity);
  if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  link->tx_acquired =
      bytes <= SHM_INLINE_BYTES ? link->small : link->tx_slots + link->tx_slot * link->slot_stride;
  *buf = link->tx_acquired;
  return COLL_T_DONE;
}

SHM_HOT void shm_link_commit(shm_link *link, const coll_tag *tag, size_t bytes) {
  COLLI_ASSERT(link->tx_acquired && bytes <= link->slot_bytes);
  shm_slot_head *head = link->tx_head;
  if (bytes <= SHM_INLINE_BYTES)
    copy_small(head->payload, link->tx_acquired, bytes);
  publish(link, head, tag, (uint32_t)bytes);
}

bool shm_link_has_capacity(shm_link *link) {
  return has_capacity(link, link->slot_count);
}

int shm_link_send_note(shm_link *link, const coll_tag *tag, const void *buf, size_t bytes,
                       uint32_t kind, const shm_note *note) {
  if (SHM_UNLIKELY(!has_capacity(link, link->slot_count)))
    return note_full(link, link->slot_count);
  shm_slot_head *head = link->tx_head;
  if (SHM_UNLIKELY(bytes <= SHM_INLINE_BYTES || bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  if (kind == SHM_OFFER)
    fill_slot(link, buf, bytes);
  memcpy(head->payload, note, sizeof *note);
  publish(link, head, tag, (uint32_t)bytes | kind);
  if (kind == SHM_OFFER)
    return COLL_T_DONE;
  link->ref_last = link->tx_total;
  return COLL_T_PENDING;
}

uint64_t shm_link_sent(shm_link *link) {
  link->ref_waiting = false;
  if (SHM_LIKELY(link->ref_last == 0))
    return link->tx_total;
  bool left = shm_link_peer_left(link);
  link->tx_credit = atomic_load_explicit(&link->theirs->credit, memory_order_seq_cst);
  shm_order_after(link);
  uint64_t through = link->tx_total - (uint32_t)((uint32_t)link->tx_total - link->tx_credit);
  COLLI_ASSERT(link->ref_last <= link->tx_total);
  if (through >= link->ref_last) {
    link->ref_last = 0;
    return link->tx_total;
  }
  link->ref_waiting = true;
  link->ref_seen = link->tx_credit;
  if (left)
    link->attention |= SHM_ATTENTION_LEFT;
  return through;
}

/* The head of the next message, or NULL. */
static inline shm_slot_head *next_arrived(shm_link *link) {
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
static inline const void *payload_of(const shm_link *link, const shm_slot_head *head,
                                     size_t bytes) {
  return bytes <= SHM_INLINE_BYTES ? (const void *)head->payload
                                   : link->rx_slots + link->rx_slot * link->slot_stride;
}

SHM_HOT int shm_link_recv(shm_link *link, const coll_tag *expect, void *buf, size_t bytes,
                          coll_tag *got, size_t *got_bytes) {
  shm_slot_head *head = next_arrived(link);
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
    copy_small(buf, head->payload, bytes);
  else if (SHM_UNLIKELY(bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  else
    memcpy(buf, payload_of(link, head, bytes), bytes);
  shm_link_release(link);
  return COLL_T_DONE;
}

SHM_HOT int shm_link_peek(shm_link *link, coll_tag *got, const void **buf, size_t *bytes) {
  shm_slot_head *head = next_arrived(link);
  if (!head)
    return COLL_T_AGAIN;
  size_t size = atomic_load_explicit(&head->bytes, memory_order_relaxed);
  if (SHM_UNLIKELY(size > link->slot_bytes))
    return size & SHM_NOTES ? SHM_T_NOTED : COLL_ERR_PROTOCOL;
  *got = head->tag;
  *bytes = size;
  *buf = payload_of(link, head, size);
  return COLL_T_DONE;
}

uint32_t shm_link_note(const shm_link *link, shm_note *note, coll_tag *tag, const void **buf,
                       size_t *bytes) {
  const shm_slot_head *head = link->rx_head;
  uint32_t word = atomic_load_explicit(&head->bytes, memory_order_relaxed);
  memcpy(note, head->payload, sizeof *note);
  *tag = head->tag;
  *bytes = word & ~SHM_NOTES;
  *buf = link->rx_slots + link->rx_slot * link->slot_stride;
  return word & SHM_NOTES;
}

SHM_HOT void shm_link_release(shm_link *link) {
  COLLI_ASSERT(link->rx_slot < link->slot_count);
  COLLI_ASSERT((size_t)(link->rx_head - link->rx_heads) < link->head_count);
  shm_slot_head *next = link->rx_head + 1;
  link->rx_head = next == link->rx_heads + link->head_count ? link->rx_heads : next;
  link->rx_slot = link->rx_slot + 1 == link->slot_count ? 0 : link->rx_slot + 1;
  shm_order_before(link);
  atomic_store_explicit(&link->mine->credit, link->rx_seq, memory_order_release);
  link->rx_seq++;
  /* A peer that has left needs no credit. That is no error here: what it sent may still be read. */
  uint32_t state = state_of_peer(link);
  if (SHM_UNLIKELY((state & SHM_STATE_WANTS_CREDIT) && state != link->rung)) {
    link->rung = state;
    link->attention |= SHM_ATTENTION_BELL;
  }
}

void shm_link_arm(shm_link *link) {
  uint32_t state = atomic_load_explicit(&link->mine->state, memory_order_relaxed);
  state = (state & ~(SHM_STATE_STEP - 1)) + SHM_STATE_STEP;
  bool wants_credit = link->tx_waiting || link->ref_waiting;
  state |= SHM_STATE_ASLEEP | (wants_credit ? SHM_STATE_WANTS_CREDIT : 0);
  atomic_store_explicit(&link->mine->state, state, memory_order_seq_cst);
}

bool shm_ring_register(void) {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void shm_ring_fence(bool all) {
  if (all && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0)
    return;
  for (uint64_t start = colli_now_ns(); colli_now_ns() - start < SHM_SETTLE_NS;)
    colli_cpu_relax();
}

void shm_link_disarm(shm_link *link) {
  uint32_t state = atomic_load_explicit(&link->mine->state, memory_order_relaxed);
  atomic_store_explicit(&link->mine->state, state & ~(SHM_STATE_STEP - 1), memory_order_relaxed);
}

bool shm_link_ready(shm_link *link) {
  bool ready = link->tx_waiting && has_capacity(link, link->tx_wanted);
  if (ready)
    link->tx_waiting = false; /* once: an abandoned send must not prevent sleep forever */
  if (link->ref_waiting &&
      atomic_load_explicit(&link->theirs->credit, memory_order_seq_cst) != link->ref_seen) {
    link->ref_waiting = false; /* once, as above */
    ready = true;
  }
  if (atomic_load_explicit(&link->rx_head->seq, memory_order_seq_cst) == link->rx_seq) {
    /* A message may lie there for long before somebody asks for it: it counts once. */
    ready |= link->rx_waiting || link->rx_reported != link->rx_seq;
    link->rx_reported = link->rx_seq;
  }
  if (!link->left_reported && shm_link_peer_left(link)) {
    link->left_reported = true;
    ready = true;
  }
  return ready;
}

void shm_link_leave(shm_link *link) {
  uint32_t state = atomic_load_explicit(&link->mine->state, memory_order_relaxed);
  state = (state & ~(SHM_STATE_STEP - 1)) | SHM_STATE_LEFT;
  shm_order_before(link);
  atomic_store_explicit(&link->mine->state, state, memory_order_seq_cst);
  check_peer_state(link, SHM_STATE_ASLEEP);
}

bool shm_link_peer_left(const shm_link *link) {
  if (!(atomic_load_explicit(&link->theirs->state, memory_order_seq_cst) & SHM_STATE_LEFT))
    return false;
  shm_order_after(link);
  return true;
}
