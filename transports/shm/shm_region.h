/*
 * shm_region.h: memory of one rank that others map, so that messages need not be copied into slots.
 *
 * The owner *offers* a region to a peer when it first sends from it, or first lets the peer work in
 * it. An offer is a note in the owner's shm_side and in the head of the next message that is a
 * copy; between processes the descriptor goes over the connection's socket. The peer maps the
 * region and answers in its own shm_side. From then on messages on any connection of the pair may
 * be references; until then, and if the peer refuses, they are copies. One offer at a time is open
 * on a connection.
 *
 * A rank that leaves a connection gives its memory back to its caller, even if references to it are
 * on the way. So after reading by reference, a rank checks that the owner was still there before it
 * uses what it has read. The owner gives the pages of a region back at once when it is freed; the
 * peers unmap it when a later note says so, or with their last connection to the owner.
 */
#ifndef COLLI_TRANSPORTS_SHM_REGION_H
#define COLLI_TRANSPORTS_SHM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll_transport.h"
#include "transports/shm/shm_ring.h"
#include "transports/shm/shm_segment.h"

struct shm_conn;
struct shm_endpoint;

/* A region of this rank. */
typedef struct shm_region {
  struct shm_region *next;
  uint32_t region;
  const char *memory;
  size_t bytes;
  int fd;
  size_t unfinished_first, unfinished_end; /* peers have not finished work in this part */
} shm_region;

typedef enum shm_share_state {
  SHM_SHARE_OFFERED, /* on `conn`; the answer is not known yet */
  SHM_SHARE_MAPPED,
  SHM_SHARE_REFUSED,
  SHM_SHARE_ENDED /* removed here, but the peer was not told yet */
} shm_share_state;

/* What a peer knows of a region of this rank. */
typedef struct shm_share {
  struct shm_share *next;
  uint32_t region;
  shm_share_state state;
  bool removed; /* here, before the peer has answered */
  struct shm_conn *conn;
  const char *memory;
  size_t bytes;
} shm_share;

/* A region of a peer. */
typedef struct shm_mapping {
  struct shm_mapping *next;
  uint32_t region;
  shm_segment segment;
} shm_mapping;

/* A peer, as all connections to it share it. */
typedef struct shm_peer {
  struct shm_peer *next;
  int rank;
  int conns;
  int ended; /* shares that have */
  shm_share *shares;
  shm_mapping *mappings;
} shm_peer;

#define SHM_REF_LEAST 16384 /* copying less is cheaper than waiting for readers */

/* The calls of coll_transport_ops. */
int shm_region_add(coll_endpoint *endpoint, uint32_t region, const void *memory, size_t bytes,
                   int fd);
void shm_region_remove(coll_endpoint *endpoint, uint32_t region);
int shm_send_ref(coll_conn *base, const coll_tag *tag, uint32_t region, const void *buf,
                 size_t bytes);
int shm_unfinished_work(coll_endpoint *endpoint, uint32_t region, size_t *offset, size_t *bytes);

/* Notes that a peer has not finished its work on a part of a region of this rank. */
void shm_region_leave_unfinished(struct shm_endpoint *ep, uint32_t region, uint64_t where,
                                 size_t bytes);

/* A connection begins and ends; false: out of memory. */
bool shm_region_join(struct shm_conn *conn);
void shm_region_leave(struct shm_conn *conn);

/*
 * Does what the note of a message says, and stores where the payload lies. COLL_OK, or PROTOCOL in
 * *fault.
 */
coll_status shm_region_resolve(struct shm_conn *conn, coll_tag *tag, const void **buf,
                               size_t *bytes, shm_fault *fault);

/* What the peer has mapped of a region of this rank; offers it if that was not done yet. NULL: it
 * has not mapped it. */
const shm_share *shm_region_share(struct shm_conn *conn, uint32_t region);

/* Looks whether the peer has offered a region without a message. COLL_OK, or PROTOCOL in *fault. */
coll_status shm_region_poll_offer(struct shm_conn *conn, shm_fault *fault);

/* Where `bytes` bytes of a region lie that the peer has shared, or this rank with the peer; or
 * NULL.
 */
char *shm_region_theirs(struct shm_conn *conn, uint32_t region, uint64_t where, size_t bytes);
char *shm_region_ours(struct shm_conn *conn, uint32_t region, uint64_t where, size_t bytes);

/* Takes the descriptor of an offer from the socket: 1, 0: the peer closed, -1 with errno. */
int shm_region_receive(struct shm_conn *conn);

/* Frees an endpoint's regions. */
void shm_region_free_all(struct shm_endpoint *ep);

#endif
