/*
 * shm_ring.h: two one-way rings of slots in memory that two ranks map. No sockets, no system calls.
 *
 * Who writes what: the producer of a ring writes its slots and their heads; each side writes its
 * own shm_side. No cache line has two writers. A message is published by its head's sequence
 * number; head and slot are given back by the consumer's credit. Short messages travel inside the
 * head, so that one cache line moves for each. Message k has head k modulo the number of heads and
 * slot k modulo that of slots. There are more heads than slots, 64 or more, as many as fit in their
 * pages. So many short messages may be on their way; a long one must wait until the message before
 * it in its slot has been read.
 *
 * A message may also lie elsewhere, in memory of the producer that the consumer has mapped too:
 * then its head has a *note* that says where (SHM_REFERENCE). A note may also offer such memory
 * (SHM_OFFER), beside a payload in the slot. What a note means is decided in shm_region.c, and who
 * reads what lies elsewhere in shm_work.c.
 *
 * Sleeping. A side that goes to sleep says so in its `state`, and then reads the ring again; the
 * other side changes the ring and then reads `state`. At least one of the two must see what the
 * other wrote, so both need a fence between store and read. The producer has none, because every
 * message would pay for it. Instead the sleeper has the kernel run one in every process that has
 * registered for it (shm_ring_fence(), membarrier(2)). Where that is refused to one of them
 * (seccomp, kernels before 4.16) the sleeper waits 3 us instead: a store is usually visible in less
 * than a microsecond, but there is no guarantee. If one takes longer, the sleeper finds the message
 * when its sleep of at most 50 ms ends.
 *
 * Each sleep has its own number: a sleeper is woken once, however much arrives before it runs.
 */
#ifndef COLLI_TRANSPORTS_SHM_RING_H
#define COLLI_TRANSPORTS_SHM_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/shm/shm.h"

#define SHM_LINE         64u
#define SHM_PAGE         4096u
#define SHM_INLINE_BYTES 32u
#define SHM_HEADS_LEAST  64u /* with 21, a window of 64 short messages took a quarter longer */

#define SHM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define SHM_LIKELY(condition)   __builtin_expect(!!(condition), 1)

/* Bits of shm_slot_head.bytes: the head has a note. */
#define SHM_REFERENCE (1u << 31) /* it says where the payload lies */
#define SHM_OFFER     (1u << 30) /* it offers a region; the payload is in the slot */
#define SHM_NOTES     (SHM_REFERENCE | SHM_OFFER)

/* What a data call of a receiver returns, in addition to the values of coll_transport.h. */
#define SHM_T_NOTED (-16) /* there is a message with a note, which the caller must look at */

/* Bits of shm_side.state; the rest of the word is the number of the sleep. */
#define SHM_STATE_ASLEEP       1u /* wake me when a message comes */
#define SHM_STATE_WANTS_CREDIT 2u /* ... or when a slot becomes free */
#define SHM_STATE_LEFT         4u /* I disconnected; nothing more comes, nothing is read */
#define SHM_STATE_STEP         8u

/* Bits of shm_link.attention: what a data call leaves for its caller to do. */
#define SHM_ATTENTION_BELL 1u /* the peer sleeps: wake it */
#define SHM_ATTENTION_LEFT 2u /* the peer disconnected */

typedef struct shm_slot_head {
  _Atomic uint32_t seq; /* number of the message + 1, modulo 2^32; 0: never used */
  _Atomic uint32_t bytes;
  coll_tag tag;
  uint8_t payload[SHM_INLINE_BYTES]; /* of messages that fit */
} shm_slot_head;
_Static_assert(sizeof(shm_slot_head) == SHM_LINE, "one cache line");

/*
 * Says something about the sender's regions, in the head of a message whose payload is too long to
 * be there.
 */
typedef struct shm_note {
  uint32_t region;
  uint32_t forget; /* another region, which the sender has removed; 0: none */
  uint64_t where;  /* reference: offset of the payload; offer: bytes of the region */
  int32_t fd;      /* offer in the same process: the region's descriptor */
  uint32_t number; /* offer: how many came on this connection, from 1 */
} shm_note;
_Static_assert(sizeof(shm_note) <= SHM_INLINE_BYTES, "lies in a head");

/* What one rank tells the other outside of messages. */
typedef struct shm_side {
  alignas(SHM_LINE) _Atomic uint32_t state;
  _Atomic uint32_t ringing;                   /* this rank is about to ring the other's doorbell */
  _Atomic uint32_t fenced;                    /* its process has registered for fences */
  alignas(SHM_LINE) _Atomic uint32_t credit;  /* messages given back, modulo 2^32 */
  _Atomic uint32_t answer;                    /* 2 * number of the last offer, + 1: it is mapped */
  alignas(SHM_LINE) _Atomic uint32_t offered; /* the number of the last offer */
  shm_note offer;                             /* ... for a peer that gets no message with it */
} shm_side;
_Static_assert(sizeof(shm_side) == 3 * SHM_LINE, "part of the segment's layout");

/* What is to be done with a message by reference, and who does it (shm_work.h). Message k has
 * number k modulo that of slots. Written by its receiver; but for `state`, by both. */
