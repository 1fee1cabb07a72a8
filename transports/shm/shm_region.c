/* shm_region.c: regions: offered, mapped, referred to, forgotten. */
#include "transports/shm/shm_region.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/fork.h"
#include "transports/shm/shm_internal.h"

/* ---- the owner's side ------------------------------------------------------------------------ */

int shm_region_add(coll_endpoint *endpoint, uint32_t region, const void *memory, size_t bytes,
                   int fd) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  shm_region *made = malloc(sizeof *made);
  if (!made)
    return COLL_ERR_NO_MEMORY;
  *made = (shm_region){
      .next = ep->regions, .region = region, .memory = memory, .bytes = bytes, .fd = fd};
  ep->regions = made;
  return COLL_OK;
}

/* A region of this rank, or NULL. */
static shm_region *find_region(const shm_endpoint *ep, uint32_t number) {
  shm_region *region = ep->regions;
  while (region && region->region != number)
    region = region->next;
  return region;
}

void shm_region_leave_unfinished(shm_endpoint *ep, uint32_t number, uint64_t where, size_t bytes) {
  shm_region *region = find_region(ep, number);
  if (!region)
    return;
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
static shm_share *find_share(shm_peer *peer, uint32_t region) {
  for (shm_share **at = &peer->shares; *at; at = &(*at)->next) {
    shm_share *share = *at;
    if (share->region == region) {
      *at = share->next;
      share->next = peer->shares;
      peer->shares = share;
      return share;
    }
  }
  return NULL;
}

/* Frees the first share of a peer. */
static void free_first_share(shm_peer *peer) {
  COLLI_ASSERT(peer->shares->state != SHM_SHARE_OFFERED ||
               peer->shares->conn->offer == peer->shares);
  shm_share *share = peer->shares;
  peer->shares = share->next;
  if (share->state == SHM_SHARE_OFFERED)
    share->conn->offer = NULL;
  free(share);
}

/* Looks whether the peer has answered an offer. */
static void poll_answer(shm_share *share) {
  COLLI_ASSERT(share->state == SHM_SHARE_OFFERED && share->conn->offer == share);
  shm_conn *conn = share->conn;
  uint32_t answer = atomic_load_explicit(&conn->link.theirs->answer, memory_order_acquire);
  if (answer / 2 != conn->offers)
    return;
  shm_order_after(&conn->link);
  conn->offer = NULL;
  share->state = answer % 2 == 0  ? SHM_SHARE_REFUSED
                 : share->removed ? SHM_SHARE_ENDED
                                  : SHM_SHARE_MAPPED;
  conn->shared->ended += share->state == SHM_SHARE_ENDED;
}

void shm_region_remove(coll_endpoint *endpoint, uint32_t region) {
  shm_endpoint *ep = (shm_endpoint *)endpoint;
  for (shm_peer *peer = ep->peers; peer; peer = peer->next) {
    shm_share *share = find_share(peer, region);
    if (!share)
      continue;
    if (share->state == SHM_SHARE_OFFERED) {
      share->removed = true;
      poll_answer(share);
    } else if (share->state == SHM_SHARE_MAPPED) {
      share->state = SHM_SHARE_ENDED;
      peer->ended++;
    }
    if (share->state == SHM_SHARE_REFUSED)
      free_first_share(peer);
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

/* The number of a region that the peer must forget, or 0; this rank forgets it too. */
static uint32_t take_ended_share(shm_peer *peer) {
  for (shm_share **at = &peer->shares; peer->ended > 0 && *at; at = &(*at)->next) {
    shm_share *share = *at;
    if (share->state == SHM_SHARE_ENDED) {
      uint32_t region = share->region;
      *at = share->next;
      free(share);
      peer->ended--;
      return region;
    }
  }
  COLLI_ASSERT(peer->ended == 0);
  return 0;
}

/* Passes a region's descriptor to the peer, ahead of the message that offers it. */
static bool pass_descriptor(shm_conn *conn, const shm_region *region) {
  char byte = 0;
  return conn->local || (conn->watch.fd >= 0 &&
                         colli_unix_send(conn->watch.fd, &byte, sizeof byte, &region->fd, 1) == 0);
}

/* Begins to offer a region to the peer, if that is possible now. */
static void begin_offer(shm_conn *conn, uint32_t number) {
  const shm_region *region = find_region(conn->ep, number);
  if (conn->offer)
    poll_answer(conn->offer);
  if (!region || conn->offer)
    return;
  shm_share *share = malloc(sizeof *share);
  if (!share)
    return;
  if (!pass_descriptor(conn, region)) {
    free(share); /* the socket is full, or closed: perhaps next time */
    return;
  }
  *share = (shm_share){.next = conn->shared->shares,
                       .region = number,
                       .state = SHM_SHARE_OFFERED,
                       .conn = conn,
                       .memory = region->memory,
                       .bytes = region->bytes};
  conn->shared->shares = share;
  conn->offer = share;
  conn->offer_note = (shm_note){.region = number,
                                .forget = take_ended_share(conn->shared),
                                .where = region->bytes,
                                .fd = conn->local ? region->fd : -1,
                                .number = ++conn->offers};
  conn->offer_untold = true;
  conn->link.mine->offer = conn->offer_note; /* the one before was answered: nobody reads it */
  shm_order_before(&conn->link);
  atomic_store_explicit(&conn->link.mine->offered, conn->offers, memory_order_release);
}

const shm_share *shm_region_share(shm_conn *conn, uint32_t region) {
  shm_share *share = find_share(conn->shared, region);
  if (!share)
    begin_offer(conn, region);
  else if (share->state == SHM_SHARE_OFFERED)
    poll_answer(share);
  return share && share->state == SHM_SHARE_MAPPED ? share : NULL;
}

char *shm_region_ours(shm_conn *conn, uint32_t region, uint64_t where, size_t bytes) {
  const shm_share *share = find_share(conn->shared, region);
  bool inside = share && where <= share->bytes && bytes <= share->bytes - where;
  return inside ? (char *)share->memory + where : NULL;
}

/* Sends a copy, with the connection's offer if the peer does not know that yet. */
static int send_copy(shm_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  shm_link *link = &conn->link;
  if (!conn->offer_untold)
    return shm_link_send(link, tag, buf, bytes);
  int result = shm_link_send_note(link, tag, buf, bytes, SHM_OFFER, &conn->offer_note);
  conn->offer_untold = result != COLL_T_DONE;
  return result;
}

/* Whether a message lies in a region. */
static bool is_inside(const shm_share *share, const char *buf, size_t bytes) {
  size_t offset = (size_t)((uintptr_t)buf - (uintptr_t)share->memory);
  return offset <= share->bytes && bytes <= share->bytes - offset;
}

int shm_send_ref(coll_conn *base, const coll_tag *tag, uint32_t region, const void *buf,
                 size_t bytes) {
  shm_conn *conn = (shm_conn *)base;
  if (SHM_UNLIKELY(conn->gate))
    return shm_conn_stopped(conn);
  if (bytes < SHM_REF_LEAST)
    return shm_conn_finish_send(conn, shm_link_send(&conn->link, tag, buf, bytes));
  const shm_share *share = shm_region_share(conn, region);
  if (!share || !is_inside(share, buf, bytes))
    return shm_conn_finish_send(conn, send_copy(conn, tag, buf, bytes));
  shm_note note = {.region = region, .where = (uintptr_t)buf - (uintptr_t)share->memory};
  if (SHM_UNLIKELY(conn->shared->ended > 0) && shm_link_has_capacity(&conn->link))
    note.forget = take_ended_share(conn->shared);
  int result = shm_link_send_note(&conn->link, tag, buf, bytes, SHM_REFERENCE, &note);
  return shm_conn_finish_send(conn, result);
}

/* ---- the peer's side ------------------------------------------------------------------------- */

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
  int fd = -1, result = colli_unix_recv(conn->watch.fd, &byte, sizeof byte, &fd, 1);
  if (result == 1 && conn->offered_fd >= 0) {
    colli_fd_close(fd);
    errno = EPROTO;
    return -1;
  }
  if (result == 1)
    conn->offered_fd = fd;
  return result;
}

char *shm_region_theirs(shm_conn *conn, uint32_t region, uint64_t where, size_t bytes) {
  const shm_mapping *mapping = find_mapping(conn->shared, region);
  bool inside =
      mapping && where <= mapping->segment.bytes && bytes <= mapping->segment.bytes - where;
  return inside ? (char *)mapping->segment.memory + where : NULL;
}

/* Forgets the region that a note says is gone. */
static void forget_region(shm_conn *conn, const shm_note *note) {
  if (note->forget != 0 && note->forget != note->region && find_mapping(conn->shared, note->forget))
    unmap_first(conn->shared);
}

/* Maps an offered region; false if that is impossible. */
static bool map_offer(shm_conn *conn, const shm_note *note, shm_fault *fault) {
  shm_peer *peer = conn->shared;
  if (!conn->local && conn->offered_fd < 0 && conn->watch.fd >= 0)
    (void)shm_region_receive(conn);
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
      if (conn->local)
        fault->status = COLL_OK; /* the owner may have closed it since */
    }
  }
  if (conn->offered_fd >= 0) {
    colli_fd_close(conn->offered_fd);
    conn->offered_fd = -1;
  }
  return known;
}

