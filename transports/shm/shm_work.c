/* shm_work.c: work on messages by reference: announced, claimed, done. */
#include "transports/shm/shm_work.h"

#include <string.h>

#include "transports/shm/shm_internal.h"

/* The state of the work on a message. */
static uint64_t state_of(uint32_t number, shm_work_state state) {
  return 4 * (uint64_t)number + (uint64_t)state;
}

/* The receiver's entry for the message that comes `ahead` messages behind the next one. */
static shm_work *rx_entry(const shm_link *link, uint32_t ahead) {
  return &link->rx_work[(link->rx_slot + ahead) % link->slot_count];
}

/* Where a pointer into a region of this rank lies, if the peer may work there. */
static bool offset_in(shm_conn *conn, uint32_t region, const void *at, size_t bytes,
                      uint64_t *where) {
  const shm_share *share = shm_region_share(conn, region);
  if (!share)
    return false;
  *where = (uintptr_t)at - (uintptr_t)share->memory;
  return *where <= share->bytes && bytes <= share->bytes - *where;
}

int shm_offer_work(coll_conn *base, const coll_work_offer *offer) {
  shm_conn *conn = (shm_conn *)base;
  shm_link *link = &conn->link;
  uint64_t to, own = 0;
  size_t count = offer->bytes / offer->slice + (offer->bytes % offer->slice != 0);
  /* A peer whose regions are all unknown here sends no references. */
  if (conn->gate || !conn->shared->mappings || offer->slice < SHM_REF_LEAST ||
      offer->slice > link->slot_bytes || count + offer->skip > link->slot_count ||
      !offset_in(conn, offer->to_region, offer->to, offer->bytes, &to) ||
      (offer->own_region && !offset_in(conn, offer->own_region, offer->own, offer->bytes, &own)))
    return 0;
  for (uint32_t i = 0; i < count; i++) {
    size_t done = i * offer->slice, left = offer->bytes - done;
    shm_work *entry = rx_entry(link, offer->skip + i);
    entry->kind = offer->kind;
    entry->bytes = (uint32_t)(left < offer->slice ? left : offer->slice);
    entry->to_region = offer->to_region;
    entry->own_region = offer->own_region;
    entry->to = to + done;
    entry->own = own + done;
    shm_order_before(link);
    atomic_store_explicit(&entry->state, state_of(link->rx_seq + offer->skip + i, SHM_WORK_OPEN),
                          memory_order_release);
  }
  return 1;
}

unsigned shm_work_next(const shm_conn *conn) {
  const shm_link *link = &conn->link;
  uint64_t state = atomic_load_explicit(&rx_entry(link, 0)->state, memory_order_acquire);
  if (state / 4 != link->rx_seq)
    return 0;
  shm_order_after(link);
  return state % 4;
}

/* Claims the work on a message if nobody has yet. */
static bool claim_entry(const shm_link *link, shm_work *entry, uint32_t number) {
  uint64_t open = state_of(number, SHM_WORK_OPEN);
  if (atomic_load_explicit(&entry->state, memory_order_relaxed) != open ||
      !atomic_compare_exchange_strong(&entry->state, &open, state_of(number, SHM_WORK_CLAIMED)))
    return false;
  shm_order_after(link);
  return true;
}

/* Sets the state of the work. */
static void set_state(const shm_link *link, shm_work *entry, shm_work_state state) {
  uint64_t now = atomic_load_explicit(&entry->state, memory_order_relaxed);
  shm_order_before(link);
  atomic_store_explicit(&entry->state, now / 4 * 4 + (uint64_t)state, memory_order_release);
}

/* A message by reference on its way, as its head says. */
typedef struct message {
  uint32_t number;
  uint32_t bytes;
  shm_note note;
} message;

/* Reads a head; false if it is not of a message by reference. */
static bool read_head(const shm_slot_head *head, uint32_t number, message *m) {
  uint32_t word = atomic_load_explicit(&head->bytes, memory_order_relaxed);
  m->number = number;
  m->bytes = word & ~SHM_NOTES;
  memcpy(&m->note, head->payload, sizeof m->note);
  return (word & SHM_NOTES) == SHM_REFERENCE;
}

/* The message that comes `ahead` messages behind the next one, if it is there and by reference. */
static bool find_arrived(const shm_link *link, uint32_t ahead, message *m) {
  const shm_slot_head *head = link->rx_head + ahead;
  head -= head < link->rx_heads + link->head_count ? 0 : link->head_count;
  uint32_t number = link->rx_seq + ahead;
  if (atomic_load_explicit(&head->seq, memory_order_acquire) != number)
    return false;
  shm_order_after(link);
  return read_head(head, number, m);
}

/* The message of this side after which `behind` others were sent, and the peer's entry for it. */
static bool find_sent(const shm_link *link, uint32_t behind, message *m, shm_work **entry) {
  uint32_t head = (uint32_t)(link->tx_head - link->tx_heads) + link->head_count - 1 - behind;
  uint32_t slot = link->tx_slot + link->slot_count - 1 - behind % link->slot_count;
  *entry = &link->tx_work[slot % link->slot_count];
  return read_head(&link->tx_heads[head % link->head_count], (uint32_t)link->tx_total - behind, m);
}

/* How many messages of this side the peer has not given back. */
static uint32_t count_in_flight(const shm_link *link) {
  return (uint32_t)link->tx_total -
         atomic_load_explicit(&link->theirs->credit, memory_order_acquire);
}

