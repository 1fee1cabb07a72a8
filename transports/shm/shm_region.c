/* shm_region.c: regions: offered, mapped, referred to, forgotten. */
#include "transports/shm/shm_region.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "transports/shm/shm_internal.h"

/* ---- the owner's side -------------------------------------------------------------------------
 */

int shm_region_add(coll_endpoint *endpoint, uint32_t region, const void *memory, size_t bytes,
                   int fd) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  shm_region *made = malloc(sizeof *made);
  if (!made) {
    return COLL_ERR_NO_MEMORY;
  }
  *made = (shm_region){
      .next = ep->regions, .region = region, .memory = memory, .bytes = bytes, .fd = fd};
  ep->regions = made;
  return COLL_OK;
}

/* A region of this rank, or NULL. */
static shm_region *find_region(const shm_endpoint *ep, uint32_t number) {
  shm_region *region = ep->regions;
  while (region && region->region != number) {
    region = region->next;
  }
  return region;
}

void shm_region_leave_unfinished(shm_endpoint *ep, uint32_t number, uint64_t where, size_t bytes) {
  shm_region *region = find_region(ep, number);
  if (!region) {
    return;
  }
  bool inside = where <= region->bytes && bytes <= region->bytes - where;
  size_t first = inside ? where : 0, end = inside ? where + bytes : region->bytes;
  bool more = region->unfinished_end > 0;
  region->unfinished_first =
      more && region->unfinished_first < first ? region->unfinished_first : first;
  region->unfinished_end = region->unfinished_end > end ? region->unfinished_end : end;
}

int shm_unfinished_work(coll_endpoint *endpoint, uint32_t number, size_t *offset, size_t *bytes) {
  const shm_region *region = find_region((shm_endpoint *)endpoint, number);
  *offset = region ? region->unfinished_first : 0;
  *bytes = region ? region->unfinished_end - region->unfinished_first : 0;
  return *bytes > 0;
}

/* What a peer knows of a region, or NULL; moves it to the front. */
static shm_loan *find_loan(shm_peer *peer, uint32_t region) {
  for (shm_loan **at = &peer->loans; *at; at = &(*at)->next) {
    shm_loan *loan = *at;
    if (loan->region == region) {
      *at = loan->next;
      loan->next = peer->loans;
      peer->loans = loan;
      return loan;
    }
  }
  return NULL;
}

/* Frees the first loan of a peer. */
static void free_first_loan(shm_peer *peer) {
  shm_loan *loan = peer->loans;
  peer->loans = loan->next;
  if (loan->state == SHM_LOAN_OFFERED) {
    loan->conn->offer = NULL;
  }
  free(loan);
}

/* Looks whether the peer has answered an offer. */
static void look_for_answer(shm_loan *loan) {
  shm_conn *conn = loan->conn;
  uint32_t answer = atomic_load_explicit(&conn->link.theirs->answer, memory_order_acquire);
  if (answer / 2 != conn->offers) {
    return;
  }
  shm_order_after(&conn->link);
  conn->offer = NULL;
  loan->state = answer % 2 == 0 ? SHM_LOAN_REFUSED
                : loan->removed ? SHM_LOAN_ENDED
                                : SHM_LOAN_MAPPED;
  conn->shared->ended += loan->state == SHM_LOAN_ENDED;
}

void shm_region_remove(coll_endpoint *endpoint, uint32_t region) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  for (shm_peer *peer = ep->peers; peer; peer = peer->next) {
    shm_loan *loan = find_loan(peer, region);
    if (!loan) {
      continue;
    }
    if (loan->state == SHM_LOAN_OFFERED) {
      loan->removed = true;
      look_for_answer(loan);
    } else if (loan->state == SHM_LOAN_MAPPED) {
      loan->state = SHM_LOAN_ENDED;
      peer->ended++;
    }
    if (loan->state == SHM_LOAN_REFUSED) {
      free_first_loan(peer);
    }
  }
  for (shm_region **at = &ep->regions; *at; at = &(*at)->next) {
    if ((*at)->region == region) {
      shm_region *gone = *at;
      *at = gone->next;
      free(gone);
      return;
    }
  }
}