/* Answers an offer, once. */
static coll_status answer_offer(shm_conn *conn, const shm_note *note, shm_fault *fault) {
  uint32_t behind = conn->answered - note->number;
  if (behind < UINT32_MAX / 2)
    return COLL_OK; /* the message was looked at before, or came after the peer's shm_side told */
  if (behind != UINT32_MAX || note->region == 0)
    return COLL_ERR_PROTOCOL;
  conn->answered = note->number;
  forget_region(conn, note);
  bool mapped = map_offer(conn, note, fault);
  if (fault->status == COLL_ERR_PROTOCOL)
    return COLL_ERR_PROTOCOL;
  shm_order_before(&conn->link);
  atomic_store_explicit(&conn->link.mine->answer, 2 * note->number + mapped, memory_order_release);
  return COLL_OK;
}

/* Describes a peer that refers to memory it has not shared. */
static coll_status report_nonsense(shm_fault *fault) {
  return shm_fault_set(fault, COLL_ERR_PROTOCOL, NULL, 0,
                       "the peer refers to memory that it has not shared; its process has damaged "
                       "its memory, or runs another libcoll");
}

coll_status shm_region_poll_offer(shm_conn *conn, shm_fault *fault) {
  const shm_side *theirs = conn->link.theirs;
  if (atomic_load_explicit(&theirs->offered, memory_order_acquire) == conn->answered)
    return COLL_OK;
  shm_order_after(&conn->link);
  shm_note note = theirs->offer;
  shm_fault_set(fault, COLL_OK, NULL, 0, NULL);
  return answer_offer(conn, &note, fault) == COLL_OK ? COLL_OK : report_nonsense(fault);
}

