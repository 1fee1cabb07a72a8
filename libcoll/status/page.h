/*
 * page.h: the status page, which shows a process to others of the same user: a file without a name
 * (a memfd) that the process has open and mapped. Whoever may look into /proc/PID/fd can read it,
 * whatever the process does: it may compute, be stopped, or spin. Nobody else can write to it.
 *
 *   head | for each rank of the base: where it is, and the link to it | communicators
 *
 * A process has a page for each family. It keeps its flight records and counters in the page, so
 * showing them costs nothing. All is plain numbers and text, no pointers.
 */
#ifndef COLLI_STATUS_PAGE_H
#define COLLI_STATUS_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libcoll/exec/flight.h"

#define COLLI_STATUS_NAME    "libcoll-status" /* of the memfd */
#define COLLI_STATUS_MAGIC   0x73746174636f6c6cull
#define COLLI_STATUS_VERSION 3u
#define COLLI_STATUS_COMMS   64    /* communicators in a page; further ones are only counted */
#define COLLI_STATUS_RANKS   65536 /* the most that a reader believes */
#define COLLI_STATUS_TEXT    64    /* bytes of a name, with the end */
#define COLLI_STATUS_DESK    40
#define COLLI_STATUS_REASON  96

typedef struct colli_status_head {
  uint64_t magic;
  uint32_t version;
  uint32_t ncomms; /* in the page: COLLI_STATUS_COMMS; in a copy: those that are there */
  int32_t pid;     /* as the process sees itself */
  int32_t rank;    /* in the base */
  int32_t nranks;
  int32_t seen_pid;               /* a copy: as its maker sees the process */
  uint64_t comm_id;               /* of the base: the same on all ranks */
  uint64_t start_ticks, start_ns; /* one moment in ticks and on the monotonic clock */
  uint64_t unshown;               /* communicators for which there is no room here */
  uint64_t now_ticks, now_ns;     /* a copy: when it was made */
  uint8_t state;                  /* a copy: what the process does, as in proc(5): R, S, D, T, t */
  uint8_t pad[7];
  char host[COLLI_STATUS_TEXT];
  char desk[COLLI_STATUS_DESK]; /* where to ask for other hosts (service.h), or empty */
} colli_status_head;

/* A rank of the base. */
typedef struct colli_status_rank {
  char host[COLLI_STATUS_TEXT];
  uint64_t host_id;
  int32_t pid;
  int32_t core; /* or -1 */
  char transport[16];
  char link[COLLI_STATUS_REASON]; /* what the transport says of it: device, rails, why */
  uint32_t rails;                 /* of all connections to it; 0: they have one socket each */
  uint32_t lost_rails;            /* those of them that do not work now */
} colli_status_rank;

/* What the page has of each rank of a communicator. */
typedef struct colli_status_peer {
  uint64_t sent_bytes; /* to it */
  uint64_t base_rank;  /* not set in the base */
} colli_status_peer;

/* A communicator; its peers follow. */
typedef struct colli_status_comm {
  uint64_t shown; /* changes when the communicator is made and when it ends; odd: it is there */
  uint64_t uid;   /* which one of the family, the same on all ranks; 0: the base */
  int32_t rank, nranks;
  int32_t failed; /* coll_status: not COLL_OK: it is revoked */
  uint32_t pad;
  char name[COLLI_STATUS_TEXT];
  uint8_t pad2[32]; /* places in the record are cache lines */
  colli_flight_rings flights;
  colli_status_peer peers[];
} colli_status_comm;
_Static_assert(offsetof(colli_status_comm, flights) % 64 == 0, "cache lines");

/* A rank's number in the base. */
static inline uint64_t colli_status_base_rank(const colli_status_comm *comm, int rank) {
  return comm->uid == 0 ? (uint64_t)rank : comm->peers[rank].base_rank;
}

/* Bytes of a communicator, whose family has so many ranks, and of all before the first. */
static inline size_t colli_status_comm_bytes(int nranks) {
  size_t bytes = sizeof(colli_status_comm) + (size_t)nranks * sizeof(colli_status_peer);
  return (bytes + 63) / 64 * 64;
}

static inline size_t colli_status_head_bytes(int nranks) {
  size_t bytes = sizeof(colli_status_head) + (size_t)nranks * sizeof(colli_status_rank);
  return (bytes + 63) / 64 * 64;
}

/* The ranks of a page or a copy, and one of its communicators. */
static inline colli_status_rank *colli_status_ranks(colli_status_head *head) {
  return (colli_status_rank *)(head + 1);
}

static inline colli_status_comm *colli_status_comm_at(colli_status_head *head, unsigned i) {
  char *first = (char *)head + colli_status_head_bytes(head->nranks);
  return (colli_status_comm *)(void *)(first + i * colli_status_comm_bytes(head->nranks));
}

/* ---- the process that is shown --------------------------------------------------------------- */

typedef struct colli_status_page {
  colli_status_head *head; /* NULL: there is none, and communicators are kept in ordinary memory */
  int fd;
  int nranks;
  size_t bytes;
  _Atomic(uint64_t) taken;    /* bit i: place i */
  _Atomic(uint64_t) reserved; /* there is memory for it */
} colli_status_page;
_Static_assert(COLLI_STATUS_COMMS == 64, "a bit for each");

/* Makes the page; *page is zeroed memory. *head says what it shows; the caller fills in the ranks.
 * 0, or an errno: there is no page, but all functions below work. */
int colli_status_open(colli_status_page *page, const colli_status_head *head);

/* Closes it. Fine if there is none. */
void colli_status_close(colli_status_page *page);

/* Zeroed memory for a communicator of that many ranks, which the caller writes into it: in the
 * page, or ordinary one if there is no room. Others see it from colli_status_show() on. NULL: out
 * of memory. Any thread may take and free. */
colli_status_comm *colli_status_take(colli_status_page *page, int nranks);
void colli_status_show(colli_status_comm *comm);
void colli_status_free(colli_status_page *page, colli_status_comm *comm);

#endif
