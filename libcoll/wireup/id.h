/* id.h: what identifies a communicator that is about to be created. */
#ifndef COLLI_WIREUP_ID_H
#define COLLI_WIREUP_ID_H

#include "libcoll/base/param.h"
#include "libcoll/base/secret.h"
#include "libcoll/net/sockets.h"

/* An id, unpacked. */
typedef struct colli_id {
  int32_t pid;       /* of the process that listens */
  int32_t listen_fd; /* valid in that process only */
  uint64_t comm_id;
  colli_secret *secret; /* one reference */
  colli_addr addrs[COLLI_MAX_ADDRS];
} colli_id;

/* Makes an id without listener and addresses: a fresh secret and comm_id. On failure there is
 * nothing to release, as below. */
coll_status colli_id_fresh(colli_id *id, coll_error *error);

/* Makes an id with a listener and its addresses. */
coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error);

/* Writes an id as the bytes that the program passes to its other ranks, and reads them. Reading
 * fails with INVALID_ARGUMENT if they are not those of an id, or with NO_MEMORY. */
void colli_id_pack(const colli_id *id, coll_id *out);
coll_status colli_id_unpack(const coll_id *from, colli_id *id, coll_error *error);

/* Gives back the secret. The listener has an owner of its own. */
void colli_id_release(colli_id *id);

#endif