coll_status shm_region_resolve(shm_conn *conn, coll_tag *tag, const void **buf, size_t *bytes,
                               shm_fault *fault) {
  shm_note note;
  uint32_t kind = shm_link_note(&conn->link, &note, tag, buf, bytes);
  shm_fault_set(fault, COLL_OK, NULL, 0, NULL);
  bool sound = *bytes <= conn->link.slot_bytes && *bytes > SHM_INLINE_BYTES;
  if (sound && kind == SHM_OFFER) {
    conn->link.rx_ref = false;
    sound = answer_offer(conn, &note, fault) == COLL_OK;
  } else if (sound) {
    forget_region(conn, &note);
    const char *there = shm_region_theirs(conn, note.region, note.where, *bytes);
    sound = kind == SHM_REFERENCE && there;
    conn->link.rx_ref = sound;
    *buf = there;
  }
  return sound ? COLL_OK : report_nonsense(fault);
}

/* ---- connections ----------------------------------------------------------------------------- */

bool shm_region_join(shm_conn *conn) {
  shm_endpoint *ep = conn->ep;
  shm_peer *peer = ep->peers;
  while (peer && peer->rank != conn->base.peer)
    peer = peer->next;
  if (!peer) {
    peer = calloc(1, sizeof *peer);
    if (!peer)
      return false;
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
  if (conn->offered_fd >= 0)
    colli_fd_close(conn->offered_fd);
  if (conn->offer && find_share(peer, conn->offer->region))
    free_first_share(peer);
  COLLI_ASSERT(peer->conns > 0);
  if (--peer->conns > 0)
    return;
  while (peer->shares)
    free_first_share(peer);
  while (peer->mappings)
    unmap_first(peer);
  shm_peer **at = &conn->ep->peers;
  while (*at != peer)
    at = &(*at)->next;
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
