/* shm_ring.c: rings in shared memory: all but the data path (shm_data.h). */
#include "transports/shm/shm_data.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"

#define SHM_SETTLE_NS 3000u

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
  const size_t heads = slot_count > SHM_HEADS_LEAST ? slot_count : SHM_HEADS_LEAST;
  size_t bytes = front_bytes(slot_count) + heads * 2 * SHM_LINE;
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

void shm_link_tell(shm_link *link) {
  shm_check_peer_state(link, SHM_STATE_ASLEEP);
}

bool shm_link_has_capacity(shm_link *link) {
  return shm_has_capacity(link, link->slot_count);
}

int shm_link_send_note(shm_link *link, const coll_tag *tag, const void *buf, size_t bytes,
                       uint32_t kind, const shm_note *note) {
  if (SHM_UNLIKELY(!shm_has_capacity(link, link->slot_count)))
    return shm_note_full(link, link->slot_count);
  shm_slot_head *head = link->tx_head;
  if (SHM_UNLIKELY(bytes <= SHM_INLINE_BYTES || bytes > link->slot_bytes))
    return COLL_ERR_INTERNAL;
  if (kind == SHM_OFFER)
    shm_fill_slot(link, buf, bytes);
  memcpy(head->payload, note, sizeof *note);
  shm_publish(link, head, tag, (uint32_t)bytes | kind);
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
  bool ready = link->tx_waiting && shm_has_capacity(link, link->tx_wanted);
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
  shm_check_peer_state(link, SHM_STATE_ASLEEP);
}

bool shm_link_peer_left(const shm_link *link) {
  if (!(atomic_load_explicit(&link->theirs->state, memory_order_seq_cst) & SHM_STATE_LEFT))
    return false;
  shm_order_after(link);
  return true;
}