/* The number of a region that the peer is to forget, or 0; forgets it here. */
static uint32_t next_ended(shm_peer *peer) {
  for (shm_loan **at = &peer->loans; peer->ended > 0 && *at; at = &(*at)->next) {
    shm_loan *loan = *at;
    if (loan->state == SHM_LOAN_ENDED) {
      uint32_t region = loan->region;
      *at = loan->next;
      free(loan);
      peer->ended--;
      return region;
    }
  }
  return 0;
}

/* Passes a region's descriptor to the peer, ahead of the message that offers it. */
static bool pass_descriptor(shm_conn *conn, const shm_region *region) {
  char byte = 0;
  return conn->local || (conn->watch.fd >= 0 &&
                         shm_send_fds(conn->watch.fd, &byte, sizeof byte, &region->fd, 1) == 0);
}

/* Begins to offer a region to the peer, if that can be done now. */
static void begin_offer(shm_conn *conn, uint32_t number) {
  const shm_region *region = find_region(conn->ep, number);
  if (conn->offer) {
    look_for_answer(conn->offer);
  }
  if (!region || conn->offer) {
    return;
  }
  shm_loan *loan = malloc(sizeof *loan);
  if (!loan) {
    return;
  }
  if (!pass_descriptor(conn, region)) {
    free(loan); /* the socket is full, or closed: perhaps next time */
    return;
  }
  *loan = (shm_loan){.next = conn->shared->loans,
                     .region = number,
                     .state = SHM_LOAN_OFFERED,
                     .conn = conn,
                     .memory = region->memory,
                     .bytes = region->bytes};
  conn->shared->loans = loan;
  conn->offer = loan;
  conn->offer_note = (shm_note){.region = number,
                                .forget = next_ended(conn->shared),
                                .where = region->bytes,
                                .fd = conn->local ? region->fd : -1,
                                .number = ++conn->offers};
  conn->offer_untold = true;
  conn->link.mine->offer = conn->offer_note; /* the one before was answered: nobody reads it */
  shm_order_before(&conn->link);
  atomic_store_explicit(&conn->link.mine->offered, conn->offers, memory_order_release);
}

const shm_loan *shm_region_lend(shm_conn *conn, uint32_t region) {
  shm_loan *loan = find_loan(conn->shared, region);
  if (!loan) {
    begin_offer(conn, region);
  } else if (loan->state == SHM_LOAN_OFFERED) {
    look_for_answer(loan);
  }
  return loan && loan->state == SHM_LOAN_MAPPED ? loan : NULL;
}

char *shm_region_ours(shm_conn *conn, uint32_t region, uint64_t where, size_t bytes) {
  const shm_loan *loan = find_loan(conn->shared, region);
  bool inside = loan && where <= loan->bytes && bytes <= loan->bytes - where;
  return inside ? (char *)loan->memory + where : NULL;
}

/* Sends a copy, with the connection's offer if that is not told yet. */
static int send_copy(shm_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  shm_link *link = &conn->link;
  if (!conn->offer_untold) {
    return shm_link_send(link, tag, buf, bytes);
  }
  int result = shm_link_send_note(link, tag, buf, bytes, SHM_OFFER, &conn->offer_note);
  conn->offer_untold = result != COLL_T_DONE;
  return result;
}

/* Whether a message lies in a region. */
static bool is_inside(const shm_loan *loan, const char *buf, size_t bytes) {
  size_t offset = (size_t)((uintptr_t)buf - (uintptr_t)loan->memory);
  return offset <= loan->bytes && bytes <= loan->bytes - offset;
}

