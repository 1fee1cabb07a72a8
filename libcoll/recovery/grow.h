/*
 * grow.h: how a shrink takes newcomers in. They wait at rank 0's entrance. If rank 0 leads a shrink
 * that is a growth, it calls them, on the connections that they have made there:
 *
 *   newcomer -> rank 0   handshake   it knows the secret of the entrance
 *   rank 0 -> newcomer   call        BUILD: make a communicator with this rank; and who the others
 *                                    are
 *   newcomer -> rank 0   built       the communicator's number: it is made
 *   rank 0 -> newcomer   call        COMMIT: return it
 *
 * Newcomers take no part in the decisions of a shrink. If a round fails, rank 0 closes their
 * connections, and they dial again and wait for the next growth.
 */
#ifndef COLLI_RECOVERY_GROW_H
#define COLLI_RECOVERY_GROW_H

#include "libcoll/recovery/shrink_internal.h"

typedef enum grow_call_kind { GROW_BUILD = 1, GROW_COMMIT = 2 } grow_call_kind;

typedef struct grow_call {
  uint32_t kind;
  int32_t nranks;   /* of the new communicator */
  int32_t nmembers; /* of these, ranks of the old one: so many records follow */
  int32_t rank;     /* the newcomer's */
  int32_t origins_used;
  int32_t pad;
  uint64_t epoch;
  uint64_t comm_id;
  uint8_t salt[COLL_SECRET_BYTES];   /* as in a shrink_order */
  uint8_t hidden[COLL_SECRET_BYTES]; /* the secret of the shrink listeners, see grow_hide() */
  colli_addr addrs[COLLI_MAX_ADDRS]; /* where its ranks meet */
} grow_call;

/* What a newcomer must know of a member. */
typedef struct grow_member {
  int32_t origin;
  uint32_t pad;
  colli_addr addrs[COLLI_MAX_ADDRS]; /* of its shrink listener */
} grow_member;

/* Masks a secret so that only those who know the entrance's can unmask it, with the same call.
 * `once`: random bytes that are used for nothing else. False: out of memory. */
bool grow_hide(const colli_secret *entrance, const uint8_t once[COLL_SECRET_BYTES],
               const uint8_t in[COLL_SECRET_BYTES], uint8_t out[COLL_SECRET_BYTES]);

/* ---- rank 0 ---------------------------------------------------------------------------------- */

/* How many newcomers wait and fit into the latest list. */
int grow_count(shrink *s);

/* Calls those of a list. One that cannot be reached is noticed later, like one that has died. */
void grow_call_all(shrink *s, const shrink_order *order);

/* Whether all newcomers that were called have made their communicator: COLL_T_DONE, COLL_T_AGAIN or
 * COLL_ERR_PEER_LOST. */
int grow_all_built(shrink *s);

/* Adds their connections to what this rank waits for. */
void grow_watch(shrink *s);

/* Ends the round: if `committed`, the newcomers that were called may return, otherwise they must
 * dial again. */
void grow_dismiss(shrink *s, bool committed);

#endif