/* Fills in what a claimed entry and its message say; false if they make no sense. */
static bool resolve_work(shm_conn *conn, const shm_work *entry, const message *m, bool mine,
                         coll_work *work) {
  char *(*theirs)(shm_conn *, uint32_t, uint64_t, size_t) = shm_region_theirs;
  char *(*receivers)(shm_conn *, uint32_t, uint64_t, size_t) = mine ? shm_region_ours : theirs;
  *work = (coll_work){.kind = entry->kind, .bytes = m->bytes};
  work->to = receivers(conn, entry->to_region, entry->to, m->bytes);
  work->own = receivers(conn, entry->own_region, entry->own, m->bytes);
  work->payload = (mine ? theirs : shm_region_ours)(conn, m->note.region, m->note.where, m->bytes);
  return entry->bytes == m->bytes && work->to && work->payload && (work->own || !entry->own_region);
}

/*
 * Claims the peer's fold of the same two payloads, if it has announced that and this side has sent
 * it the other operand. Then reading both payloads once is enough.
 */
static void claim_paired(shm_conn *conn, const shm_work *mine, const message *in, coll_work *work) {
  const shm_link *link = &conn->link;
  message out;
  shm_work *entry;
  uint32_t count = count_in_flight(link);
  for (uint32_t behind = 0; behind < count && behind < link->slot_count; behind++) {
    if (!find_sent(link, behind, &out, &entry) || out.note.region != mine->own_region ||
        out.note.where != mine->own || out.bytes != in->bytes)
      continue;
    if (!claim_entry(link, entry, out.number))
      return;
    char *to2 = shm_region_theirs(conn, entry->to_region, entry->to, out.bytes);
    bool same = entry->kind == (mine->kind ^ 1) && entry->bytes == out.bytes && to2 &&
                entry->own_region == in->note.region && entry->own == in->note.where;
    if (same) {
      work->to2 = to2;
      work->claim[1] = entry;
    } else {
      set_state(link, entry, SHM_WORK_OPEN);
    }
    return;
  }
}

/* Takes work on a message that arrived. */
static int claim_own(shm_conn *conn, bool from_back, coll_work *work) {
  const shm_link *link = &conn->link;
  message m;
  for (uint32_t i = 0; i < link->slot_count; i++) {
    uint32_t ahead = from_back ? link->slot_count - 1 - i : i;
    shm_work *entry = rx_entry(link, ahead);
    uint64_t open = state_of(link->rx_seq + ahead, SHM_WORK_OPEN);
    if (atomic_load_explicit(&entry->state, memory_order_relaxed) != open ||
        !find_arrived(link, ahead, &m) || !claim_entry(link, entry, m.number))
      continue;
    if (!resolve_work(conn, entry, &m, true, work)) {
      /* Another length means another operation. The receiver will find out. */
      atomic_store_explicit(&entry->state, 0, memory_order_relaxed);
      continue;
    }
    work->claim[0] = entry;
    if (entry->own_region)
      claim_paired(conn, entry, &m, work);
    return COLL_T_DONE;
  }
  return COLL_T_AGAIN;
}

/* Takes work on a message that this side sent. */
static int claim_theirs(shm_conn *conn, bool from_back, coll_work *work) {
  const shm_link *link = &conn->link;
  message m;
  shm_work *entry;
  uint32_t count = count_in_flight(link);
  uint32_t few = count < link->slot_count ? count : link->slot_count;
  for (uint32_t i = 0; i < few; i++) {
    uint32_t behind = from_back ? i + count - few : count - 1 - i;
    if (!find_sent(link, behind, &m, &entry) || !claim_entry(link, entry, m.number))
      continue;
    if (!resolve_work(conn, entry, &m, false, work)) {
      set_state(link, entry, SHM_WORK_OPEN);
      continue;
    }
    work->claim[0] = entry;
    return COLL_T_DONE;
  }
  return COLL_T_AGAIN;
}

int shm_claim_work(coll_conn *base, coll_work *work) {
  shm_conn *conn = (shm_conn *)base;
  shm_fault fault;
  if (conn->gate || shm_link_peer_left(&conn->link))
    return COLL_T_AGAIN;
  if (shm_region_poll_offer(conn, &fault) != COLL_OK)
    return shm_conn_fail(conn, &fault);
  bool from_back = conn->ep->env->rank > base->peer;
  int result = claim_own(conn, from_back, work);
  if (result == COLL_T_AGAIN && conn->link.ref_last != 0)
    result = claim_theirs(conn, from_back, work);
  return result;
}

int shm_finish_work(coll_conn *base, const coll_work *work) {
  shm_conn *conn = (shm_conn *)base;
  for (int i = 0; i < 2 && work->claim[i]; i++)
    set_state(&conn->link, work->claim[i], SHM_WORK_DONE);
  shm_link_tell(&conn->link);
  return shm_conn_finish_send(conn, COLL_T_DONE);
}

void shm_work_withdraw(shm_conn *conn) {
  const shm_link *link = &conn->link;
  for (uint32_t i = 0; i < link->slot_count; i++) {
    shm_work *entry = &link->rx_work[i];
    uint64_t state = atomic_load_explicit(&entry->state, memory_order_acquire);
    if (state % 4 == SHM_WORK_OPEN)
      (void)atomic_compare_exchange_strong(&entry->state, &state, 0);
    if (state % 4 == SHM_WORK_CLAIMED)
      shm_region_leave_unfinished(conn->ep, entry->to_region, entry->to, entry->bytes);
  }
  shm_order_after(link);
}
