/*
 * verbs_target.h: long messages that are written to where the receiver wants them. No device
 * needed.
 *
 * A receiver that knows where its next messages belong tells the sender so: an *advert* with the
 * number of the first of them, an address and its key, and the tag that they must carry. Messages
 * of those numbers that the sender has not sent by then, whose lengths and tag are as advertised,
 * are written straight to their places; all others go through the ring (verbs_ring.h). What arrives
 * in place has passed the comparison of tags and lengths at the sender, against what the receiver
 * expects: it need not carry its tag.
 *
 * Adverts lie in memory of the sender of messages, VERBS_SPOTS of them, used in turn. One is
 * written over once its receiver has said, in the immediate bits of its messages, that it has
 * copied it.
 */
#ifndef COLLI_TRANSPORTS_VERBS_SPOT_H
#define COLLI_TRANSPORTS_VERBS_SPOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll_transport.h"

#define VERBS_SPOTS 8u /* a power of two */
#define VERBS_SPOTS_COUNTED                                                                        \
  64u /* what is told of copies is counted modulo this: old news are known */

/* What is told of a spot; travels as it is. */
typedef struct verbs_advert {
  uint64_t first; /* message of the connection, from 0 */
  uint64_t address;
  uint64_t bytes; /* of all messages together */
  uint32_t slice; /* of each but the last */
  uint32_t key;
  coll_tag tag;
  uint64_t unused; /* a place is as long as a cache line */
} verbs_advert;
_Static_assert(sizeof(verbs_advert) == 64, "travels as it is");

/* Messages for which a spot has room. */
static inline uint64_t verbs_advert_count(const verbs_advert *advert) {
  return (advert->bytes + advert->slice - 1) / advert->slice;
}

/* The adverts of one direction, as both ends know them: from `over` to `made`, modulo their number.
 */
typedef struct verbs_targets {
  verbs_advert advert[VERBS_SPOTS];
  uint64_t made;
  uint64_t over;   /* no message for them is to come */
  uint64_t copied; /* the receiver of the advert has them */
} verbs_targets;

/* Whether one more can be told. */
bool verbs_targets_free(const verbs_targets *targets);

/* The peer has told how many it has copied, modulo VERBS_SPOTS_COUNTED: false if it cannot be. What
 * a completion tells may be older than what a short message behind it has told, by VERBS_SPOTS that
 * were under way then, and one for each of VERBS_SENDS that could be sent before the completion was
 * taken: fewer than VERBS_SPOTS_COUNTED - VERBS_SPOTS. */
bool verbs_targets_copied(verbs_targets *targets, uint32_t low);

/* An advert of the peer's: false if it cannot be. */
bool verbs_targets_add(verbs_targets *targets, const verbs_advert *advert);

/* Forgets spots all of whose messages lie before number `next`. */
void verbs_targets_pass(verbs_targets *targets, uint64_t next);

/* The spot for message number `number`, and the place in it and its length; NULL: there is none. */
const verbs_advert *verbs_targets_find(const verbs_targets *targets, uint64_t number,
                                       uint64_t *offset, size_t *bytes);

#endif
