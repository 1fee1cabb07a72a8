/* id.h: what identifies a communicator that is about to be created. */
#ifndef COLLI_WIREUP_ID_H
#define COLLI_WIREUP_ID_H

#include "libcoll/base/param.h"
#include "libcoll/base/secret.h"
#include "libcoll/net/sockets.h"

/* An id, unpacked. */
typedef struct colli_id {
  int32_t pid;   /* of the process that made it, for messages */
  int listen_fd; /* at which others check in, of this process, which owns it; -1: none */
  int server;    /* the rank that serves all others; -1: not known yet */
  int fan_out;   /* so many ranks check in at each, in a tree below rank 0; 0: all at the server */
  uint64_t comm_id;
  colli_secret *secret; /* one reference */
  /* Where to check in; where the server listens, or in a tree the parent. Without prefix and scope
   * if it was unpacked. */
  colli_addr addrs[COLLI_MAX_ADDRS];
  colli_addr own_addr; /* in a tree, of listen_fd, if that is not addrs[0] */
} colli_id;

/* Makes an id without listener and addresses: a fresh secret and comm_id. On failure there is
 * nothing to release, as below. */
coll_status colli_id_fresh(colli_id *id, coll_error *error);

/* Makes an id with a listener and its addresses, those that colli_id_choose() chooses. */
coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error);

/* Makes an id (with listen_fd -1 and nothing else if nobody checks in here) that of a rank below
 * rank 0, in a tree: it checks in where the parent listens, with the secret of rank 0's id. Those
 * two stay as they are. */
void colli_id_place(colli_id *id, const colli_id *root, const colli_id *parent, int fan_out);

/* Chooses of all addresses of this host (`count`, at most 64, best first) those that go into an id,
 * which has room for 72 bytes: as colli_addrs_choose(), in their order. Returns their
 * number. */
int colli_id_choose(const colli_addr *all, int count, colli_addr addrs[COLLI_MAX_ADDRS]);

/* Whether an id has no room for another address, so that its host may have some that it lacks. */
bool colli_id_full(const colli_addr addrs[COLLI_MAX_ADDRS]);

/* Writes an id as the bytes that the program passes to its other ranks, and reads them. Reading
 * fails with INVALID_ARGUMENT if they are not those of an id, or with NO_MEMORY; then all but the
 * secret is there. */
void colli_id_pack(const colli_id *id, coll_id *out);
coll_status colli_id_unpack(const coll_id *from, colli_id *id, coll_error *error);

/* The checksum that sound bytes have at 4: so that damage on the way is called by its name. */
uint32_t colli_id_check(const coll_id *id);

/* Gives back the secret. The listener has an owner of its own. */
void colli_id_release(colli_id *id);

#endif
