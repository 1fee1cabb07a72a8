/* bootstrap_net.h: meeting other ranks: dialing one at several addresses, and a door for those who
 * come. */
#ifndef COLLI_COMM_BOOTSTRAP_NET_H
#define COLLI_COMM_BOOTSTRAP_NET_H

#include <poll.h>

#include "libcoll/base/auth.h"
#include "libcoll/comm/bootstrap.h"
#include "libcoll/comm/ctrl_links.h"

#define COLLI_DOOR_STRANGERS 64 /* connections that have not shown that they know the secret */

/* Who this rank is, for handshakes. */
typedef struct colli_self {
  int rank;
  uint64_t comm_id;
  const uint8_t *secret;
  const colli_log *log;
} colli_self;

/* ---- dialing --------------------------------------------------------------------------------- */

/* An attempt to reach one rank at one of its addresses; all run side by side, staggered. */
typedef struct colli_dial {
  const colli_self *self;
  int peer;
  colli_hello_kind kind;
  uint64_t word;
  bool retry; /* begin again when all addresses refused: the peer may not listen yet */
  int naddrs;
  colli_addr addrs[COLLI_MAX_ADDRS];
  int fd[COLLI_MAX_ADDRS]; /* -1: not begun or over */
  bool over[COLLI_MAX_ADDRS];
  colli_auth auth[COLLI_MAX_ADDRS];
  uint64_t begun_ns;
  int last_errno;
  coll_status last_status; /* the most telling failure so far */
  int result;              /* the authenticated socket, once done */
} colli_dial;

void colli_dial_begin(colli_dial *dial, const colli_self *self, int peer, const colli_addr *addrs,
                      colli_hello_kind kind, uint64_t word, bool retry);

/* DONE (dial->result is the caller's), AGAIN, or why no address works. */
int colli_dial_poll(colli_dial *dial);

/* Adds what to poll for; returns how many (at most COLLI_MAX_ADDRS). */
int colli_dial_fds(const colli_dial *dial, struct pollfd *fds);

void colli_dial_end(colli_dial *dial);

/* Describes the failure of a dial in a record and returns its status. */
coll_status colli_dial_failed(const colli_dial *dial, coll_status status, const char *whom,
                              coll_error *error);

/* ---- the door -------------------------------------------------------------------------------- */

typedef struct colli_door {
  const colli_self *self;
  int listen_fd;
  int count;
  colli_auth strangers[COLLI_DOOR_STRANGERS];
} colli_door;

/*
 * Gives one connection whose other side knows the secret: 1 with *auth filled (its fd is the
 * caller's, who must call colli_auth_answer), or 0. Strangers that fail or stay silent are turned
 * away.
 */
int colli_door_next(colli_door *door, colli_auth *auth);

/* Adds what to poll for; returns how many (at most COLLI_DOOR_STRANGERS + 1). */
int colli_door_fds(const colli_door *door, struct pollfd *fds);

/* Closes the listener and all strangers. */
void colli_door_close(colli_door *door);

/* ---- whole messages on nonblocking sockets ----------------------------------------------------
 */

/* Moves bytes *done .. bytes-1: DONE, AGAIN, or PEER_LOST / SYSTEM with errno. */
int colli_push(int fd, const void *msg, size_t bytes, size_t *done);
int colli_pull(int fd, void *msg, size_t bytes, size_t *done);

/* ---- the roles --------------------------------------------------------------------------------
 */

#define COLLI_CHECKIN_VERSION 1u

/* What a rank says when it checks in, and what it hears. */
typedef struct colli_checkin {
  uint32_t version;
  uint32_t nranks;
  colli_rank_info info;
} colli_checkin;

typedef struct colli_verdict {
  uint64_t status; /* a coll_status */
  coll_error error;
} colli_verdict;

/* Rank 0: waits for all others and fills in the table. Takes over listen_fd. */
coll_status colli_root_gather(const colli_self *self, int listen_fd, int nranks,
                              colli_rank_info *table, uint64_t deadline_ns, coll_error *error);

/* The others: check in and wait for the verdict. */
coll_status colli_root_visit(const colli_self *self, const colli_id *id, int nranks,
                             const colli_rank_info *mine, uint64_t deadline_ns, coll_error *error);

/*
 * Passes the table down the tree and makes the control links. Takes over listen_fd. sockets: room
 * for 8; *count of them are the caller's on success.
 */
coll_status colli_links_make(const colli_self *self, int listen_fd, int nranks,
                             colli_rank_info *table, uint64_t deadline_ns, int *peers, int *fds,
                             int *count, coll_error *error);

/* Milliseconds to the deadline, at most 100, at least 1. */
int colli_patience_ms(uint64_t deadline_ns);

#endif