int shm_send_ref(coll_conn *base, const coll_tag *tag, uint32_t region, const void *buf,
                 size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate)) {
    return shm_conn_stopped(conn);
  }
  if (bytes < SHM_REF_LEAST) {
    return shm_conn_finish_send(conn, shm_link_send(&conn->link, tag, buf, bytes));
  }
  const shm_loan *loan = shm_region_lend(conn, region);
  if (!loan || !is_inside(loan, buf, bytes)) {
    return shm_conn_finish_send(conn, send_copy(conn, tag, buf, bytes));
  }
  shm_note note = {.region = region, .where = (uintptr_t)buf - (uintptr_t)loan->memory};
  if (SHM_UNLIKELY(conn->shared->ended > 0) && shm_link_has_room(&conn->link)) {
    note.forget = next_ended(conn->shared);
  }
  int result = shm_link_send_note(&conn->link, tag, buf, bytes, SHM_REFERENCE, &note);
  return shm_conn_finish_send(conn, result);
}

/* ---- the peer's side --------------------------------------------------------------------------
 */

/* A peer's region, or NULL; moves it to the front. */
static shm_mapping *find_mapping(shm_peer *peer, uint32_t region) {
  for (shm_mapping **at = &peer->mappings; *at; at = &(*at)->next) {
    shm_mapping *mapping = *at;
    if (mapping->region == region) {
      *at = mapping->next;
      mapping->next = peer->mappings;
      peer->mappings = mapping;
      return mapping;
    }
  }
  return NULL;
}

/* Unmaps the first of a peer's regions. */
static void unmap_first(shm_peer *peer) {
  shm_mapping *mapping = peer->mappings;
  peer->mappings = mapping->next;
  shm_segment_unmap(&mapping->segment);
  free(mapping);
}

int shm_region_receive(shm_conn *conn) {
  char byte;
  int fd = -1, result = shm_recv_fds(conn->watch.fd, &byte, sizeof byte, &fd, 1);
  if (result == 1 && conn->offered_fd >= 0) {
    close(fd);
    errno = EPROTO;
    return -1;
  }
  if (result == 1) {
    conn->offered_fd = fd;
  }
  return result;
}

char *shm_region_theirs(shm_conn *conn, uint32_t region, uint64_t where, size_t bytes) {
  const shm_mapping *mapping = find_mapping(conn->shared, region);
  bool inside =
      mapping && where <= mapping->segment.bytes && bytes <= mapping->segment.bytes - where;
  return inside ? (char *)mapping->segment.memory + where : NULL;
}

/* Forgets what the sender of a note has no more. */
static void forget(shm_conn *conn, const shm_note *note) {
  if (note->forget != 0 && note->forget != note->region &&
      find_mapping(conn->shared, note->forget)) {
    unmap_first(conn->shared);
  }
}

/* Maps an offered region; false if this rank cannot have it. */
static bool map_offer(shm_conn *conn, const shm_note *note, shm_fault *fault) {
  shm_peer *peer = conn->shared;
  if (!conn->local && conn->offered_fd < 0 && conn->watch.fd >= 0) {
    (void)shm_region_receive(conn);
  }
  int fd = conn->local ? note->fd : conn->offered_fd;
  shm_mapping *mapping = find_mapping(peer, note->region);
  bool known = mapping != NULL;
  if (known) {
    fault->status = mapping->segment.bytes == note->where ? COLL_OK : COLL_ERR_PROTOCOL;
  } else if (fd >= 0 && (mapping = malloc(sizeof *mapping)) != NULL) {
    *mapping = (shm_mapping){peer->mappings, note->region, {NULL, 0}};
    if (shm_segment_view(&mapping->segment, note->where, fd, fault) == COLL_OK) {
      peer->mappings = mapping;
      known = true;
    } else {
      free(mapping);
      if (conn->local) {
        fault->status = COLL_OK; /* the owner may have closed it since */
      }
    }
  }
  if (conn->offered_fd >= 0) {
    close(conn->offered_fd);
    conn->offered_fd = -1;
  }
  return known;
}