typedef struct shm_work {
  alignas(SHM_LINE) _Atomic uint64_t state; /* 4 * number of the message + shm_work_state */
  uint32_t kind;
  uint32_t bytes;
  uint32_t to_region;
  uint32_t own_region; /* 0: no operand */
  uint64_t to, own;    /* offsets */
} shm_work;
_Static_assert(sizeof(shm_work) == SHM_LINE, "one cache line");

/* One rank's private view of the pair of rings. */
typedef struct shm_link {
  shm_side *mine;
  shm_side *theirs;
  size_t slot_bytes;
  size_t slot_stride;
  uint32_t slot_count;
  uint32_t head_count;
  uint32_t attention;

  shm_slot_head *tx_head; /* the next one to fill */
  shm_slot_head *tx_heads;
  uint8_t *tx_slots;
  shm_work *tx_work; /* the peer's, for messages of this side */
  void *tx_acquired;
  uint64_t tx_total;
  uint32_t tx_slot;   /* its slot; a short message passes over it */
  uint32_t tx_credit; /* the peer's credit as last seen */
  uint32_t tx_wanted; /* there is room when fewer messages than this are on their way */
  bool tx_waiting;    /* the last try found none */
  bool moves_fast;    /* the processor's string instructions are fast */
  bool ref_waiting;   /* the last look found references that the peer has not read */
  uint32_t ref_seen;  /* ... at this credit */
  uint64_t ref_last;  /* number of the last message by reference that may not be read yet; or 0 */

  bool rx_waiting; /* the last try found no message */
  bool rx_ref;     /* the message that peek showed lies in the peer's memory */
  uint32_t rx_slot;
  uint32_t rx_seq;        /* what the next message's head will carry */
  shm_slot_head *rx_head; /* where it will come */
  shm_slot_head *rx_heads;
  const uint8_t *rx_slots;
  shm_work *rx_work;

  uint32_t rx_reported; /* the message for which shm_link_ready() has said yes */
  bool left_reported;   /* ... and whether it has for the peer's leaving */
  uint32_t rung;        /* the peer's state for which it was woken */
  alignas(SHM_LINE) uint8_t small[SHM_LINE]; /* a short message while it is filled in */
  const void *order_key; /* if both ends are in one process: the same address at both, see below */
} shm_link;

/*
 * Two threads of one process map a segment at two addresses, so that ThreadSanitizer does not see
 * that the rings order what they do. These tell it, through a key that both ends have; they are
 * nothing in other builds.
 */
#if defined(__SANITIZE_THREAD__)
#define SHM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHM_TSAN 1
#endif
#endif

#ifdef SHM_TSAN
void __tsan_acquire(void *key);
void __tsan_release(void *key);
#endif

/* Orders what this thread did so far before what the other does after its shm_order_after(). */
static inline void shm_order_before(const shm_link *link) {
#ifdef SHM_TSAN
  if (link->order_key)
    __tsan_release((void *)(uintptr_t)link->order_key);
#else
  (void)link;
#endif
}

/* The other half: this thread has seen what the other published. */
static inline void shm_order_after(const shm_link *link) {
#ifdef SHM_TSAN
  if (link->order_key)
    __tsan_acquire((void *)(uintptr_t)link->order_key);
#else
  (void)link;
#endif
}

/* Orders what this thread has read before what follows. ThreadSanitizer does not know fences. */
static inline void shm_order_loads(void) {
#ifdef SHM_TSAN
  __asm__ volatile("" ::: "memory");
#else
  atomic_thread_fence(memory_order_acquire);
#endif
}

/* Makes the view of side 0 or 1 of fresh (zeroed), page-aligned memory. */
void shm_link_init(shm_link *link, void *memory, size_t slot_bytes, unsigned slot_count, int side);

/* Whether a message can be sent now. */
bool shm_link_has_capacity(shm_link *link);

/* Sends a message with a note: SHM_REFERENCE, or SHM_OFFER with its payload. */
int shm_link_send_note(shm_link *link, const coll_tag *tag, const void *buf, size_t bytes,
                       uint32_t kind, const shm_note *note);

/* The message for which a receiver got SHM_T_NOTED: its kind and note; *buf: where its payload is,
 * or would be, in the slot. */
uint32_t shm_link_note(const shm_link *link, shm_note *note, coll_tag *tag, const void **buf,
                       size_t *bytes);

/* How many messages no longer need the sender's memory. */
uint64_t shm_link_sent(shm_link *link);

/* After a change that no message tells of: notes whether the peer must be woken. */
void shm_link_tell(shm_link *link);

/* Registers this process for the fences of others; false if the kernel refuses. */
bool shm_ring_register(void);

/*
 * Called between arm and ready. After it, every store that a read of `state` overtook is visible.
 * `all`: all peers are `fenced`.
 */
void shm_ring_fence(bool all);

/* Says that this side goes to sleep / woke up. */
void shm_link_arm(shm_link *link);
void shm_link_disarm(shm_link *link);

/* After arm: whether a data call has something to do that it was not told of before. */
bool shm_link_ready(shm_link *link);

/* Says that this side leaves; it may be unmapped afterwards. */
void shm_link_leave(shm_link *link);

/* Whether the peer said so. */
bool shm_link_peer_left(const shm_link *link);

#endif