/* Answers an offer, once. */
static coll_status take_offer(shm_conn *conn, const shm_note *note, shm_fault *fault) {
  uint32_t behind = conn->answered - note->number;
  if (behind < UINT32_MAX / 2) {
    return COLL_OK; /* the message was looked at before, or came after the peer's shm_side told */
  }
  if (behind != UINT32_MAX || note->region == 0) {
    return COLL_ERR_PROTOCOL;
  }
  conn->answered = note->number;
  forget(conn, note);
  bool mapped = map_offer(conn, note, fault);
  if (fault->status == COLL_ERR_PROTOCOL) {
    return COLL_ERR_PROTOCOL;
  }
  shm_order_before(&conn->link);
  atomic_store_explicit(&conn->link.mine->answer, 2 * note->number + mapped, memory_order_release);
  return COLL_OK;
}

/* What a peer does that has damaged its memory. */
static coll_status nonsense(shm_fault *fault) {
  return shm_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                       "the peer refers to memory that it has not shared; its process has damaged "
                       "its memory, or runs another libcoll");
}

coll_status shm_region_look(shm_conn *conn, shm_fault *fault) {
  const shm_side *theirs = conn->link.theirs;
  if (atomic_load_explicit(&theirs->offered, memory_order_acquire) == conn->answered) {
    return COLL_OK;
  }
  shm_order_after(&conn->link);
  shm_note note = theirs->offer;
  shm_fault_set(fault, COLL_OK, NULL, 0, NULL);
  return take_offer(conn, &note, fault) == COLL_OK ? COLL_OK : nonsense(fault);
}

coll_status shm_region_take(shm_conn *conn, coll_tag *tag, const void **buf, size_t *bytes,
                            shm_fault *fault) {
  shm_note note;
  uint32_t kind = shm_link_note(&conn->link, &note, tag, buf, bytes);
  shm_fault_set(fault, COLL_OK, NULL, 0, NULL);
  bool sound = *bytes <= conn->link.slot_bytes && *bytes > SHM_INLINE_BYTES;
  if (sound && kind == SHM_OFFER) {
    conn->link.rx_ref = false;
    sound = take_offer(conn, &note, fault) == COLL_OK;
  } else if (sound) {
    forget(conn, &note);
    const char *there = shm_region_theirs(conn, note.region, note.where, *bytes);
    sound = kind == SHM_REFERENCE && there;
    conn->link.rx_ref = sound;
    *buf = there;
  }
  return sound ? COLL_OK : nonsense(fault);
}

/* ---- connections ------------------------------------------------------------------------------
 */

bool shm_region_join(shm_conn *conn) {
  shm_endpoint *ep = conn->ep;
  shm_peer *peer = ep->peers;
  while (peer && peer->rank != conn->base.peer) {
    peer = peer->next;
  }
  if (!peer) {
    peer = calloc(1, sizeof *peer);
    if (!peer) {
      return false;
    }
    peer->rank = conn->base.peer;
    peer->next = ep->peers;
    ep->peers = peer;
  }
  peer->conns++;
  conn->shared = peer;
  return true;
}

void shm_region_leave(shm_conn *conn) {
  shm_peer *peer = conn->shared;
  if (conn->offered_fd >= 0) {
    close(conn->offered_fd);
  }
  if (conn->offer && find_loan(peer, conn->offer->region)) {
    free_first_loan(peer);
  }
  if (--peer->conns > 0) {
    return;
  }
  while (peer->loans) {
    free_first_loan(peer);
  }
  while (peer->mappings) {
    unmap_first(peer);
  }
  shm_peer **at = &conn->ep->peers;
  while (*at != peer) {
    at = &(*at)->next;
  }
  *at = peer->next;
  free(peer);
}

void shm_region_free_all(shm_endpoint *ep) {
  while (ep->regions) {
    shm_region *region = ep->regions;
    ep->regions = region->next;
    free(region);
  }
}
